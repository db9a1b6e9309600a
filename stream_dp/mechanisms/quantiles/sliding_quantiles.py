"""Quantiles of a value over sliding windows and so far: post-processing of noisy counts of a tree over its buckets.

The noisy rank at a bucket's end is the best estimate of the number of events up to it. This rank less q times the
number of all events estimates how far the quantile q lies below the bucket's end (negative: above). These
differences, fitted by least squares as a monotone function of the bucket, pass 0 in the bucket before which their
partial sums are least. The quantile is reported in that bucket, at a place inside it by linear interpolation.

Beside the quantile stands the range of buckets that are not ruled out: a bucket is ruled out where the rank up to
its end, or before its beginning, is on the wrong side by more than its noise margin. A quantile's true bucket is
ruled out only if the noise of one of two ranks, which the data determine, exceeds its margin. So no margin needs to
hold for all buckets at once. Rules: ranks are integers, margins are functions of public parameters. This file draws
nothing and knows no values.
"""

import math
from collections.abc import Hashable, Iterable
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
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.linear.tree import FRACTION_BITS
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.quantiles.rank_window import RankLevels
from stream_dp.mechanisms.quantiles.value_tree import ValueTree, ValueTreeState
from stream_dp.mechanisms.serving import Deciding

Floats: TypeAlias = NDArray[np.float64]
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
            raise NotDerivable("quantiles need one share or more, and a confidence between 0 and 1")

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
        return derive((self.tree.derivation(),), Fixed("quantiles read from noisy counts"))

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
