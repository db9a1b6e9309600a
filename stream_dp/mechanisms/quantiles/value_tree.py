"""Noisy counts of the nodes of a tree over value buckets, over sliding windows, so far, or both.

A row counts events by bucket. An event is counted in one node of every level, and the inner mechanism `counts`,
made for rows with one entry per node, adds the noise. Everything that is released is computed from its answers.
The counts may be those of a hop of several updates instead of one update: the exact counts of the open hop are
collected, handed on at its last update and forgotten. An event then lies in one hop, as it lies in one update, so its
price is the same, and a window has the noise of fewer counts.
Rules: an event sets at most one node of each level. This file knows no quantiles and no times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import LARGEST, checked, of_the_exact_class
from stream_dp.mechanisms.linear.counter import Counter, CounterState, HybridCounter, HybridState
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, UNIT, part
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import WindowsAndEver, WindowsAndEverState
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.quantiles.rank_window import RankLevels, RankWindow, RankWindowState
from stream_dp.mechanisms.serving import Additive

ARITIES = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
MOST_LEVELS = 4
_BIG = 1 << 30

Floats: TypeAlias = NDArray[np.float64]


@wire("value-levels", 1)
@dataclass(frozen=True)
class ValueLevels:
    """The tree over `leaves` buckets; it has one level where `arity` >= `leaves`.

    Level 0 has the buckets, in the order of their values. `arity` nodes of a level form one node of the next, and the
    top level has at most `arity` nodes. Rows of node counts begin with level 0.

    All nodes have equal noise, so least squares needs one pass up and one pass down: the pass up corrects a node's
    estimate by a part of its surplus over its children, and the pass down distributes that correction to the children
    in proportion to their variances. Gains are integers over 2^GAIN_BITS; no count moves a surplus, so a correction may
    be rounded.
    """

    leaves: int
    arity: int

    def __post_init__(self) -> None:
        if self.leaves < 1 or self.arity < 2:
            raise NotDerivable("a tree has one bucket or more, and nodes of 2 or more")

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        sizes = [self.leaves]
        while sizes[-1] > self.arity:
            sizes.append(-(-sizes[-1] // self.arity))
        return tuple(sizes)

    @property
    def height(self) -> int:
        return len(self.sizes)

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    def counted(self, buckets: IntArray) -> IntArray:
        """Return the counts of all nodes, shape (nodes,), from the bucket counts, shape (leaves,)."""
        levels = [buckets]
        for _ in self.sizes[1:]:
            levels.append(self._below(levels[-1]))
        return np.concatenate(levels)

    def estimates(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the noisy bucket counts and their corrections in units of 2^-FRACTION_BITS.

        `nodes` has shape (nodes, ...); both results have shape (leaves, ...).
        """
        levels = np.split(nodes, np.cumsum(self.sizes)[:-1])
        sums, corrections = [levels[0]], [np.zeros_like(levels[0])]
        for own, gains in zip(levels[1:], self._gains, strict=True):
            below, known = self._below(sums[-1]), self._below(corrections[-1])
            surplus = ((own - below) << FRACTION_BITS) - known
            sums.append(below)
            corrections.append(known + _parts(gains, surplus))
        final = corrections.pop()
        for known, shares in zip(reversed(corrections), reversed(self._shares), strict=True):
            gap = np.repeat(final - self._below(known), self.arity, axis=0)[: len(known)]
            final = known + _parts(shares, gap)
        return levels[0], final

    @cached_property
    def weights(self) -> Floats:
        """The weight of each node's noise in each bucket's estimate, with rounded gains; shape (leaves, nodes)."""
        own, more = self.estimates(np.eye(self.nodes, dtype=np.int64) * _BIG)
        return np.asarray((own + more / (1 << FRACTION_BITS)) / _BIG, dtype=np.float64)

    def spread(self, at: tuple[Fraction, ...]) -> tuple[Floats, Floats]:
        """Return the sums of squares and of fourth powers of the weights of the nodes' noises in a noisy rank.

        A noisy rank is the rank at a bucket's end less q times the number of events, for each q of `at`. Both
        results have shape (len(at), leaves).
        """
        through = np.cumsum(self.weights, axis=0)
        squares = [(through - float(q) * through[-1]) ** 2 for q in at]
        return (
            np.array([each.sum(axis=1) for each in squares]),
            np.array([(each**2).sum(axis=1) for each in squares]),
        )

    @cached_property
    def _variances(self) -> tuple[tuple[Fraction, ...], ...]:
        """The variance of a node's estimate from its subtree, by level; a node's own noise has variance 1."""
        levels = [(Fraction(1),) * self.leaves]
        for _ in self.sizes[1:]:
            levels.append(tuple(below / (1 + below) for below in self._totals(levels[-1])))
        return tuple(levels)

    @cached_property
    def _gains(self) -> tuple[IntArray, ...]:
        """By level above the buckets: the part of a node's surplus that corrects its estimate."""
        return tuple(_units(level) for level in self._variances[1:])

    @cached_property
    def _shares(self) -> tuple[IntArray, ...]:
        """By level below the highest: the part of the parent's correction that a node receives."""
        shares = []
        for level in self._variances[:-1]:
            totals = self._totals(level)
            shares.append(_units([v / totals[i // self.arity] for i, v in enumerate(level)]))
        return tuple(shares)

    def _totals(self, level: tuple[Fraction, ...]) -> list[Fraction]:
        """Return the sums over the children of each node of the next level; equal sums are computed once."""
        parts = [level[i : i + self.arity] for i in range(0, len(level), self.arity)]
        known = {part: sum(part, Fraction(0)) for part in set(parts)}
        return [known[part] for part in parts]

    def _below(self, level: IntArray) -> IntArray:
        return np.add.reduceat(level, np.arange(0, len(level), self.arity), axis=0)


@lru_cache(maxsize=64)
def best_levels(leaves: int, at: tuple[Fraction, ...]) -> ValueLevels:
    """Return the tree with the least deviation of noisy ranks, at equal shares of its levels and exact least squares.

    The deviation is the worst over all buckets and quantiles, because nobody knows where the quantiles will lie.
    """
    flat = ValueLevels(leaves, max(2, leaves))
    trees = [ValueLevels(leaves, arity) for arity in ARITIES if arity < leaves]
    return min((flat, *(t for t in trees if t.height <= MOST_LEVELS)), key=lambda t: _worst(t, at))


def _worst(levels: ValueLevels, at: tuple[Fraction, ...]) -> float:
    """Return height squared times the largest variance, rounded so that every machine makes the same choice."""
    squares, _ = levels.spread(at)
    return round(float(squares.max()) * levels.height**2, 6)


def _units(fractions: Sequence[Fraction]) -> IntArray:
    return np.array([round(each * UNIT) for each in fractions], dtype=np.int64)


def _parts(gains: IntArray, surplus: IntArray) -> IntArray:
    return part(gains.reshape(-1, *(1,) * (surplus.ndim - 1)), surplus)


Over: TypeAlias = WindowForest | WindowsAndEver | Counter | HybridCounter | RankWindow
OverState: TypeAlias = (
    WindowForestState | WindowsAndEverState | CounterState | HybridState | RankWindowState
)


@wire("value-tree-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class ValueTreeState:
    """`updates` (public), the state of the mechanism that counts the nodes, and the exact counts of the open hop.

    `open` (private) has shape (leaves,), and is None where a hop has just ended or is a single update.
    """

    updates: int
    counts: OverState
    open: IntArray | None = None


@wire("value-tree", 1)
@dataclass(frozen=True)
class ValueTree(Additive):
    """Answers of shape (views * nodes,): the noisy counts of all nodes of `levels`, by view of `counts`.

    `RankLevels` have the buckets as nodes, and a `RankWindow` tells estimates of these in units of 2^-FRACTION_BITS.
    The first entries of a row are the buckets; the last `unranked` ones hold events without a value. `hop` updates of
    the tree are one of `counts`, the first hop from the first update on: answers change when a hop ends.

    Privacy claim: the claim of `counts`, which must be made for events that set one entry in each level. Rows that
    differ by one event make hops that differ by that event.
    """

    levels: ValueLevels | RankLevels
    counts: Over
    unranked: int = 0
    hop: int = 1

    def __post_init__(self) -> None:
        if self.hop < 1:
            raise NotDerivable(f"a hop has one update or more, not {self.hop}")
        if self.counts.width != self.levels.nodes or self.counts.ones < self.levels.height:
            raise NotDerivable(
                f"an event is counted in {self.levels.height} of {self.levels.nodes} nodes: their counts are made for "
                f"{self.counts.ones} of {self.counts.width}"
            )

    @property
    def width(self) -> int:
        return self.levels.leaves + self.unranked

    @property
    def epsilon(self) -> Fraction:
        return self.guarantee.measure.epsilon  # type: ignore[union-attr]  # all of them are pure

    @property
    def neighbors(self) -> Neighbors:
        return self.counts.neighbors

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.neighbors)

    @property
    def guarantee(self) -> Guarantee:
        return self.counts.guarantee

    @of_the_exact_class
    def derivation(self) -> Derivation:
        hops = f", of hops of {self.hop} ticks" if self.hop > 1 else ""
        nodes = Fixed(f"counts of the nodes over the values{hops}")
        return derive((self.counts.derivation(),), nodes)

    @property
    def views(self) -> int:
        return self._windows + (self.counts.ever is not None)

    @property
    def _windows(self) -> int:
        forest = self.counts.forest
        return 0 if forest is None else len(forest.windows)

    def public(self, updates: int, state: Any) -> int:
        """Return how many hops have ended; 1 before the first one has, when nothing is told."""
        return max(1, updates // self.hop)

    def band(self, public: int, confidence: float) -> int:
        return max(
            self.view_band(v, self.after_hops(v, public), confidence) for v in range(self.views)
        )

    def view_public(self, place: int, updates: int, state: Any = None) -> int:
        return self.after_hops(place, self.public(updates, state))

    def after_hops(self, place: int, hops: int) -> int:
        """Return the number of hops, as far as the noise of the view at index `place` depends on it."""
        forest = self.counts.forest
        if forest is None or place >= self._windows:
            return hops
        return forest.view_public(place, hops, None)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return self.counts.noise(public, view)

    def init(self, noise: Noise) -> ValueTreeState:
        return ValueTreeState(0, self.counts.init(noise))

    def step(self, state: ValueTreeState, message: Message, noise: Noise) -> Step[ValueTreeState]:
        counts: Any = self.counts
        if isinstance(message, Query):
            return state, counts.step(state.counts, message, noise)[1]
        buckets = checked(message.row, self.width)[: self.levels.leaves]
        if state.open is not None:
            buckets = np.minimum(state.open + buckets, LARGEST)
        updates = state.updates + 1
        if updates % self.hop:
            return ValueTreeState(updates, state.counts, buckets.copy()), None
        nodes = np.minimum(self.levels.counted(buckets.astype(object)), 1 << 62).astype(np.int64)
        after, _ = counts.step(state.counts, Update(nodes), noise)
        return ValueTreeState(updates, after), None
