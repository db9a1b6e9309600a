"""What analysts may ask of a monitor, and what they are told."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream_dp.errors import UsageError
from stream_dp.mechanisms.watches.block import ThresholdQuery
from stream_dp.statistics.parts.watch_roster import ENDED, REMEMBERED, WatchRoster

WATCHES = [SimpleNamespace(name="large", by=None), SimpleNamespace(name="busy", by="destination")]
ROSTER = WatchRoster.of(("large", "busy/ATL", "busy/other", "", ""), WATCHES, 30, 2)


def test_a_watch_is_asked_by_its_name() -> None:
    asked = {"watch": "busy/ATL", "threshold": 70}
    assert ROSTER.query(asked) == ThresholdQuery(70, place=1)
    assert ROSTER.content(asked, np.array([0])) == {**asked, "fired": False}
    assert ROSTER.content(asked, np.array([1])) == {**asked, "fired": True}


def test_a_count_is_told_where_the_watch_fired_and_never_below_zero() -> None:
    asked = {"watch": "large", "threshold": 1}
    assert ROSTER.content(asked, np.array([0, 0])) == {**asked, "fired": False}
    told = ROSTER.content(asked, np.array([1, -3]))
    assert told == {**asked, "fired": True, "count": 0, "counts_band": 30}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "threshold: is missing\nwatch: is missing"),
        ({"watch": "small", "threshold": 5}, "watch: none of this name"),
        ({"watch": "", "threshold": 5}, "watch: none of this name"),
        ({"watch": ["large"], "threshold": 5}, "watch: none of this name"),
        ({"watch": "large", "threshold": 0}, "threshold: must be a whole number from 1"),
        ({"watch": "large", "threshold": True}, "threshold: must be a whole number from 1"),
        ({"watch": "large", "threshold": 10**16}, "threshold: must be a whole number from 1"),
        ({"watch": "large", "threshold": 5, "keys": ["a"]}, "keys: not taken by a monitor"),
    ],
)
def test_nonsense_is_named_with_its_key(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        ROSTER.query(asked)
    assert str(caught.value).startswith(why)
    assert "small" not in str(caught.value)


NAMES = ("large", "larger", "quiet", *(f"busy/{n}" for n in range(200)), "")
MANY = WatchRoster.of(
    NAMES, [SimpleNamespace(name=name, by=None) for name in ("large", "larger", "quiet")], None, 1
)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("lagre", "large, larger, quiet, busy/0, busy/1 and 198 more"),
        ("quite", "quiet, large, larger, busy/0, busy/1 and 198 more"),
        ("busy", "busy/0, busy/1, busy/2, busy/3, busy/4 and 198 more"),
        (["large"], "large, larger, quiet, busy/0, busy/1 and 198 more"),
    ],
)
def test_a_name_that_is_none_is_told_those_that_are_the_nearest_first(
    asked: Any, there: str
) -> None:
    with pytest.raises(UsageError) as caught:
        MANY.query({"watch": asked, "threshold": 5})
    said = f"watch: none of this name is here; there are {there}; of one with a `by` the value too: watch/value"
    assert str(caught.value) == said
    with pytest.raises(
        UsageError, match=r"none of this name is here; there are quiet, large, larger$"
    ):
        MANY.named("quit")
    with pytest.raises(UsageError, match=r"there are none$"):
        WatchRoster.of((), [], None, 1).named("large")


def test_only_the_last_that_ended_are_remembered() -> None:
    roster = ROSTER
    for number in range(REMEMBERED + 5):
        one = SimpleNamespace(name=f"w{number}", by=None)
        roster = roster.with_watch(one, b"{}", 3, [one.name], number, "ann")
        roster = roster.without(roster.named(one.name), number + 1)
    names = [one.watch.name for one in roster.gone]
    assert names == [f"w{number}" for number in range(5, REMEMBERED + 5)]
    assert {one.analyst for one in roster.gone} == {"ann"}
    assert roster.names == ROSTER.names


def test_watches_come_and_go() -> None:
    """A place of the definition is not used again, one of a watch that was added is."""
    assert [(each.place, each.places, each.added) for each in ROSTER.placed] == [
        (0, 1, False),
        (1, 2, False),
    ]
    more = SimpleNamespace(name="more", by=None)
    assert ROSTER.room(2) == 3
    with_more = ROSTER.with_watch(more, b"{}", ROSTER.room(1), ["more"])
    assert with_more.query({"watch": "more", "threshold": 5}) == ThresholdQuery(5, place=3)
    assert tuple(each.watch for each in with_more.placed) == (*WATCHES, more)
    ended = with_more.without(with_more.named("more"), 7)
    assert replace(ended, gone=()) == ROSTER
    assert [(one.watch.name, one.start, one.end) for one in ended.gone] == [("more", 0, 7)]
    without = with_more.without(with_more.named("busy"))
    assert without.names == ("large", ENDED, ENDED, "more", "")
    for name in ("busy/ATL", "busy", ENDED):
        with pytest.raises(UsageError, match="watch: none of this name"):
            without.query({"watch": name, "threshold": 5})
    with pytest.raises(UsageError, match="watch: none of this name"):
        without.named("busy")
    with pytest.raises(UsageError, match=r"needs 2 adjacent free place\(s\)"):
        without.room(2)
