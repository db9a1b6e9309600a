"""The sparse vector technique over a running histogram ([HSV] Alg. 3, one-sided geometric noise).

An instance adds up the rows since its creation and answers, at each query, whether a quantity q of offset + sum
lies above a public threshold; with the first "above" it halts. Rules: both scales follow from q's properties under
the relation; the noisy threshold is drawn once, the query noise afresh for each query, and neither is ever
released. `offset` is a public, released value and is copied, never aliased. This file knows no keys, alerts or
intervals.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.accounting.rules.leaf import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.quantities import MAXIMUM, Quantity
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import CountRows

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

    Raises:
        UsageError: q does not fit such rows or events.
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
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.threshold_epsilon + self.query_epsilon), self.neighbors)

    @property
    def sensitivity(self) -> int:
        """D: the most by which one event changes the quantity."""
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
        """Scale of the geometric noise on the threshold."""
        return self.sensitivity / self.threshold_epsilon

    @property
    def query_scale(self) -> Fraction:
        """Scale of the geometric noise on each query."""
        return self._signs * self.sensitivity / self.query_epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: the noise on the threshold and on each query has its scale.

        Raises:
            NotDerivable: a scale is too small.
        """
        most, signs = self.sensitivity, self._signs
        changes = (
            "all its changes have one sign" if signs == 1 else "its changes may have either sign"
        )
        known = Condition("quantity", True, f"{self.quantity.words}: {self.quantity.why}")
        drawn = self.query_scale * self.query_epsilon
        scale = Condition(
            "query noise",
            drawn >= signs * most,
            f"an event changes it by at most {most}; {changes}: scale {signs * most}/e2",
        )
        lifted = self.lift_scale * self.threshold_epsilon
        lift = Condition("threshold noise", lifted >= most, f"scale {most}/e1")
        return leaf(
            "one sparse vector instance", self.guarantee, self._source, (known, scale, lift)
        )

    def init(self, noise: Noise) -> SparseVectorState:
        """Return the first state: nothing counted, the noisy threshold drawn."""
        lift = self._drawn(noise, self.lift_scale)
        return SparseVectorState(np.zeros(self.width, dtype=np.int64), lift, halted=False)

    def step(
        self, state: SparseVectorState, message: Message, noise: Noise
    ) -> tuple[SparseVectorState, IntArray | None]:
        """Add a row, or answer whether q is above the query's threshold.

        Raises:
            RejectedMessage: the instance has halted, a bad row, or a query without a threshold.
        """
        if state.halted:
            raise RejectedMessage("this sparse vector instance has halted; create a new one")
        if not isinstance(message, Query):
            return replace(state, count=state.count + checked(message.row, self.width)), None
        if message.threshold is None:
            raise RejectedMessage("a sparse vector query needs a public threshold")
        value = self.quantity.of(state.count + np.array(self.offset, dtype=np.int64))
        lifted = value + self._drawn(noise, self.query_scale)
        above = lifted > message.threshold + state.lift
        return replace(state, halted=above), np.array([int(above)], dtype=np.int64)

    def _drawn(self, noise: Noise, scale: Fraction) -> int:
        """Return one geometric draw at this scale."""
        return int(noise.geometric(scale, 1)[0])
