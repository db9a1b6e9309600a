"""HSS bin by bin, broken in one known way each: the exact attack of test_privacy_per_bin.py must catch them."""

from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import HandOverSchedule
from stream_dp.mechanisms.linear.separate_counters import CloseQuery, SeparateCounters
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, TreeNoise, TreeShape, TreeState

ASK = Query()


def close(*columns: int) -> CloseQuery:
    """The query that closes the updates of these columns."""
    return CloseQuery(columns=np.array(columns, dtype=np.int64))


class OneNode(TreeNoise):
    """A tree of one update, of which nothing but the one node in use is drawn."""

    def init(self, noise: Noise) -> TreeState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return TreeState(0, (zeros,), (), zeros, zeros)

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return TreeState(1, (noise.laplace(self.scale, self.width),), (), zeros, zeros)

    def fine(self, state: TreeState) -> IntArray:
        node: IntArray = state.windows[0] << FRACTION_BITS
        return node


class FreshNodes(SeparateCounters):
    """Right: trees of one update each, so that a counter draws one node for an update."""

    schedule = HandOverSchedule(1, 1)

    def tree(self, number: int, width: int | None = None) -> TreeNoise:
        return OneNode(TreeShape(2, 1), 1 / self.unit_epsilon, width or self.width)


class Small(PerBinHSS):
    """Right: a counter with one node an update."""

    @cached_property
    def counters(self) -> SeparateCounters:
        return FreshNodes(self.width, self.counter_epsilon, self.neighbors, self.ones)

    def gamma(self, query: int, intervals: int) -> int:
        """Small, and another one for each interval."""
        return 2 + intervals % 2


class L0FreeCounters(FreshNodes):
    """Every column's counter at the whole epsilon."""

    @property
    def unit_epsilon(self) -> Fraction:
        return self.epsilon
