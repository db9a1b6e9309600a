"""Bands of windows cover at their stated rate at every phase, and are not wider than they must be.

As in test_band_coverage: 200 runs of each forest, the run-wise fractions at most as spread as a binomial's, each test
errs with probability below 1e-4. Windows are judged one by one, at ticks that lie at different places of the nodes, and
while they fill. Twins: bands for half the scale do not cover, twice the band is too wide, and so is that of the worst
phase for all.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from statistical.band_runs import CONFIDENCE, Errors, Shape, noise_of
from statistical.test_band_coverage import covers

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape, best_forest
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.serving import Answer, Bands

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF = Fraction(1, 2)
WIDEST = 1.3
SHAPE = Shape(20, 130, 6_000, 200)
TICKS = (9, 40, 64, 77, 97, 116, 129)  # filling, at the end of a node, and inside
DEEP = ForestShape((4, 4), (HALF, Fraction(1, 4), Fraction(1, 4)))
FORESTS: dict[str, Any] = {
    "flat": WindowForest(20, HALF, ADD, (1, 24), FLAT),
    "levels": WindowForest(20, HALF, ADD, (1, 12, 60), DEEP),
    "replace": WindowForest(20, HALF, REPLACE, (1, 60), DEEP),
    "large epsilon": WindowForest(20, Fraction(4), ADD, (1, 60), DEEP),
    "chosen": WindowForest(20, HALF, ADD, (66,), best_forest((66,))),
    "sums": SumForest(20, HALF, REPLACE, (1, 12, 60), DEEP, -3, 8),
    "sums with ever": SumsAndEver(
        SumForest(20, HALF, ADD, (1, 24), FLAT, 0, 40), SumCounter(20, HALF, ADD, None, 0, 40)
    ),
    "gaussian": GaussianForest(20, Fraction(1, 50), REPLACE, (1, 12, 60), DEEP),
    "gaussian with ever": GaussianAndEver(
        GaussianForest(20, Fraction(1, 50), ADD, (1, 24), FLAT),
        GaussianCounter(20, Fraction(1, 100), ADD, 130),
    ),
    "with ever": WindowsAndEver(
        WindowForest(20, HALF, ADD, (1, 24), FLAT), Counter(20, HALF, ADD, 130)
    ),
}
VIEWS = [
    (name, place)
    for name, forest in FORESTS.items()
    for place in range(len(getattr(forest, "windows", (0, 0, 0))))
]
Forest = WindowForest | SumForest | GaussianForest | WindowsAndEver | SumsAndEver | GaussianAndEver


def windows(forest: Forest) -> tuple[int, ...]:
    """The windows, the count so far as a very long one."""
    if isinstance(forest, WindowForest | SumForest | GaussianForest):
        return forest.windows
    return *forest.forest.windows, 10**6


@lru_cache(maxsize=16)
def answers(name: str) -> tuple[IntArray, IntArray]:
    """|answer - true| of shape (runs, ticks looked at, views, width), and the true counts or sums."""
    forest, found, right = FORESTS[name], [], []
    below = getattr(forest, "lowest", 0) < 0
    signs = np.where(np.arange(SHAPE.width) % 2, 1, -1) if below else 1
    for run in range(SHAPE.runs):
        noise, rows = noise_of(f"windows {name}", run), SHAPE.rows(run) * signs
        state = forest.init(noise)
        for tick, row in enumerate(rows):
            state, _ = forest.step(state, Update(row), noise)
            if tick in TICKS:
                _, answer = forest.step(state, Query(), noise)
                assert answer is not None
                found.append(answer)
                right += [
                    rows[max(0, tick + 1 - w) : tick + 1].sum(axis=0) for w in windows(forest)
                ]
    shape = (SHAPE.runs, len(TICKS), -1, SHAPE.width)
    true = np.array(right).reshape(shape)
    return np.abs(np.array(found).reshape(shape) - true), true


def errors(name: str, place: int, published: Forest | None = None) -> Errors:
    """The errors of one view, with its bands or with those of another forest."""
    off, _ = answers(name)
    bands = Bands(Answer(published or FORESTS[name], place), CONFIDENCE)
    each = np.array([bands(tick, None) for tick in TICKS])
    shape = off[:, :, place].shape
    return Errors(
        off[:, :, place].ravel(),
        np.broadcast_to(each[None, :, None], shape).ravel(),
        np.broadcast_to(np.arange(SHAPE.runs)[:, None, None], shape).ravel(),
    )


@pytest.mark.parametrize(("name", "place"), VIEWS)
def test_bands_of_windows_cover_and_are_tight(name: str, place: int) -> None:
    found = errors(name, place)
    assert covers(found), f"{name} {place}: covered {found.coverage:.3f}"
    full = np.isin(np.tile(np.repeat(TICKS, SHAPE.width), SHAPE.runs), TICKS[2:])
    late = Errors(found.errors[full], found.bands[full], found.runs[full])
    assert late.ratio <= WIDEST, f"{name} {place}: {late.ratio:.2f} times the quantile"


@pytest.mark.parametrize(
    ("name", "place"), [("flat", 1), ("levels", 1), ("levels", 2), ("sums", 0), ("sums", 2)]
)
def test_twice_a_windows_band_is_too_wide_and_half_the_scale_does_not_cover(
    name: str, place: int
) -> None:
    found, forest = errors(name, place), FORESTS[name]
    assert Errors(found.errors, 2 * found.bands, found.runs).ratio > WIDEST
    assert isinstance(forest, WindowForest | SumForest)
    assert not covers(errors(name, place, replace(forest, epsilon=2 * forest.epsilon)))


def test_bands_for_another_rho_do_not_cover_or_are_too_wide() -> None:
    forest = FORESTS["gaussian"]
    for place in range(3):
        assert not covers(errors("gaussian", place, replace(forest, rho=4 * forest.rho)))
        found = errors("gaussian", place, replace(forest, rho=forest.rho / 4))
        assert found.ratio > WIDEST


def test_bands_for_ones_do_not_cover_sums_of_amounts() -> None:
    forest = FORESTS["sums"]
    assert not covers(errors("sums", 1, replace(forest, lowest=0, highest=1)))


def test_a_band_of_another_window_does_not_cover() -> None:
    forest = FORESTS["levels"]
    assert isinstance(forest, WindowForest)
    assert not covers(errors("levels", 2, replace(forest, windows=(1, 12, 20))))
