"""The product's HSS made small: on a counter with one fresh node per update, with a constant threshold."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS


@dataclass(frozen=True, slots=True)
class NodeState:
    total: IntArray
    noise: IntArray


@dataclass(frozen=True)
class OneNodeCounter:
    """A counter with one fresh node per update: the smallest that HSS can run on."""

    width: int
    epsilon: Fraction
    neighbors: Neighbors

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    def init(self, noise: Noise) -> NodeState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return NodeState(zeros, zeros)

    def step(
        self, state: NodeState, message: Message, noise: Noise
    ) -> tuple[NodeState, IntArray | None]:
        """Add a row and a node, or answer."""
        if isinstance(message, Query):
            return state, state.total + state.noise
        node = noise.laplace(self.neighbors.l0(self.width) / self.epsilon, self.width)
        return NodeState(state.total + message.row, state.noise + node), None


class RealSmallHSS(HSS):
    """The product's HSS on that counter, with a constant threshold."""

    @property
    def counter(self) -> Any:
        return OneNodeCounter(self.width, self.counter_epsilon, self.neighbors)

    def gamma(self, query: int, intervals: int) -> int:
        return 1
