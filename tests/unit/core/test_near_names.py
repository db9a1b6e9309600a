"""Which name is near: alike first, then what other tools call it, then what is spelled nearly so; never far."""

import pytest

from stream_dp.core.wording import LONGEST, SKIMMED, alike_names, meant, near_names

KEYS = ("name", "statistic", "epsilon", "where", "by", "windows", "expected_events")


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("epsilom", "epsilon"),
        ("EPSILON", "epsilon"),
        ("expected-events", "expected_events"),
        ("expectedEvents", "expected_events"),
        ("window", "windows"),
        ("group_by", "by"),
        ("filter", "where"),
        ("colour", None),
        ("_-_", None),
        (None, None),
        (["epsilon"], None),
    ],
)
def test_the_nearest_name_is_found_or_none(written: object, near: str | None) -> None:
    assert near_names(written, KEYS) == ([near] if near else [])
    assert meant(written, KEYS) == (f"; did you mean {near}?" if near else "")


@pytest.mark.parametrize(
    ("written", "names", "near"),
    [
        ("string", ("time", "text", "integer"), "text"),
        (">=", ("at_least", "at_most"), "at_least"),
        ("average", ("average_delay", "mean"), "mean"),
        ("amount", ("at_least", "at_most"), None),
        ("UK", ("US", "UA", "GB"), None),
    ],
)
def test_what_other_tools_say_is_known_where_it_fits(
    written: str, names: tuple[str, ...], near: str | None
) -> None:
    assert near_names(written, names) == ([near] if near else [])
    assert near_names(written, ("unrelated",)) == []


def test_several_come_the_nearest_first_and_none_twice() -> None:
    names = ("large", "larger", "LARGE", "quiet")
    assert near_names("Large", names, 3) == ["large", "LARGE", "larger"]
    assert near_names("lagre", names, 1) == ["large"]


def test_a_name_with_spaces_around_it_is_told_in_quotes() -> None:
    assert alike_names("page", ["Page ", "pages"]) == ["Page "]
    assert meant("page", ["Page "]) == "; did you mean 'Page '?"


def test_only_so_much_is_looked_at() -> None:
    far = [f"n{number:09}" for number in range(SKIMMED)]
    assert near_names("Epsilon", [*far[1:], "epsilon"]) == ["epsilon"]
    assert near_names("Epsilon", [*far, "epsilon"]) == []
    assert near_names("epsilon" + "n" * 10 * LONGEST, KEYS) == []
