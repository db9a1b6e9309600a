"""Alerts per key, re-armed for ever: "this key has had N events since its last alert".

One sparse vector instance per key over that key's count, all in one block of arrays. Re-arming is at tick
granularity: the instance that crosses takes its whole tick with it, and the next one starts from zero with the next
tick; no overshoot is carried over and no event reaches two instances. This file knows no ticks and no names.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.row_check import checked


@dataclass(frozen=True, slots=True, repr=False)
class AlertsState:
    """Per key: exact events since the last alert (private) and the noise on the threshold, shape (width,)."""

    count: IntArray
    lift: IntArray


@dataclass(frozen=True, slots=True)
class Alerts:
    """Answers of shape (width,): 1 where the key's count since its last alert reached `threshold`, else 0.

    Privacy claim: `epsilon`-DP for one-hot event streams under `neighbors`, for ever, adaptively. One more event
    shifts the count of one instance by the same +1 from its tick to the halt; that is paid once, by the noisy
    threshold (one direction) or by the query noise of the crossing (the other): cost max(e1, e2), so both are
    epsilon. Under `replace` two keys move in opposite directions: e1 + e2. An event touches one live instance
    per key: [HSV] Cor 5.5, k = 1 per key.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    threshold: int

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def scale(self) -> Fraction:
        """Scale of both geometric noises."""
        return self.neighbors.l0(self.width) / self.epsilon

    def init(self, noise: Noise) -> AlertsState:
        """Nothing counted; all instances armed."""
        return AlertsState(
            np.zeros(self.width, dtype=np.int64), noise.geometric(self.scale, self.width)
        )

    def step(
        self, state: AlertsState, message: Message, noise: Noise
    ) -> tuple[AlertsState, IntArray | None]:
        """Add a row, or compare every key and re-arm those that crossed.

        Raises:
            RejectedMessage: a bad row.
        """
        if not isinstance(message, Query):
            return AlertsState(state.count + checked(message.row, self.width), state.lift), None
        lifted = state.count + noise.geometric(self.scale, self.width)
        crossed = lifted >= self.threshold + state.lift
        lift = state.lift.copy()
        lift[crossed] = noise.geometric(self.scale, int(crossed.sum()))
        return AlertsState(np.where(crossed, 0, state.count), lift), crossed.astype(np.int64)
