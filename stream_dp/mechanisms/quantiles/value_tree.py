"""Quantiles of a value over sliding windows and so far, from noisy counts of the nodes of a tree over its buckets.

A row counts events by bucket. An event is counted in one node of every level, and the inner mechanism `counts`,
made for rows with one entry per node, adds the noise. Everything that is released is computed from its answers.
The counts may be those of a hop of several updates instead of one update: the exact counts of the open hop are
collected, handed on at its last update and forgotten. An event then lies in one hop, as it lies in one update, so its
price is the same, and a window has the noise of fewer counts. An event sets at most one node of each level.

The noisy rank at a bucket's end is the best estimate of the number of events up to it. This rank less q times the
number of all events estimates how far the quantile q lies below the bucket's end (negative: above). These
differences, fitted by least squares as a monotone function of the bucket, pass 0 in the bucket before which their
partial sums are least. The quantile is reported in that bucket, at a place inside it by linear interpolation.

Beside the quantile stands the range of buckets that are not ruled out: a bucket is ruled out where the rank up to
its end, or before its beginning, is on the wrong side by more than its noise margin. A quantile's true bucket is
ruled out only if the noise of one of two ranks, which the data determine, exceeds its margin. So no margin needs to
hold for all buckets at once. Rules: ranks are integers, margins are functions of public parameters. This file knows no
values and no times.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
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
from stream_dp.mechanisms.linear.pairs import WindowsAndEver, WindowsAndEverState
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, UNIT, part
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.quantiles.bucket_windows import (
    RankLevels,
    RankWindow,
    RankWindowState,
)
from stream_dp.mechanisms.serving import Additive, Deciding

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
            raise NotDerivable(
                "a tree needs at least one bucket, and nodes with at least 2 children"
            )

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
            raise NotDerivable(f"a hop must be at least one update long, not {self.hop}")
        if self.counts.width != self.levels.nodes or self.counts.ones < self.levels.height:
            raise NotDerivable(
                f"an event is counted in {self.levels.height} of {self.levels.nodes} nodes, but the "
                f"counter is made for {self.counts.ones} of {self.counts.width}"
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
        nodes = Fixed(f"counts of the nodes of the tree over the values{hops}")
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


EQUAL = (1, 2, 3, 4, 6, 9, 14, 24, 48, 120)
_SCALE = 2_000
SLACK = 1.01
ROUNDED = 1 / 12  # variance of the rounding of a count


def rank_margins(
    terms: Iterable[Term | tuple[Fraction, int]],
    squares: Floats,
    fourths: Floats,
    failure: float,
    normal: float = 0.0,
) -> IntArray:
    """Return the margin that each rank's absolute noise exceeds with probability at most `failure`; shape of `squares`.

    `terms` are the noises in one node's count, beside one of variance `normal` that is normal; `squares` and `fourths`
    are the sums of the second and fourth powers of the nodes' weights in each rank: a weighted sum of independent node
    counts with noise of one law. The law of such a sum lies between that of one Laplace noise and the normal one, and
    its quantile in standard deviations is interpolated at the same excess kurtosis from sums of 1, 2, 3, ... equal
    noises, whose laws are exact. One hundredth and one event are added, because two sums of equal kurtosis may differ
    (normal ones do not), and for rounding (test_sliding_quantiles compares with exact laws).
    """
    second, fourth = _cumulants(terms)
    second += normal
    variances = squares * (second + ROUNDED)
    kurtosis = fourths * fourth / np.maximum(variances, 1e-12) ** 2
    knots, ratios = _ratios(failure)
    slack = np.where(kurtosis > 0, SLACK, 1.0)
    deviations = slack * np.interp(kurtosis, knots, ratios)
    return np.asarray(np.ceil(deviations * np.sqrt(variances)), dtype=np.int64) + 1


def _cumulants(terms: Iterable[Any]) -> tuple[float, float]:
    """The second and the fourth cumulant of the sum of independent discrete Laplace noises."""
    second = fourth = 0.0
    for scale, number, *weight in terms:
        rate = float(1 / scale)
        a, rest = math.exp(-rate), -math.expm1(-rate)
        w = float(weight[0]) if weight else 1.0
        second += number * w**2 * 2 * a / rest**2
        fourth += number * w**4 * 2 * a * (1 + 4 * a + a * a) / rest**4
    return second, fourth


@lru_cache(maxsize=64)
def _ratios(failure: float) -> tuple[Floats, Floats]:
    """(kurtosis, quantile in deviations) of sums of equal Laplace noises, the normal law first."""
    pairs = [(0.0, NormalDist().inv_cdf(1 - failure / 2))]
    for number in reversed(EQUAL):
        edge = laplace_quantile(((Fraction(_SCALE), number),), failure)
        pairs.append((3 / number, edge / (_SCALE * math.sqrt(2 * number))))
    knots, ratios = np.array(pairs).T
    return knots, ratios


PARTS = 100
"""Places inside a bucket."""
EACH = 3
"""Numbers told of a quantile: its place, in parts of buckets, and how many buckets below and above are ruled out."""
RUNNING, RUNNING_NORMAL = 1.13, 1.11
_KEPT = 64  # number of (view, moment) pairs whose margins are cached


@wire("sliding-quantiles", 1)
@dataclass(frozen=True)
class SlidingQuantiles(Deciding):
    """Answers of shape (views * len(at) * EACH,): for each view and each quantile the `EACH` numbers.

    `at` are the quantiles, increasing, each between 0 and 1. With probability `confidence` no quantile of a view
    has its true bucket ruled out.

    Privacy claim: the claim of `tree`; everything is computed from its answers.
    """

    tree: ValueTree
    at: tuple[Fraction, ...]
    confidence: Fraction

    def __post_init__(self) -> None:
        if not self.at or not 0 < self.confidence < 1:
            raise NotDerivable(
                "quantiles need at least one share, and a confidence strictly between 0 and 1"
            )

    @property
    def width(self) -> int:
        return self.tree.width

    @property
    def neighbors(self) -> Neighbors:
        return self.tree.neighbors

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.neighbors)

    @property
    def guarantee(self) -> Guarantee:
        return self.tree.guarantee

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return derive((self.tree.derivation(),), Fixed("quantiles computed from noisy counts"))

    def public(self, updates: int, state: ValueTreeState) -> Hashable:
        return self.tree.public(updates, state)

    def band(self, public: int, confidence: float) -> int:
        views = range(self.tree.views)
        return max(self.view_band(v, self.tree.after_hops(v, public), confidence) for v in views)

    def view_public(self, place: int, updates: int, state: ValueTreeState) -> int:
        return self.tree.view_public(place, updates)

    def view_band(self, place: int, public: int, confidence: float) -> int:
        """Return by how many events the reported buckets of a view may miss the requested ranks.

        A reported bucket is too high by L events only if, from a bucket that the data determine, some running average
        of the noise of the ranks is below -L; likewise too low. In simulations of the worst possible data, running
        averages reach at most `RUNNING` times the largest margin, `RUNNING_NORMAL` with `RankLevels`
        (test_running_ranks).
        """
        running = RUNNING_NORMAL if isinstance(self.tree.levels, RankLevels) else RUNNING
        return math.ceil(running * int(self._computed(place, public, confidence).max()))

    def opening(self) -> tuple[int, int]:
        p, s = min(self.at, key=lambda quantile: quantile.denominator).as_integer_ratio()
        return p, s - p

    def init(self, noise: Noise) -> ValueTreeState:
        return self.tree.init(noise)

    def step(self, state: ValueTreeState, message: Message, noise: Noise) -> Step[ValueTreeState]:
        state, counts = self.tree.step(state, message, noise)
        if counts is None or not isinstance(message, Query):
            return state, None
        views = counts.reshape(self.tree.views, self.tree.levels.nodes)
        numbers = [self._read(place, state.updates, view) for place, view in enumerate(views)]
        return state, np.concatenate(numbers)

    def _read(self, place: int, updates: int, nodes: IntArray) -> IntArray:
        """Return the `EACH` numbers of every quantile of a view, from its noisy counts."""
        margins = self._margins(place, self.tree.view_public(place, updates))
        own, more = self.tree.levels.estimates(nodes)
        fine = (own.astype(object) << FRACTION_BITS) + more
        through, last = np.cumsum(fine), len(fine) - 1
        numbers, highest = [], 0
        for quantile, margin in zip(self.at, margins, strict=True):
            p, s = quantile.as_integer_ratio()
            ranks = s * through - p * through[-1]
            bucket = int(np.argmin(np.cumsum(ranks) - ranks))
            before = ranks[bucket - 1] if bucket else -p * through[-1]
            highest = max(highest, bucket * PARTS + _inside(before, ranks[bucket]))
            room = margin.astype(object) * (s << FRACTION_BITS)
            bucket = highest // PARTS
            # the last bucket ends all events, and the first begins all, whatever the noise
            ends = np.append(ranks[:-1] >= -room[:-1], [True])
            begins = np.append([True], ranks[:-1] <= room[:-1])
            low = min(int(np.argmax(ends)), bucket)
            high = max(last - int(np.argmax(begins[::-1])), bucket)
            numbers += [highest, low, last - high]
        return np.array(numbers, dtype=np.int64)

    @cached_property
    def _spread(self) -> tuple[Floats, Floats]:
        """Sums of squared and of fourth powers of weights, for the noisy rank of each quantile at each bucket's end."""
        return self.tree.levels.spread(self.at)

    @cached_property
    def _known(self) -> dict[tuple[int, int], IntArray]:
        return {}

    def _margins(self, place: int, public: int) -> IntArray:
        if (place, public) not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[place, public] = self._computed(place, public, float(self.confidence))
        return self._known[place, public]

    def _computed(self, place: int, public: int, confidence: float) -> IntArray:
        """Return margins of shape (len(at), leaves): each quantile gets a share 1 / len(at) of the failure probability.

        Two ranks may fail, each on one side, so a two-sided margin at that share is enough.
        """
        law, failure = self.tree.noise(public, place), (1 - confidence) / len(self.at)
        return rank_margins(law.terms, *self._spread, failure, law.variance)


def _inside(before: int, through: int) -> int:
    """Return the place between a bucket's ends at which the interpolated ranks pass 0; the middle if they do not."""
    width = through - before
    if not before < 0 < through:
        return PARTS // 2 if width else 0
    return int(min(-before * PARTS // width, PARTS - 1))
