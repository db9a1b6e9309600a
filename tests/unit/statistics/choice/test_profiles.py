"""Profiles of events: all categories, all entries, none with more than there are events."""

import pytest

from stream_dp.statistics.parts.choice import BURSTS, ExpectedShape, Profile


@pytest.mark.parametrize("shape", ["even", "zipf", "bursts"])
@pytest.mark.parametrize(("width", "events"), [(1, 10), (7, 1000), (105, 336_776), (5000, 10)])
def test_a_profile_has_all_categories_and_all_events(
    width: int, events: int, shape: ExpectedShape
) -> None:
    profile = Profile.of(width, events, shape)
    assert profile.weights.sum() == width
    assert profile.counts @ profile.weights == pytest.approx(events)
    assert (profile.counts[:-1] >= profile.counts[1:]).all()
    assert profile.bursts == (BURSTS if shape == "bursts" else None)


def test_even_categories_are_alike_and_zipf_like_ones_are_not() -> None:
    even, zipf = (Profile.of(10, 1000, shape) for shape in ("even", "zipf"))
    assert even.counts == pytest.approx(100)
    assert zipf.counts[0] == pytest.approx(1000 / sum(1 / i for i in range(1, 11)))
    assert zipf.counts[-1] == pytest.approx(zipf.counts[0] / 10)


@pytest.mark.parametrize(("ones", "entries"), [(1, 100), (3, 200), (20, 1050), (99, 1050)])
def test_events_set_half_of_what_they_may(ones: int, entries: int) -> None:
    profile = Profile.of(20, 100, "zipf", ones)
    assert profile.counts @ profile.weights == pytest.approx(entries)
    assert profile.counts.max() <= 100


def test_series_of_one_width_share_a_profile_that_nobody_changes() -> None:
    """It takes a millisecond to make, and a plan of 200 series asks for six thousand."""
    one = Profile.of(10, 1000, "zipf", 30)
    assert Profile.of(10, 1000, "zipf", 10) is one
    assert not any(each.flags.writeable for each in (one.ranks, one.counts, one.weights))
