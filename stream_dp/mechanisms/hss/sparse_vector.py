"""The sparse vector technique over a running histogram ([HSV] Alg. 3, one-sided geometric noise).

An instance adds up the rows since its creation and answers, at each query, whether a quantity q of offset + sum lies
above a public threshold; with the first "above" it halts. Rules: both scales follow from q's properties under the
relation; the noisy threshold is drawn once, the query noise afresh for each query, and neither is ever released.
`offset` is a released value and is copied.

Monotone quantities q of the columns' sums ([HSV] Def 7.2), which a sparse vector watches and an HSS releases.

Rules: a quantity is a frozen value. It states what one event can change (`sensitivity`, `one_signed`) and how an error
of the columns changes its value (`error`); scales and thresholds follow from these. The family is closed, and every
property is proven here. An event sets at most `ones` entries of its row, each to 1.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import CountRows

LEAD = 1 << 30  # events; no noise makes up for so many


@dataclass(frozen=True, slots=True)
class ErrorLaw:
    """How far q of noisy sums is from q of exact sums: at most `factor` times the sum of `added` columns' noises.

    An error upwards is bounded by the largest of `high` such sums, an error downwards by the largest of `low` sums,
    which the data alone determine.
    """

    added: int
    high: int
    low: int
    factor: int = 1

    def terms(self, columns: Sequence[Term]) -> tuple[Term, ...]:
        """Return the noises of q's error from the noises of one column."""
        return tuple(
            Term(scale, number * self.added, weight * self.factor)
            for scale, number, weight in columns
        )

    @property
    def rest(self) -> int:
        """The additional error where each column is rounded, by up to a half, instead of the sum."""
        return self.factor * self.added // 2


class Quantity(ABC):
    """A function of the sums, shape (width,), that does not fall when an entry grows; an integer >= 0."""

    why: ClassVar[str] = "monotone; proven in mechanisms/hss/sparse_vector.py"

    @abstractmethod
    def of(self, sums: IntArray) -> int:
        """Return the value; `sums` is not changed."""

    @abstractmethod
    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the most by which one event can change the value ([HSV] Def 7.3 requires 1)."""

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Whether an event changes the value in one direction at all times; then query noise is halved."""
        return relation.monotone(width)

    @abstractmethod
    def error(self, width: int) -> ErrorLaw | None:
        """Return the law of the value's error under noise; None where the error may span the value's range."""

    def spread(self, sums: IntArray, half: int) -> int:
        """Return a bound on the value's error at `sums`; `half` bounds it by `error`, or else each column's error."""
        return half

    def opening(self, gamma: int) -> tuple[int, int]:
        """Return how many other events an audit puts into columns 0 and 1 so that its one event is most visible: as
        many as make it decide a crossing, or a lead beyond all noise where other columns would hide it.
        """
        return gamma, 0

    def lipschitz(self, width: int) -> int:
        """Return L such that the value changes by at most L times the largest change of an entry."""
        law = self.error(width)
        return width if law is None else law.factor * law.added

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Quantity":
        """Return this quantity (UsageError: it does not fit rows of this width and events of up to `ones` ones)."""
        return self

    @property
    @abstractmethod
    def words(self) -> str:
        """The quantity in a few words."""


@wire("quantity-maximum", 1)
@dataclass(frozen=True, slots=True)
class Maximum(Quantity):
    """The largest column. An event moves each column by at most 1, so the largest by at most 1."""

    words = "the largest column"

    def of(self, sums: IntArray) -> int:
        return int(sums.max())

    def holder(self, sums: IntArray) -> int | None:
        """Return the index of the largest entry, the first of equal ones; None where no entry is above 0."""
        place = int(sums.argmax())
        return place if sums[place] > 0 else None

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Return the law: too high by the noise of some column, too low by the noise of the truly largest one."""
        return ErrorLaw(added=1, high=width, low=1)

    def opening(self, gamma: int) -> tuple[int, int]:
        return LEAD, 0


@wire("quantity-largest", 1)
@dataclass(frozen=True, slots=True)
class Largest(Quantity):
    """The rank-th largest column, ties counted: where all entries move by at most 1, so does every order statistic."""

    rank: int

    def of(self, sums: IntArray) -> int:
        place = len(sums) - self.rank
        return int(np.partition(sums, place)[place])

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return 1

    def error(self, width: int) -> ErrorLaw:
        """Return the law: too high by the noise of some column, too low by that of one of the `rank` truly largest."""
        return ErrorLaw(added=1, high=width, low=self.rank)

    def opening(self, gamma: int) -> tuple[int, int]:
        return LEAD, LEAD * min(1, self.rank - 1)

    def checked(self, relation: Neighbors, width: int, ones: int) -> "Largest":
        """Return this quantity (UsageError: there are fewer columns than its rank)."""
        if not 1 <= self.rank <= width:
            raise UsageError(f"rank: must lie from 1 to the number of columns, {width}")
        return self

    @property
    def words(self) -> str:
        return f"the column of rank {self.rank}"


@wire("quantity-sum", 1)
@dataclass(frozen=True, slots=True)
class Sum(Quantity):
    """The sum of all columns: how many entries have been set.

    Its Lipschitz constant is the width. An event changes it by up to `ones`, by the same amount at all times, so in
    one direction under either relation.
    """

    words = "the sum of the columns"

    def of(self, sums: IntArray) -> int:
        """Return the sum, exact beyond 64 bits too."""
        return sum(sums.tolist())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        return min(width, ones)

    def one_signed(self, relation: Neighbors, width: int) -> bool:
        """Return True: (ones of the new content) - (ones of the old) is one number."""
        return True

    def error(self, width: int) -> ErrorLaw:
        return ErrorLaw(added=width, high=1, low=1)


@wire("quantity-columns-above", 1)
@dataclass(frozen=True, slots=True)
class ColumnsAbove(Quantity):
    """How many columns have reached `level`, which is at least 1.

    An event moves at most `ones` columns up and as many down, so it changes the number by at most `ones`. Its only
    Lipschitz constant is the width: where all columns stand one below the level, an error of 1 changes all of it.
    """

    level: int

    def of(self, sums: IntArray) -> int:
        return int((sums >= self.level).sum())

    def sensitivity(self, relation: Neighbors, width: int, ones: int) -> int:
        """Return the number of ones: columns that a replacement moves up and columns that it moves down cancel."""
        return min(width, ones)

    def error(self, width: int) -> None:
        """Return None: one error of 1 may move all columns across the level."""

    def checked(self, relation: Neighbors, width: int, ones: int) -> "ColumnsAbove":
        """Return this quantity (UsageError: every column would be above the level before the first event)."""
        if self.level < 1:
            raise UsageError(f"level: must be at least 1, got {self.level}")
        return self

    def spread(self, sums: IntArray, half: int) -> int:
        """Return how many columns lie so near the level that an error of `half` may move them across it."""
        too_low = int(((sums < self.level) & (sums >= self.level - half)).sum())
        too_high = int(((sums >= self.level) & (sums < self.level + half)).sum())
        return max(too_low, too_high)

    @property
    def words(self) -> str:
        return f"the number of columns with at least {self.level}"


MAXIMUM = Maximum()


# What the survival of thresholds does to their law, as bands of HSS use it: see `HSS.lag`.

SURVIVAL = 0.5  # share of a band's failure probability that is added for long-lived thresholds


LONGEST = 45  # scales: noise beyond has a chance below 1e-19


def interval_share(intervals: int, possible: int) -> float:
    """Return w_j = 1 / ((j + 1) (1 + ln n)); the sum over the n possible numbers j of closed intervals is at most 1."""
    return 1 / ((intervals + 1) * (1 + math.log(possible)))


def moved_up(scales: tuple[Fraction, Fraction], share: float) -> int:
    """Return the least z0 such that z0 + geometric dominates the law with tail min(1, P(lift - query > z) / share)."""
    a, b = (math.exp(-1 / float(scale)) for scale in scales)
    return max(0, math.ceil(float(scales[0]) * math.log((1 - b) / (1 - a * b) / share)))


def unseen(scale: Fraction, gamma: int, queries: Sequence[tuple[int, int]]) -> int:
    """Return the least z0 such that z0 + geometric dominates what has grown unseen, for all data chosen beforehand.

    `gamma` is the largest threshold that the instance alive now may have, whichever it is; `queries`: (number, how far
    the threshold was below gamma then) of all queries. P(unseen > z) is at most the chance that a fresh instance sees
    a count of z + 1 and does not cross, over the chance that it outlives these queries in silence (proof: docs/hss.md,
    "What has grown unseen"). Both are sums over its threshold's noise k, a = e^(-1 / scale).
    """
    s = float(scale)
    lifts = np.arange(math.ceil(LONGEST * s))
    survives = np.exp(-lifts / s) * -math.expm1(-1 / s)
    for number, below in queries:
        crosses = np.exp(-np.maximum(0, gamma - below + lifts) / s)
        survives *= (1 - crosses) ** number
    seen_last = -math.log1p(math.exp(1 / s)) - math.log(float(survives.sum()))
    return max(0, gamma + math.ceil(s * seen_last))


# tuned by simulation: growth of 0.35 deviations of the noise of j + 1 nodes
NODES = Fraction(7, 20)
LEAST = Fraction(3, 4)  # of the scale of the query noise: smaller growth is not detected
SHORTEST = 1 << 10  # queries: the horizon that is assumed at first where none is declared


@dataclass(frozen=True, slots=True)
class SelfTuned:
    """Thresholds for a counter with node scale `node`, behind sparse vectors with noise scale `watch`, without a guess
    of the volume.

    An update adds the noise of one more node to the counter and removes the error of the growth not yet released. After
    j updates the noise is about sqrt(j) nodes, so growth of about that size is worth the next update. The noise of a
    Gaussian counter (`steady`) grows with the logarithm of j, so the same growth is worth every update. A term for the
    query noise keeps false crossings rare: about one for each interval that has closed, over the whole horizon.

    `spread` is the inverse of the mean squared growth over all columns while one column grows by 1.
    """

    node: Fraction
    watch: Fraction
    horizon: int | None
    spread: int = 1
    steady: bool = False

    def growth(self, intervals: int) -> int:
        """Return the growth that is worth another update after `intervals` updates; exact, rounded up."""
        nodes = 1 if self.steady else intervals + 1
        square = (NODES * self.node) ** 2 * self.spread * nodes
        return max(ceil_root(square), math.ceil(LEAST * self.watch))

    def gamma(self, query: int, intervals: int) -> int:
        """Return the threshold at the query-th query after `intervals` closed intervals, never negative.

        Without a horizon, the least power of two above `query` stands for it.
        """
        horizon = self.horizon or max(SHORTEST, 1 << query.bit_length())
        rare = max(0.0, math.log(horizon / (intervals + 1)))
        return max(0, self.growth(intervals) + math.ceil(float(self.watch) * (rare - 1)))


def ceil_root(square: Fraction) -> int:
    """Return the least integer whose square is at least `square` >= 0; exact."""
    least = math.ceil(square)
    return math.isqrt(least - 1) + 1 if least else 0


SOURCE = "[HSV] Lemma 7.4 with one-sided geometric noise (arXiv 2407.20068)"


@wire("sparse-vector-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SparseVectorState:
    """`count`: exact sums since creation; `lift`: noise on the threshold; both private. `halted`: it has answered 1."""

    count: IntArray
    lift: int
    halted: bool


@wire("sparse-vector", 1)
@dataclass(frozen=True, slots=True)
class SparseVector(CountRows):
    """Is q(offset + sum of rows) > threshold?

    Answers of shape (1,): 1 above (and halt), 0 not above. One event changes q by at most D (its sensitivity), in
    one direction (s = 1) or in either (s = 2): the noise on the threshold has scale D / threshold_epsilon, that on
    each query s D / query_epsilon. `ones`: the most entries of a row that one event sets.

    Privacy claim: (threshold_epsilon + query_epsilon)-DP for such event streams under `neighbors`, adaptively
    ([HSV] Lemma 7.4; one-sided noise: Liu et al., arXiv 2407.20068).
    """

    width: int
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    neighbors: Neighbors
    offset: tuple[int, ...]
    quantity: Quantity = MAXIMUM
    ones: int = 1

    def __post_init__(self) -> None:
        self.quantity.checked(self.neighbors, self.width, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.threshold_epsilon + self.query_epsilon), self.neighbors)

    @property
    def sensitivity(self) -> int:
        return self.quantity.sensitivity(self.neighbors, self.width, self.ones)

    @property
    def _source(self) -> str:
        return SOURCE

    @property
    def _signs(self) -> int:
        """s: 1 where the quantity changes in one direction, else 2."""
        return 1 if self.quantity.one_signed(self.neighbors, self.width) else 2

    @property
    def lift_scale(self) -> Fraction:
        return self.sensitivity / self.threshold_epsilon

    @property
    def query_scale(self) -> Fraction:
        return self._signs * self.sensitivity / self.query_epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        most, signs = self.sensitivity, self._signs
        sign = (
            "all its changes have the same sign"
            if signs == 1
            else "its changes may have either sign"
        )
        why = f"an event changes it by at most {most}; {sign}: scale {signs * most}/e2"
        drawn = self.query_scale * self.query_epsilon >= signs * most
        lifted = self.lift_scale * self.threshold_epsilon >= most
        conditions = (
            Condition("quantity", True, f"{self.quantity.words}: {self.quantity.why}"),
            Condition("query noise", drawn, why),
            Condition("threshold noise", lifted, f"scale {most}/e1"),
        )
        return leaf("one sparse vector instance", self.guarantee, self._source, conditions)

    def init(self, noise: Noise) -> SparseVectorState:
        lift = self._drawn(noise, self.lift_scale)
        return SparseVectorState(np.zeros(self.width, dtype=np.int64), lift, halted=False)

    def step(
        self, state: SparseVectorState, message: Message, noise: Noise
    ) -> Step[SparseVectorState]:
        """Add a row, or answer whether q is above the query's threshold."""
        if state.halted:
            raise RejectedMessage("this sparse vector has halted; create a new one")
        if not isinstance(message, Query):
            return replace(state, count=state.count + checked(message.row, self.width)), None
        if message.threshold is None:
            raise RejectedMessage("a sparse vector query needs a public threshold")
        value = self.quantity.of(state.count + np.array(self.offset, dtype=np.int64))
        lifted = value + self._drawn(noise, self.query_scale)
        above = lifted > message.threshold + state.lift
        return replace(state, halted=above), np.array([int(above)], dtype=np.int64)

    def _drawn(self, noise: Noise, scale: Fraction) -> int:
        return int(noise.geometric(scale, 1)[0])
