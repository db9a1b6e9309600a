"""The sparse vector technique over a running histogram ([HSV] Alg. 3, one-sided geometric noise).

An instance adds up the rows since its creation and answers, at each query, whether a quantity q of offset + sum lies
above a public threshold; with the first "above" it halts. Rules: both scales follow from q's properties under the
relation; the noisy threshold is drawn once, the query noise afresh for each query, and neither is ever released.
`offset` is a released value and is copied. This file knows no keys, alerts or intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.hss.quantities import MAXIMUM, Quantity
from stream_dp.mechanisms.serving import CountRows

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
