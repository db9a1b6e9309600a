"""The Laplace mechanism on a quantity of the rows since the last answer: [HSV] Alg. 4 uses it to check a crossing.

Rules: rows are forgotten once they were in an answer, so each row is in one answer. `offset` is a public, released
value.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream_dp.accounting.rules.leaf import leaf
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.quantities import Quantity
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import CountRows

SOURCE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"


@wire("noisy-quantity-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class NoisyQuantityState:
    """`count`: exact sums since the last answer, private."""

    count: IntArray


@wire("noisy-quantity", 1)
@dataclass(frozen=True, slots=True)
class NoisyQuantity(CountRows):
    """q(offset + sum of rows) plus discrete Laplace noise of scale D / epsilon; answers of shape (1,).

    Privacy claim: `epsilon`-DP under `neighbors`, adaptively, for events of at most `ones` ones: an event is in one
    answer, and changes q by at most D there.

    Raises:
        UsageError: the quantity does not fit such rows or events.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    offset: tuple[int, ...]
    quantity: Quantity
    ones: int = 1

    def __post_init__(self) -> None:
        self.quantity.checked(self.neighbors, self.width, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def scale(self) -> Fraction:
        """Scale of the noise."""
        return self.quantity.sensitivity(self.neighbors, self.width, self.ones) / self.epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee from the noise on one answer.

        Raises:
            NotDerivable: the scale is too small.
        """
        most = self.quantity.sensitivity(self.neighbors, self.width, self.ones)
        known = Condition("quantity", True, f"{self.quantity.words}: {self.quantity.why}")
        why = f"an event changes it by at most {most}, in one answer: scale {most}/e"
        drawn = Condition("noise", self.scale * self.epsilon >= most, why)
        return leaf("one noisy check", self.guarantee, SOURCE, (known, drawn))

    def init(self, noise: Noise) -> NoisyQuantityState:
        """Return the first state: nothing counted."""
        return NoisyQuantityState(np.zeros(self.width, dtype=np.int64))

    def step(
        self, state: NoisyQuantityState, message: Message, noise: Noise
    ) -> tuple[NoisyQuantityState, IntArray | None]:
        """Add a row, or answer and forget the rows.

        Raises:
            RejectedMessage: a bad row.
        """
        if not isinstance(message, Query):
            return NoisyQuantityState(state.count + checked(message.row, self.width)), None
        value = self.quantity.of(state.count + np.array(self.offset, dtype=np.int64))
        answer = np.array([value], dtype=np.int64) + noise.laplace(self.scale, 1)
        return self.init(noise), answer
