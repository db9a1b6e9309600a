"""Quantiles over tumbling windows: which bucket holds the value with a given share of the events below it.

A row counts the events of a tick by value bucket. Exact counts are collected within each public window of W ticks; the
first window begins with the first update. At a window's last update a noisy maximum chooses one bucket for each
quantile; that choice is the answer until the next window ends. An event lies in one window of each length, and the
counts of a window are forgotten when it ends.

How far bucket b is from the quantile q = p/s is an integer:
    loss(b) = max(0, s * before(b) - p * n, p * n - s * through(b)),
s times the number of events between the rank q * n and the ranks that b holds; some bucket's loss is 0. One more event
in bucket a moves s * before(b) - p * n by s - p (where a < b) or by -p, and p * n - s * through(b) by -(s - p) (where
a <= b) or by p: no loss by more than max(p, s - p). An event that moves between buckets within its tick leaves n as it
was and moves each of the two terms by s, -s or 0, so no loss by more than s, which is no less than max(p, s - p): the
zero row is a content as well.

The choice is the bucket of the largest Z(b) - loss(b), Z independent geometric with scale 2 * sensitivity /
epsilon, the first of equal ones. It is `epsilon`-DP: given the other noises, b is chosen iff Z(b) is at least some
integer, which a neighbour raises by at most 2 * sensitivity, and P[Z >= x + y] >= exp(-y / scale) P[Z >= x] for all
integers x and y >= 0. As Z is the whole part of an exponential variable, this is permute-and-flip (McKenna, Sheldon
2020; equal to the maximum with exponential noise, Ding, Kifer et al. 2021) with scores read to 1/s of an event, in
one draw a bucket: no rejections, and so few draws that all of them can be enumerated.

Or one choice has all quantiles of a window. A candidate is a tuple of buckets, one for each quantile and none before
the one before; its loss is the largest of its buckets' losses, each first multiplied so that one event changes it by at
most the same M, the least common multiple of all sensitivities. A maximum of numbers that change by at most M does so
too, and some tuple has loss 0. So the choice above, among tuples and at the scale 2 * M / epsilon, pays once for all
quantiles; their number counts by the logarithm of the number of tuples alone.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations_with_replacement
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.linear.ended_windows import of_each_length
from stream_dp.mechanisms.serving import CountRows, Deciding

SOURCE = "noisy maximum with one-sided noise (McKenna, Sheldon 2020; Ding, Kifer et al. 2021)"
TEST = "tests/unit/verify/exact/test_small_quantiles.py"  # exact, against every adversary
WIDEST = 1 << 40  # noise of a larger scale cannot be drawn
UNTOLD = -1
"""The answer where no window has ended yet."""
# a loss beyond it counts as it: no noise reaches so far, and 64 bits hold any noise less this
_FARTHEST = 1 << 62

Tuples: TypeAlias = NDArray[np.int16]


def tuples_of(buckets: int, quantiles: int) -> int:
    """Return how many tuples of buckets, none before the one before, there are for so many quantiles."""
    return math.comb(buckets + quantiles - 1, quantiles)


@lru_cache(maxsize=4)
def _tuples(buckets: int, quantiles: int) -> Tuples:
    """Return these tuples in lexicographic order, shape (tuples, quantiles)."""
    whole = chain.from_iterable(combinations_with_replacement(range(buckets), quantiles))
    number = tuples_of(buckets, quantiles) * quantiles
    return np.fromiter(whole, dtype=np.int16, count=number).reshape(-1, quantiles)


@wire("tumbling-quantiles-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class TumblingQuantilesState:
    """Exact counts of each open window, shape (windows, buckets), private, and the last chosen buckets, `told`, public,
    shape (windows, quantiles).
    """

    updates: int
    counts: IntArray
    told: IntArray


@wire("tumbling-quantiles", 1)
@dataclass(frozen=True, slots=True)
class TumblingQuantiles(CountRows, Deciding):
    """Answers of shape (len(windows) * len(at),): by window length, each quantile's bucket in the last window.

    `windows` are lengths in updates. `at` are the quantiles, increasing, each between 0 and 1. The first entries of a
    row are the value buckets, in order; the last `unranked` ones hold events without a value and count nowhere. A
    bucket is given by its index, from 0; before the first window has ended it is `UNTOLD`. The buckets of one window
    are sorted into the order of the quantiles: post-processing that does not increase the largest error. `together`:
    one choice has all quantiles of a window, otherwise each quantile has its own.

    Privacy claim: `epsilon`-DP for one-hot event streams under `neighbors`, for ever, adaptively: an event lies in
    one window of each length, and each window pays for each choice epsilon / (len(windows) * len(choices)).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    at: tuple[Fraction, ...]
    unranked: int = 0
    together: bool = False

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def buckets(self) -> int:
        return self.width - self.unranked

    @property
    def choice_epsilon(self) -> Fraction:
        return self.epsilon / (len(self.windows) * len(self.choices))

    @property
    def choices(self) -> tuple[tuple[Fraction, ...], ...]:
        """The quantiles of each choice of a window."""
        return (self.at,) if self.together else tuple((quantile,) for quantile in self.at)

    def sensitivity(self, quantile: Fraction) -> int:
        """Return the most by which one event changes a bucket's loss (NotDerivable: it may lie in two ticks)."""
        if self.neighbors.l0(2) == 2:
            return quantile.denominator
        return max(quantile.numerator, quantile.denominator - quantile.numerator)

    def moves(self, quantiles: Sequence[Fraction]) -> int:
        """Return the most by which one event changes the loss of a choice of these quantiles."""
        return math.lcm(*map(self.sensitivity, quantiles))

    def scale(self, *quantiles: Fraction) -> Fraction:
        return 2 * self.moves(quantiles) / self.choice_epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        if max(self.scale(*choice) for choice in self.choices) > WIDEST:
            raise NotDerivable(
                "noise for these quantiles is too wide to be drawn. Write them with fewer decimals, "
                "or give more "
                f"epsilon{(', or choose each by itself (method: apart)' if self.together else '')}"
            )
        window = derive(
            tuple(map(self._choice, self.choices)), Fixed("the quantiles of one window")
        )
        return of_each_length(window, self.neighbors, self.windows, TEST)

    def _choice(self, quantiles: tuple[Fraction, ...]) -> Derivation:
        claim = Guarantee(PureDP(self.choice_epsilon), self.neighbors)
        moves, scale = self.moves(quantiles), self.scale(*quantiles)
        why = (
            f"an event moves the losses of buckets by at most {moves}, some up and others down, so the noise has "
            f"scale {text(scale)}"
        )
        drawn = Condition("noise", scale * self.choice_epsilon >= 2 * moves, why)
        alone = f"the bucket of the quantile {quantiles[0]}"
        all_of = f"the buckets of the quantiles {', '.join(map(str, quantiles))}, chosen together"
        return leaf(alone if len(quantiles) == 1 else all_of, claim, SOURCE, (drawn,))

    def public(self, updates: int, state: TumblingQuantilesState) -> None:
        """Return None: the choices of every window have the same noise."""

    def band(self, public: None, confidence: float) -> int:
        """Return the rank error, in events, that all quantiles of a window stay within with probability `confidence`.

        It is the distance of the requested rank from the ranks of the reported bucket. It holds for all data: some
        candidate has loss 0, and one whose loss is at least L beats it with probability at most a^L / (1 + a), a =
        exp(-1 / scale).
        """
        high = 1
        while self._missed(high) > 1 - confidence:
            high *= 2
        return bisect_left(range(high), True, key=lambda n: self._missed(n) <= 1 - confidence)

    def view_public(self, place: int, updates: int, state: TumblingQuantilesState) -> None:
        """Return None, as `public` does."""

    def view_band(self, place: int, public: None, confidence: float) -> int:
        return self.band(public, confidence)

    def _missed(self, events: int) -> float:
        """Return a bound on P[the rank of some quantile is off by more than `events` events]."""
        return sum(self._choice_missed(choice, events) for choice in self.choices)

    def _choice_missed(self, quantiles: tuple[Fraction, ...], events: int) -> float:
        moves, rate = self.moves(quantiles), float(1 / self.scale(*quantiles))
        loss = min(moves // self.sensitivity(q) * (q.denominator * events + 1) for q in quantiles)
        others = tuples_of(self.buckets, len(quantiles)) - 1
        return others * math.exp(-loss * rate) / (1 + math.exp(-rate))

    def opening(self) -> tuple[int, int]:
        """Return event counts that put the requested rank between the first two buckets; others are unlikely."""
        p, s = min(self.at, key=lambda quantile: quantile.denominator).as_integer_ratio()
        times = max(1, -(-self.band(None, 0.95) // (s - p)))
        return p * times, (s - p) * times

    def init(self, noise: Noise) -> TumblingQuantilesState:
        counts = np.zeros((len(self.windows), self.buckets), dtype=np.int64)
        told = np.full((len(self.windows), len(self.at)), UNTOLD, dtype=np.int64)
        return TumblingQuantilesState(0, counts, told)

    def step(
        self, state: TumblingQuantilesState, message: Message, noise: Noise
    ) -> Step[TumblingQuantilesState]:
        if isinstance(message, Query):
            return state, state.told.flatten()
        updates = state.updates + 1
        counts = state.counts + checked(message.row, self.width)[: self.buckets]
        told = state.told.copy()
        for place, length in enumerate(self.windows):
            if updates % length == 0:
                told[place] = np.sort(self._chosen(counts[place], noise))
                counts[place] = 0
        return TumblingQuantilesState(updates, counts, told), None

    def _chosen(self, counts: IntArray, noise: Noise) -> list[int]:
        """Return the chosen bucket of each quantile."""
        chosen = []
        for quantiles in self.choices:
            tuples, moves = _tuples(self.buckets, len(quantiles)), self.moves(quantiles)
            losses = [self._losses(counts, q, moves // self.sensitivity(q)) for q in quantiles]
            drawn = noise.geometric(self.scale(*quantiles), len(tuples))
            chosen += tuples[int(np.argmax(drawn - self._largest(losses, tuples)))].tolist()
        return chosen

    def _losses(self, counts: IntArray, quantile: Fraction, times: int) -> IntArray:
        """Return `times` each bucket's loss, computed in Python integers because losses may exceed 64 bits."""
        through = np.cumsum(counts.astype(object))
        before, total = through - counts, through[-1]
        p, s = quantile.as_integer_ratio()
        loss = np.maximum(np.maximum(s * before - p * total, p * total - s * through), 0)
        return np.asarray(np.minimum(times * loss, _FARTHEST), dtype=np.int64)

    def _largest(self, losses: Sequence[IntArray], tuples: Tuples) -> IntArray:
        """Return the loss of each tuple."""
        largest = losses[0][tuples[:, 0]]
        for place, loss in enumerate(losses[1:], start=1):
            np.maximum(largest, loss[tuples[:, place]], out=largest)
        return largest
