"""What analysts may ask of a monitor, and what they are told."""

from typing import Any

import numpy as np
import pytest

from stream_dp.errors import UsageError
from stream_dp.mechanisms.watch_messages import ThresholdQuery
from stream_dp.pipeline.watch_roster import WatchRoster

ROSTER = WatchRoster(("large", "busy/ATL", "busy/other", "", ""), 30)


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
        ({"watch": "large"}, "threshold: is missing"),
        ({"threshold": 5}, "watch: is missing"),
        ({"watch": "small", "threshold": 5}, "watch: none of this name"),
        ({"watch": "busy", "threshold": 5}, "watch: none of this name"),
        ({"watch": "", "threshold": 5}, "watch: none of this name"),
        ({"watch": ["large"], "threshold": 5}, "watch: none of this name"),
        ({"watch": "large", "threshold": 0}, "threshold: must be a whole number from 1"),
        ({"watch": "large", "threshold": "5"}, "threshold: must be a whole number from 1"),
        ({"watch": "large", "threshold": 5.0}, "threshold: must be a whole number from 1"),
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
