"""Whole runs in blocks, which benchmarks take errors from, release what the mechanisms do, on the very same noise.

Recorded: a mechanism runs step by step under a known seed, and its draws are handed to the run in blocks, whose order
of drawing is another. Errors of held values are compared with those taken tick by tick.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from benchmarks.block_noise import BlockNoise
from benchmarks.hss_blocks import (
    CounterNoise,
    Truth,
    bins_errors,
    bins_run,
    counter_path,
    joint_errors,
    joint_run,
    path_errors,
)

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.separate_counters import CloseQuery, SeparateCounters
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, TICKS = Neighbors.ADD_REMOVE, 600
SHARE = Fraction(1, 2)


class Recorded:
    """Seeded noise that remembers its draws; without `laplace`, the trees' are 0."""

    def __init__(self, seed: int, laplace: bool = True) -> None:
        self._noise = SeededNoise(seed)
        self._trees: Noise = self._noise if laplace else ZeroNoise()
        self.laplaces: list[IntArray] = []
        self.geometrics: list[IntArray] = []

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Draw and remember."""
        self.laplaces.append(self._trees.laplace(scale, size))
        return self.laplaces[-1]

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Draw and remember."""
        self.geometrics.append(self._noise.geometric(scale, size))
        return self.geometrics[-1]

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nobody draws it here."""
        raise NotImplementedError


class Played:
    """The noise of queries at once, that of thresholds one by one, that of trees as it was drawn."""

    def __init__(self, queries: IntArray, lifts: list[int], laplaces: Iterator[IntArray]) -> None:
        self._queries, self._lifts, self._laplaces = queries, iter(lifts), laplaces

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The next draw of the trees."""
        drawn = next(self._laplaces, np.zeros(size, dtype=np.int64))
        assert drawn.shape == (size,)
        return drawn

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """All queries' noise, or one threshold's."""
        return self._queries if size > 1 else np.array([next(self._lifts)])

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nobody draws it here."""
        raise NotImplementedError


def rows(width: int, seed: int) -> IntArray:
    """Steady events and a burst; the last tick is empty."""
    found = np.random.default_rng(seed).poisson(0.6, (TICKS, width))
    found[TICKS // 3] += 40
    found[-1] = 0
    return found.astype(np.int64)


def stepped(mechanism: Any, truth_rows: IntArray, noise: Noise) -> IntArray:
    """The answers of every tick, not below 0, shape (ticks, width)."""
    state, found = mechanism.init(noise), []
    for row in truth_rows:
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        found.append(np.maximum(answer, 0))
    return np.array(found)


def held(pieces: list[tuple[int, IntArray]], ticks: int) -> IntArray:
    """The value of every tick."""
    return np.array([[value for start, value in pieces if start <= t][-1] for t in range(ticks)])


def assert_same_errors(found: Any, answers: IntArray, truth_rows: IntArray) -> None:
    """The errors are those of these answers."""
    off = np.abs(answers - truth_rows.cumsum(axis=0))
    assert found.rmse == pytest.approx(float(np.sqrt((off**2).mean())))
    assert found.largest == off.max()


@pytest.mark.parametrize("seed", range(4))
def test_the_joint_form_in_blocks(seed: int) -> None:
    hss = HSS(3, None, SHARE / 2, SHARE / 2, SHARE, ADD, TICKS, kappa=None)
    noise, events = Recorded(seed), rows(3, seed)
    answers = stepped(hss, events, noise)
    drawn = [int(one[0]) for one in noise.geometrics]
    queries, lifts, at = [], [drawn[0]], 1
    crossings = 0
    for before, after in zip(np.vstack((np.zeros((1, 3), int), answers)), answers, strict=False):
        queries.append(drawn[at])
        at += 1
        if (before != after).any():
            lifts.append(drawn[at])
            at, crossings = at + 1, crossings + 1
    assert at == len(drawn)  # every crossing changed what is released
    assert crossings > 5
    played = Played(np.array(queries), lifts, iter(noise.laplaces))
    truth = Truth(events)
    pieces = joint_run(hss, truth, played)
    assert (held(pieces, TICKS) == answers).all()
    assert_same_errors(joint_errors(pieces, truth), answers, events)


@pytest.mark.parametrize(("seed", "width"), [(0, 1), (1, 1), (2, 3), (3, 4)])
def test_bin_by_bin_in_blocks(seed: int, width: int) -> None:
    """With one column the trees' noise is drawn in the same order; with more it is 0 here."""
    hss = PerBinHSS(width, SHARE, SHARE, ADD, TICKS)
    noise, events = Recorded(seed, laplace=width == 1), rows(width, seed)
    answers = stepped(hss, events, noise)
    lifts, queries, log = [[int(lift)] for lift in noise.geometrics[0]], [], noise.geometrics[1:]
    drawn = iter(log)
    counts, begun = events.cumsum(axis=0), np.zeros(width, dtype=np.int64)
    closed = [0] * width
    for tick in range(TICKS):
        queries.append(next(drawn))
        levels = [hss.gamma(tick + 1, number) for number in closed]
        now = [lift[-1] for lift in lifts]
        crossed = np.flatnonzero(counts[tick] - begun + queries[-1] >= np.array(levels) + now)
        if len(crossed):
            for column, lift in zip(crossed.tolist(), next(drawn).tolist(), strict=True):
                lifts[column].append(lift)
                begun[column], closed[column] = counts[tick, column], closed[column] + 1
    assert next(drawn, None) is None
    assert min(closed) > 5
    flat = [lift for column in lifts for lift in column]
    laplaces = noise.laplaces if width == 1 else []
    played = Played(np.array(queries).ravel(), flat, iter(laplaces))
    truth = Truth(events)
    columns = bins_run(hss, truth, played)
    for column, pieces in enumerate(columns):
        assert (held(pieces, TICKS) == answers[:, column]).all()
    assert_same_errors(bins_errors(columns, truth), answers, events)


def test_separate_counters_hand_over_in_blocks_too() -> None:
    """The first tree takes 96 updates."""
    counters = SeparateCounters(2, Fraction(1), ADD)
    noise, both = SeededNoise(7), CloseQuery(columns=np.arange(2))
    state = counters.init(noise)
    ages = CounterNoise(counters, SeededNoise(7))
    for update in range(1, 200):
        state, answer = counters.step(state, both, noise)
        assert answer is not None
        assert (ages.after(update) == answer).all()


def test_counters_in_blocks() -> None:
    events = rows(2, 5)
    truth = Truth(events)
    for counter in (
        Counter(2, Fraction(1), ADD, TICKS),
        GaussianCounter(2, Fraction(1, 20), ADD, TICKS, gdp=True),
    ):
        answers = stepped(counter, events, SeededNoise(3))
        path = counter_path(counter, SeededNoise(3))
        assert (np.maximum(path + truth.counts, 0) == answers).all()
        assert_same_errors(path_errors(path, truth), answers, events)


def test_block_noise_hands_every_sample_out_once() -> None:
    noise = BlockNoise()
    scale = Fraction(10**9)
    drawn = np.concatenate([noise.laplace(scale, size) for size in (5, 40_000, 30_000, 1, 70_000)])
    assert (
        len(np.unique(drawn)) > 140_000 - 50
    )  # equal by chance: about 5 pairs, 50 with a chance below 1e-30
    assert noise.geometric(scale, 3).min() >= 0
    assert noise.gaussian(Fraction(9), 3).shape == (3,)
