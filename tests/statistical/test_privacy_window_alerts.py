"""Windows that all fire on one side: what an event costs either way, and so where it is replaced; exact, with twins.

No statistics; the adversary is that of `test_privacy_monitor`. First the theorem, by an oracle that knows no code of
ours: all places together, by every adversary. Then the class that runs in production, in both directions.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import pytest
from oracles.watches import Place, Watches
from statistical.test_privacy_monitor import ADD, HALF, REPLACE, TICK, either_way, price, row
from unit.verify.exact.talks import Talk

from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.serving import derived
from stream_dp.mechanisms.watches.block import ArmQuery, DisarmQuery, WatchTerms
from stream_dp.mechanisms.watches.kinds import Monitor, WindowAlerts
from stream_dp.testing.noise import ZeroNoise

# --- the theorem: all places together, against every adversary -------------------------------------

QUIET2, QUIET3 = row(0, 0), row(0, 0, 0)


def windows(*kinds: Any, window: int = 1) -> Watches:
    """These in places, both noises at ln 2: a cost of n of them is 2^n."""
    places = tuple(Place(kind, 1, window=window) for kind in kinds)
    return Watches(places, HALF, HALF, wide=HALF)


ONE_EACH = ((row(1, 0), row(0, 1)), (row(1, 0), row(0, 0)), (row(0, 0), row(0, 1)))
EITHER = tuple(pair for each in ONE_EACH for pair in either_way(*each))


@pytest.mark.parametrize(
    ("kinds", "cost"),
    [(("window", "window"), 2**3), (("under", "under"), 2**3), (("window", "under"), 2**4)],
)
def test_a_replaced_event_costs_three_parts_of_four_on_one_side(
    kinds: tuple[str, str], cost: int
) -> None:
    """e1 + 2 e2, met exactly by the event that leaves one watch for another, and not exceeded by any."""
    for rounds in (4, 5):
        assert price(windows(*kinds), ("tick", QUIET2), EITHER, rounds) == cost


def test_more_places_that_it_does_not_reach_cost_nothing_nor_do_longer_windows_and_asks() -> None:
    moved = either_way(row(1, 0, 0), row(0, 1, 0))
    assert price(windows("under", "under", "under"), ("tick", QUIET3), moved, 4) == 2**3
    longer = windows("under", "under", window=2)
    assert price(longer, ("tick", QUIET2), EITHER, 6) == 2**3
    asks = ("ask", 0, 1), ("ask", 1, 2), ("ask", 0, 2)
    assert price(windows("under", "under"), ("tick", QUIET2, *asks), EITHER, 4) == 2**3


@pytest.mark.parametrize(
    ("here", "there", "cost"),
    [
        ((1, 1, 0, 0), (0, 0, 1, 1), 2 + 4),
        ((1, 1, 0), (0, 0, 1), 2 + 3),
        ((1, 1, 0), (0, 1, 1), 1 + 2),
        ((1, 1), (0, 0), 2 + 2),
        ((1, 0), (0, 0), 1 + 1),
    ],
)
def test_an_event_of_several_places_pays_both_noises_in_those_of_one_content(
    here: tuple[int, ...], there: tuple[int, ...], cost: int
) -> None:
    """s e1 + L0 e2, in places that just one of the contents counts in."""
    watches = windows(*["under"] * len(here))
    moved = either_way(row(*here), row(*there))
    assert price(watches, ("tick", row(*[0] * len(here))), moved, 4) == 2**cost


# --- the code that runs in production --------------------------------------------------------------

Make = Callable[..., WindowAlerts]


def first_place(below: bool, window: int) -> tuple[WatchTerms, ...]:
    """A watch in the first of several places."""
    return (WatchTerms(1, below=below, window=window),)


def lost(
    make: Make, below: bool, window: int = 1, width: int = 2, ones: int = 1, times: int = 1
) -> list[float]:
    """What one place loses, without the event over with it and the other way round; claimed are s + L0, so many times.

    `times` makes scales of a twin the inverses of whole numbers, for exact enumeration.
    """
    epsilon = Fraction(times * (min(ones, width) + REPLACE.l0(width, ones)))
    block = make(width, epsilon, REPLACE, first_place(below, window), ones)
    quiet, event = (0,) * width, (1, *(0,) * (width - 1))

    def rows(rest: int) -> list[tuple[Any, Any, int]]:
        return [(quiet, quiet, 0), *([(quiet, event, 1)] if rest else [])]

    compared = [(TICK, TICK, 0)]
    turns = [rows, lambda rest: compared] * (window + 1 + below * window)
    return [round(each, 1) for each in Talk(block, turns).losses()]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("below", [False, True])
def test_one_place_loses_two_parts_and_one(below: bool, window: int) -> None:
    """So the place that an event leaves and the one that it enters lose all three that are claimed, and no more."""
    assert lost(WindowAlerts, below, window) == [[2, 1], [1, 2]][below]


def test_what_is_claimed_for_events_of_several_places_is_what_they_lose_together() -> None:
    assert lost(WindowAlerts, False, 1, 3, 2) == [2, 1]
    claimed = {(3, 2): 2 * 2 + 1, (4, 2): 2 * 2 + 2, (1, 1): 2, (9, 1): 2 + 1}
    for (width, ones), units in claimed.items():
        block = WindowAlerts(width, Fraction(1), REPLACE, first_place(False, 4), ones)
        assert block.window_scale == units
        assert derived(block, "w").guarantee == block.guarantee


class PaysWhereItLeavesAlone(WindowAlerts):
    """The noise of `add_remove`: the place that an event enters costs nothing."""

    @cached_property
    def scale(self) -> Fraction:
        return 2 * self._of_one_content / self.epsilon


class PaysComparisonsAlone(WindowAlerts):
    """Every place at e2."""

    @cached_property
    def scale(self) -> Fraction:
        return self.l0 / self.epsilon


class ForgetsTheSecondPlace(WindowAlerts):
    """One content counts in one place."""

    @cached_property
    def scale(self) -> Fraction:
        return (1 + self.l0) / self.epsilon


def test_what_is_broken_is_caught() -> None:
    """Both places together lose more than the three that are claimed; an event of two, of its three, than five."""
    assert sum(lost(WindowAlerts, False, times=2)) == 2 * 3
    for twin in (PaysWhereItLeavesAlone, PaysComparisonsAlone):
        assert sum(lost(twin, False, times=2)) > 2 * 3 + 1
    most, least = lost(ForgetsTheSecondPlace, False, 1, 3, 2, times=4)
    assert 2 * most + least > 4 * 5 + 1


def test_watches_on_both_sides_would_lose_more_and_cannot_be() -> None:
    above, below = (lost(WindowAlerts, each) for each in (False, True))
    assert max(a + b for a, b in zip(above, below[::-1], strict=True)) == 4
    two = WatchTerms(9, window=2), WatchTerms(9, window=2, below=True)
    for wrong in (two, (WatchTerms(9),), (WatchTerms(9, tick=True),)):
        with pytest.raises(UsageError, match="use a Monitor"):
            WindowAlerts(3, HALF, REPLACE, wrong)
    block = WindowAlerts(3, HALF, REPLACE, two[:1])
    state = block.init(ZeroNoise())
    for message in (DisarmQuery(place=0), ArmQuery(place=1, watch=two[1])):
        with pytest.raises(RejectedMessage, match="were fixed when"):
            block.step(state, message, ZeroNoise())


def test_under_add_remove_it_has_the_noise_of_a_monitor() -> None:
    for ones in (1, 2):
        watches = first_place(False, 4)
        alike = WindowAlerts(3, HALF, ADD, watches, ones), Monitor(3, HALF, ADD, watches, ones)
        assert alike[0].window_scale == alike[1].window_scale
