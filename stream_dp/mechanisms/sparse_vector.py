"""The sparse vector technique over a running histogram ([HSV] Alg. 3, one-sided geometric noise).

An instance adds up the rows since its creation and answers, at each query, whether a statistic of
offset + sum lies above a public threshold; with the first "above" it halts. Rules: the noisy threshold is drawn
once, the query noise afresh for each query, and neither ever leaves. `offset` is a public, released value and is
copied, never aliased. This file knows no keys, alerts or intervals.
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
from stream_dp.mechanisms.row_check import checked

SOURCE = "[HSV] Lemma 7.4 with one-sided geometric noise (arXiv 2407.20068)"


@wire("sparse-vector-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SparseVectorState:
    """`count`: exact sums since creation, private. `lift`: noise on the threshold. `halted`: it has answered 1."""

    count: IntArray
    lift: int
    halted: bool


@wire("sparse-vector", 1)
@dataclass(frozen=True, slots=True)
class SparseVector:
    """Is max(offset + sum of rows) > threshold?

    Answers of shape (1,): 1 above (and halt), 0 not above. The largest column is monotone and changes by at
    most 1 with one event, in one direction under add_remove and in either under replace, so the query noise has
    scale s / query_epsilon with s = 1 or 2.

    Privacy claim: (threshold_epsilon + query_epsilon)-DP for one-hot event streams under `neighbors`,
    adaptively ([HSV] Lemma 7.4; one-sided noise: Liu et al., arXiv 2407.20068).
    """

    width: int
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    neighbors: Neighbors
    offset: tuple[int, ...]

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the two shares."""
        return Guarantee(PureDP(self.threshold_epsilon + self.query_epsilon), self.neighbors)

    @property
    def lift_scale(self) -> Fraction:
        """Scale of the geometric noise on the threshold."""
        return 1 / self.threshold_epsilon

    @property
    def query_scale(self) -> Fraction:
        """Scale of the geometric noise on each query."""
        return (1 if self.neighbors.monotone(self.width) else 2) / self.query_epsilon

    def derivation(self) -> Derivation:
        """Derive the guarantee: the noise on the threshold and on each query has its scale.

        Raises:
            NotDerivable: a scale is too small.
        """
        monotone = self.neighbors.monotone(self.width)
        need, why = (
            (1, "all changes have one sign: scale 1/e2")
            if monotone
            else (2, "changes may have either sign: scale 2/e2")
        )
        drawn = self.query_scale * self.query_epsilon
        lifted = self.lift_scale * self.threshold_epsilon
        scale = Condition("query noise", drawn >= need, why)
        lift = Condition("threshold noise", lifted >= 1, "scale 1/e1")
        return leaf("one sparse vector instance", self.guarantee, SOURCE, (scale, lift))

    def init(self, noise: Noise) -> SparseVectorState:
        """Return the first state: nothing counted; the noisy threshold drawn."""
        lift = int(noise.geometric(self.lift_scale, 1)[0])
        return SparseVectorState(np.zeros(self.width, dtype=np.int64), lift, halted=False)

    def step(
        self, state: SparseVectorState, message: Message, noise: Noise
    ) -> tuple[SparseVectorState, IntArray | None]:
        """Add a row, or compare.

        Raises:
            RejectedMessage: the instance has halted, a bad row, or a query without a threshold.
        """
        if state.halted:
            raise RejectedMessage("this sparse vector instance has halted; create a new one")
        if not isinstance(message, Query):
            return replace(state, count=state.count + checked(message.row, self.width)), None
        if message.threshold is None:
            raise RejectedMessage("a sparse vector query needs a public threshold")
        statistic = int((state.count + np.array(self.offset, dtype=np.int64)).max())
        lifted = statistic + int(noise.geometric(self.query_scale, 1)[0])
        above = lifted > message.threshold + state.lift
        return replace(state, halted=above), np.array([int(above)], dtype=np.int64)
