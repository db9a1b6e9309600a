"""Multi-dimensional sparse vector: many counts, each compared until it first lies below a public threshold.

A coordinate is a fixed set of columns and has one sparse vector instance. A query names a threshold and, if it is a
`SubsetQuery`, the columns that count; each armed coordinate answers whether its count over these columns lies below
the threshold, and halts with its first 1. Rules: the columns of a coordinate are fixed for ever, so the sensitivity
D = sum over coordinates of max over queries |change| can be computed from the shape. If each query assigned the
columns anew, the max over queries of the sum would stay 1 while the loss grew with the number of coordinates. This
mechanism is for programs; pipelines use a `monitor`. This file knows no graph and no protocol.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.mechanisms.checks import checked
from stream_dp.mechanisms.serving import CountRows


@dataclass(frozen=True, slots=True)
class SubsetQuery(Query):
    """A query that counts only these columns, which are a public choice; None means all columns."""

    columns: tuple[int, ...] | None = None


@wire("multi-sparse-vector-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class MultiSparseVectorState:
    """`count`: exact sums, (width,), private. `lift`: noise on the thresholds, `halted`: 0 or 1; (coordinates,)."""

    count: IntArray
    lift: IntArray
    halted: IntArray


@wire("multi-sparse-vector", 1)
@dataclass(frozen=True)
class MultiSparseVector(CountRows):
    """Is the sum of rows over views[j] and the query's columns < threshold, for each armed coordinate j?

    Answers of shape (coordinates,): 1 below (and the coordinate halts), 0 not below or halted before.

    Privacy claim: (threshold_epsilon + query_epsilon)-DP for one-hot event streams under `neighbors`, adaptively. Each
    coordinate is an AboveThreshold instance on minus its count ([HSV] Alg. 3, one-sided geometric noise: Liu et al.,
    arXiv 2407.20068); one event changes all its answers in one direction, so its query noise needs no factor of 2. The
    whole is their concurrent parallel composition, asked in rounds ([HSV] section 9, Cor 5.5 with k = D).
    """

    width: int
    views: tuple[tuple[int, ...], ...]
    threshold_epsilon: Fraction
    query_epsilon: Fraction
    neighbors: Neighbors

    def __post_init__(self) -> None:
        for view in self.views:
            if len(set(view)) < len(view) or not set(view) <= set(range(self.width)):
                raise UsageError(
                    f"a coordinate must name distinct columns from 0 to {self.width - 1}; got {view}"
                )
        if not self.views:
            raise UsageError("a multi-sparse-vector needs at least one coordinate")

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.threshold_epsilon + self.query_epsilon), self.neighbors)

    @cached_property
    def sensitivity(self) -> int:
        """D: the number of coordinates that look at one column; twice that where an event may change two columns."""
        most = int(self._incidence.sum(axis=0).max(initial=0))
        return max(1, most * self.neighbors.l0(self.width))

    @property
    def lift_scale(self) -> Fraction:
        return self.sensitivity / self.threshold_epsilon

    @property
    def query_scale(self) -> Fraction:
        return self.sensitivity / self.query_epsilon

    @cached_property
    def _incidence(self) -> IntArray:
        """1 where a coordinate looks at a column, shape (coordinates, width)."""
        table = np.zeros((len(self.views), self.width), dtype=np.int64)
        for place, view in enumerate(self.views):
            table[place, list(view)] = 1
        return table

    def init(self, noise: Noise) -> MultiSparseVectorState:
        lift = noise.geometric(self.lift_scale, len(self.views))
        count = np.zeros(self.width, dtype=np.int64)
        return MultiSparseVectorState(count, lift, np.zeros_like(lift))

    def step(
        self, state: MultiSparseVectorState, message: Message, noise: Noise
    ) -> Step[MultiSparseVectorState]:
        """Add a row, or compare the count of every armed coordinate."""
        if not isinstance(message, Query):
            count = state.count + checked(message.row, self.width)
            return MultiSparseVectorState(count, state.lift, state.halted), None
        counts = self._counts(state.count, message)
        if message.threshold is None:
            raise RejectedMessage("a sparse vector query needs a public threshold")
        armed = state.halted == 0
        if not armed.any():
            raise RejectedMessage(
                "every coordinate of this sparse vector has halted; create a new one"
            )
        lowered = message.threshold - state.lift[armed]
        lowered += noise.geometric(self.query_scale, int(armed.sum()))
        below = np.zeros_like(state.halted)
        below[armed] = counts[armed] < lowered
        return MultiSparseVectorState(state.count, state.lift, state.halted + below), below

    def _counts(self, count: IntArray, query: Query) -> IntArray:
        columns = query.columns if isinstance(query, SubsetQuery) else None
        if columns is None:
            return self._incidence @ count
        if not set(columns) <= set(range(self.width)):
            raise RejectedMessage(f"the columns of a query must lie from 0 to {self.width - 1}")
        chosen = np.zeros(self.width, dtype=np.int64)
        chosen[list(columns)] = 1
        return self._incidence @ (count * chosen)
