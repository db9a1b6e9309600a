"""Releases of windows: their exact bytes, what is read from them, what is asked of them, and what is refused."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_dp.core.time import TickGrid
from stream_dp.engine.cut_changes import selected
from stream_dp.engine.series import Series, SeriesView
from stream_dp.errors import FailClosed, UsageError
from stream_dp.journal.release import Shape, read
from stream_dp.mechanisms.linear.counter import Counter

GRID = TickGrid(1_357_034_400_000, 3_600_000)
HEAD = {"v": 1, "sequence": 12, "series": "s", "tick": 4, "end": "2013-01-01T15:00:00Z"}
BEGIN = '{"v":1,"sequence":12,"series":"s","tick":4,"end":"2013-01-01T15:00:00Z","windows":'
KEYS = ("ATL", "Å b", "other")


def series(keys: tuple[str, ...], *, private: bool = True) -> Series:
    """A single tick and a day; bands of 3 and 9, and 1 more with each tick."""
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    views = (
        SeriesView("tick", keys, lambda tick, state: 3 + tick),
        SeriesView("24h", keys, lambda tick, state: 9 + tick),
    )
    return Series(
        "s", mechanism, slice(0, len(keys)), keys, Shape.WINDOWS, lambda *_: 0, 0.95, private, views=views
    )  # fmt: skip


def test_the_bytes_of_windows_of_one_value() -> None:
    """To the byte, each with its band; no count is below 0."""
    body = series(("",)).body(GRID, 12, 4, None, np.array([-7, 40]))
    shown = '{"tick":{"value":0,"band":7},"24h":{"value":40,"band":13}}'
    assert body.decode() == f'{BEGIN}{shown},"confidence":0.95}}'
    assert read(body).shape is Shape.WINDOWS
    marked = series(("",), private=False).body(GRID, 12, 4, None, np.array([-7, 40]))
    assert marked.decode() == f'{BEGIN}{shown},"confidence":0.95,"not_private":true}}'


def test_the_bytes_of_windows_by_key() -> None:
    body = series(KEYS).body(GRID, 12, 4, None, np.array([1, 2, -3, 10, 20, 30]))
    tick = '"tick":{"values":{"ATL":1,"Å b":2,"other":0},"band":7}'
    day = '"24h":{"values":{"ATL":10,"Å b":20,"other":30},"band":13}'
    assert body.decode() == f'{BEGIN}{{{tick},{day}}},"confidence":0.95}}'


def test_how_much_room_releases_take_is_known_beforehand() -> None:
    """Commits are made no larger than they may be: large values of all keys in all windows."""
    for keys in (("",), KEYS):
        answer = np.full(2 * len(keys), 10**15)
        assert len(series(keys).body(GRID, 12, 4, None, answer)) <= series(keys).most_bytes


@pytest.mark.parametrize("entries", [0, 1, 3, 6])
def test_an_answer_of_another_length_is_no_release(entries: int) -> None:
    with pytest.raises(ValueError, match="one entry for each key"):
        series(("",)).body(GRID, 12, 4, None, np.ones(entries, np.int64))


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows": {"tick": {"value": 3, "band": 1}}, "band": 3},
        {"windows": {"tick": {"value": 3, "band": 1}}, "value": 3},
        {"windows": {"tick": {"value": 3}}},
        {"windows": {"tick": {"band": 3}}},
        {"windows": {"tick": {"value": 3, "values": {}, "band": 1}}},
        {"windows": {}},
        {"value": 3},
    ],
)
def test_windows_have_one_value_and_one_band_each(wrong: dict[str, Any]) -> None:
    with pytest.raises(FailClosed, match="is no release"):
        read(json.dumps({**HEAD, "confidence": 0.95, **wrong}).encode())


def test_who_asks_is_told_the_keys_of_every_window() -> None:
    one, many = series(("",)), series(KEYS)
    scalar = one.body(GRID, 12, 4, None, np.array([-7, 40]))
    told = selected(one, scalar, {})
    assert told["windows"] == {"tick": {"value": 0, "band": 7}, "24h": {"value": 40, "band": 13}}
    assert "band" not in told
    body = many.body(GRID, 12, 4, None, np.array([1, 2, -3, 10, 20, 30]))
    assert selected(many, body, {"keys": ["other", "ATL"]})["windows"] == {
        "tick": {"values": {"ATL": 1, "other": 0}, "band": 7},
        "24h": {"values": {"ATL": 10, "other": 30}, "band": 13},
    }
    with pytest.raises(UsageError, match="one value and no keys"):
        selected(one, scalar, {"keys": ["ATL"]})
    assert selected(one, scalar, {"window": "24h"})["windows"] == {"24h": {"value": 40, "band": 13}}
    assert selected(many, body, {"window": "tick", "from": "Å b"})["windows"] == {
        "tick": {"values": {"Å b": 2, "other": 0}, "band": 7}
    }
    for window in ("7d", "", 24, ["tick"]):
        with pytest.raises(UsageError, match="window: is none of this series; it has tick, 24h"):
            selected(one, scalar, {"window": window})


def test_a_series_without_windows_is_asked_for_none() -> None:
    plain = replace(series(("",)), shape=Shape.SCALAR, views=())
    body = plain.body(GRID, 12, 4, None, np.array([7]))
    with pytest.raises(UsageError, match="window: this series has no windows"):
        selected(plain, body, {"window": "tick"})


def test_a_release_that_is_not_public_yet_shows_nothing() -> None:
    released = read(series(("",)).body(GRID, 12, 4, None, np.array([41, 40])))
    assert "41" not in repr(released)
    assert isinstance(released.windows, dict)
    assert repr(released.windows["tick"]) == "<WindowPart>"
