"""What a release may have in bytes is known beforehand, in whatever letters its names are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from stream_dp.core.time import TickGrid
from stream_dp.engine.series import MadeSeries, Series, SeriesView
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.statistics import Series as SeriesSpec

GRID = TickGrid(origin=0, step=3600, horizon=10)
ODD = ["東京" * 20, "Ž" * 99, "😀" * 50, '"\\' * 40, "\x01" * 60]
"""Names whose letters take two to six bytes each."""
MANY = 30


def names(odd: str) -> tuple[str, ...]:
    return tuple(f"{odd}{at}" for at in range(MANY))


def plain(named: Sequence[str], wider: int) -> tuple[str, ...]:
    """As many names of ASCII, of so many times the letters."""
    return tuple("x" * wider * len(name) for name in named)


def series(keys: tuple[str, ...], *, views: bool) -> Series:
    mechanism: Counter = None  # type: ignore[assignment]  # a body is made without it
    windows = (SeriesView("tick", keys, lambda tick, state: 7),) if views else ()
    shape = Shape.WINDOWS if views else Shape.HISTOGRAM
    return Series(
        "s", mechanism, slice(0, len(keys)), keys, shape, lambda *_: 7, 0.95, views=windows
    )


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("views", [False, True])
def test_a_release_has_no_more_than_was_said(odd: str, views: bool) -> None:
    made = series(names(odd), views=views)
    body = made.body(GRID, 1, 4, None, np.full(MANY, 10**15))
    assert sum(map(len, made.keys)) + 24 * MANY < len(body) <= made.most_bytes


@pytest.mark.parametrize("odd", ODD)
def test_what_is_made_of_others_has_no_more_than_was_said(odd: str) -> None:
    keys = names(odd)

    def make(*_: object) -> dict[str, Any]:
        told = dict.fromkeys(keys, 10**15)
        return {"values": told, "lows": [10**15] * MANY, "highs": [10**15] * MANY}

    made = MadeSeries("s", ("in",), keys, (), (make,), 0.95)
    body = made.body(GRID, 1, 4, {"in": b"{}"})
    assert len(body) <= made.most_bytes


@pytest.mark.parametrize(
    "entry",
    [
        {"statistic": "top", "by": "city", "k": 3},
        {"statistic": "maximum", "by": "city"},
        {"statistic": "mean", "of": "amount", "by": "city", "clamp": [0, 9]},
    ],
    ids=lambda entry: entry["statistic"],
)
@pytest.mark.parametrize(
    ("letter", "wide"), [("é", 2), ("日", 3), ("😀", 4), ('"', 2), ("\x01", 6)]
)
def test_a_letter_counts_as_the_bytes_that_it_has(
    entry: dict[str, Any], letter: str, wide: int
) -> None:
    spec: Any = TypeAdapter(SeriesSpec).validate_python({"name": "s", "epsilon": "1", **entry})
    long = tuple(letter * many for many in (3, 20, 8))
    assert spec.told_bytes(long) == spec.told_bytes(plain(long, wide))
