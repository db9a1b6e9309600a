"""Whole runs of both forms of HSS and of counters, in blocks of ticks: what the mechanisms release, without stepping.

Thresholds, scales and counters are the mechanisms' own, and noise is the exact integer noise; only the way through the
ticks is another: quiet ones are skipped to the next crossing. On the same noise the releases are the same
(compared draw by draw when this was written; test_auto_regret holds predictions against it).
Horizons are known here. This file knows no streams and no epsilon.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter, SeparateCounters
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.tree import TreeState, rounded

SHORTEST, LONGEST = 1 << 5, 1 << 12  # ticks that are searched at once for a crossing

Piece: TypeAlias = tuple[int, IntArray]  # from this tick on, these values are held


class Truth:
    """Exact counts after every tick, and sums over ticks of them and of their squares."""

    def __init__(self, rows: IntArray) -> None:
        self.counts = np.cumsum(rows, axis=0)
        self._sums, self._squares = (_sums_before(a) for a in (self.counts, self.counts**2))

    @property
    def ticks(self) -> int:
        return len(self.counts)

    def held(self, starts: IntArray, values: IntArray, columns: Any) -> tuple[int, int]:
        """(sum of squared errors, largest error) of values that are held from their tick to the next one's."""
        ends = np.append(starts[1:], self.ticks)
        some = ends > starts
        starts, ends, values = starts[some], ends[some], values[some]
        lengths = (ends - starts).reshape(-1, *[1] * (values.ndim - 1))
        sums = self._sums[ends][:, columns] - self._sums[starts][:, columns]
        squares = self._squares[ends][:, columns] - self._squares[starts][:, columns]
        total = (lengths * values**2 - 2 * values * sums + squares).sum()
        edges = [np.abs(values - self.counts[at][:, columns]).max() for at in (starts, ends - 1)]
        return int(total), int(max(edges))


@dataclass(frozen=True, slots=True)
class Errors:
    """(RMSE, largest error) of one run."""

    rmse: float
    largest: int


def joint_run(hss: HSS, truth: Truth, noise: Noise) -> list[Piece]:
    """What a histogram by the joint form releases."""
    counts, counter = truth.counts, cast("Any", hss.counter)
    state, instance = counter.init(noise), hss.instance()
    queries = noise.geometric(instance.query_scale, truth.ticks)
    base = np.zeros(hss.width, dtype=np.int64)
    pieces, begin = [(0, base)], 0
    while begin < truth.ticks:
        lift = int(noise.geometric(instance.lift_scale, 1)[0])
        threshold = hss.gamma(truth.ticks, len(pieces) - 1) + lift
        tick = _crossing(counts, base, queries, begin, threshold)
        if tick is None:
            break
        state, _ = counter.step(state, Update(counts[tick] - base), noise)
        state, answer = counter.step(state, Query(), noise)
        pieces.append((tick, np.maximum(cast("IntArray", answer), 0)))
        base, begin = counts[tick], tick + 1
    return pieces


def bins_run(hss: PerBinHSS, truth: Truth, noise: Noise) -> list[list[Piece]]:
    watchers, width = hss.watchers, hss.width
    drawn = noise.geometric(watchers.scale, truth.ticks * width).reshape(truth.ticks, width)
    ages = CounterNoise(hss.counters, noise)
    return [
        _column_run(hss, truth.counts[:, column], drawn[:, column], ages, column, noise)
        for column in range(width)
    ]


def _column_run(
    hss: PerBinHSS,
    counts: IntArray,
    drawn: IntArray,
    ages: "CounterNoise",
    column: int,
    noise: Noise,
) -> list[Piece]:
    lifted = np.ascontiguousarray(counts + drawn)
    ticks, begin, base = len(counts), 0, 0
    pieces = [(0, np.zeros((), dtype=np.int64))]
    while begin < ticks:
        lift = int(noise.geometric(hss.watchers.scale, 1)[0])
        tick = _reached(lifted, begin, base + hss.gamma(ticks, len(pieces) - 1) + lift)
        if tick is None:
            break
        base, begin = int(counts[tick]), tick + 1
        pieces.append((tick, np.maximum(base + ages.after(len(pieces))[column], 0)))
    return pieces


class CounterNoise:
    """The noise in the answers of separate counters after 1, 2, ... updates, for all columns; drawn as it is needed."""

    def __init__(self, counters: SeparateCounters, noise: Noise) -> None:
        self._counters, self._noise = counters, noise
        self._base = np.zeros(counters.width, dtype=np.int64)
        self._tree: TreeState | None = None
        self._answers: list[IntArray] = []

    def after(self, updates: int) -> IntArray:
        """Return the noise after so many updates, shape (width,)."""
        while len(self._answers) < updates:
            self._answers.append(self._next(len(self._answers) + 1))
        return self._answers[updates - 1]

    def _next(self, updates: int) -> IntArray:
        number, inside = self._counters.schedule.place(updates)
        tree = self._counters.tree(number, self._counters.width)
        begun = self._tree
        if begun is None or inside == 1:
            if begun is not None:
                before = self._counters.tree(number - 1, self._counters.width)
                self._base = self._base + before.fine(begun)
            begun = tree.init(self._noise)
        self._tree = tree.advance(begun, self._noise)
        return rounded(self._base + tree.fine(self._tree))


def counter_path(counter: Counter | GaussianCounter, noise: Noise) -> IntArray:
    """The noise in every answer of a counter with a horizon, shape (horizon, width)."""
    process: Any = counter.tree if isinstance(counter, Counter) else counter.lattice
    state = process.init(noise) if isinstance(counter, Counter) else process.init()
    path: IntArray = np.empty((counter.horizon or 0, counter.width), dtype=np.int64)
    for step in range(len(path)):
        state = process.advance(state, noise)
        tree = isinstance(counter, Counter)
        path[step] = rounded(process.fine(state)) if tree else process.value(state)
    return path


def path_errors(path: IntArray, truth: Truth) -> Errors:
    off = np.maximum(path, -truth.counts)  # what is published is not below 0
    total = sum(float(np.dot(part.ravel(), part.ravel())) for part in off.astype(np.float64))
    return Errors(math.sqrt(total / off.size), int(np.abs(off).max()))


def joint_errors(pieces: list[Piece], truth: Truth) -> Errors:
    """The errors of values that all columns release together."""
    starts, values = (np.array(each) for each in zip(*pieces, strict=True))
    total, largest = truth.held(starts, values, slice(None))
    return Errors(math.sqrt(total / truth.counts.size), largest)


def bins_errors(columns: list[list[Piece]], truth: Truth) -> Errors:
    """The errors of values that columns release apart."""
    found = []
    for column, pieces in enumerate(columns):
        starts, values = (np.array(each) for each in zip(*pieces, strict=True))
        found.append(truth.held(starts, values, column))
    total = sum(squares for squares, _ in found)
    return Errors(math.sqrt(total / truth.counts.size), max(largest for _, largest in found))


def _sums_before(values: IntArray) -> IntArray:
    """Sums of the rows before each, and of all of them."""
    return np.concatenate((np.zeros((1, values.shape[1]), dtype=np.int64), values.cumsum(axis=0)))


def _crossing(
    counts: IntArray, base: IntArray, queries: IntArray, begin: int, threshold: int
) -> int | None:
    """The first tick from `begin` on where the largest growth since `base`, and its noise, exceed the threshold."""
    size = SHORTEST
    while begin < len(counts):
        part = slice(begin, begin + size)
        above = (counts[part] - base).max(axis=1) + queries[part] > threshold
        if above.any():
            return begin + int(above.argmax())
        begin, size = begin + size, min(2 * size, LONGEST)
    return None


def _reached(lifted: IntArray, begin: int, level: int) -> int | None:
    """The first tick from `begin` on whose value reaches the level."""
    size = SHORTEST
    while begin < len(lifted):
        above = lifted[begin : begin + size] >= level
        if above.any():
            return begin + int(above.argmax())
        begin, size = begin + size, min(2 * size, LONGEST)
    return None
