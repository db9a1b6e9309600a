"""Count sparse vectors, one per column and re-armed for ever, against public levels that come with each query.

The block of `alerts` with a threshold that may differ between columns and change from query to query. Rules: the
instance that crosses takes its whole tick with it, and the next one starts from zero with the next tick and a noisy
threshold drawn anew; levels are public and never looked up by a private value. This file knows no counter and no gamma.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hss.sparse_vector import SOURCE
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import CountRows

REARMED = "tests/statistical/test_privacy_per_bin.py"  # exact, with the ways to do it wrong


@dataclass(frozen=True, slots=True, eq=False)
class LevelsQuery(Query):
    """Compare every column with a level of its own; `levels` has shape (width,) and is public."""

    levels: IntArray = field(kw_only=True)

    def __eq__(self, other: object) -> bool:
        """Say whether the other one has the same levels; what is inherited would look at the threshold alone."""
        return isinstance(other, LevelsQuery) and np.array_equal(self.levels, other.levels)

    def __hash__(self) -> int:
        """Hash by the levels."""
        return hash(self.levels.tobytes())


@wire("count-watchers-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WatchersState:
    """Per column: exact events since its last crossing and the noise on its threshold; both private, shape (width,)."""

    count: IntArray
    lift: IntArray


@wire("count-watchers", 1)
@dataclass(frozen=True)
class CountWatchers(CountRows):
    """Answers of shape (width,): 1 where a column's count since its last crossing reached its level, else 0.

    `ones`: the most entries of a row that one event sets.

    Privacy claim: `epsilon`-DP under `neighbors`, for ever, adaptively, whatever public levels are asked for. One event
    shifts the count of one instance by the same amount from its tick to the halt; that is paid once, by the noisy
    threshold (one direction) or by the query noise of the crossing (the other): cost max(e1, e2) per column, so both
    noises have the whole share of a column. An event reaches L0 columns, and one live instance of each ([HSV] Cor 5.5).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int = 1

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of both geometric noises."""
        return self.neighbors.l0(self.width, self.ones) / self.epsilon

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one instance of one column, then all columns in parallel, re-armed for ever.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        touched = Touched.columns(self.neighbors, self.width, ones=self.ones)
        epsilon = self.epsilon / touched.k
        shift = Condition(
            "constant shift",
            self.scale * epsilon >= 1,
            "one event shifts one column's count by the same amount until its halt: cost max(e1, e2), both at scale "
            f"{text(self.scale)}",
        )
        each = Guarantee(PureDP(epsilon), self.neighbors)
        one = leaf("one count sparse vector of one column", each, SOURCE, (shift,))
        why = f"an event reaches one live instance per column; {touched.why}; checked by {REARMED}"
        many = f"count sparse vectors of {self.width} column(s), re-armed for ever"
        return derive((one,), Parallel(many, replace(touched, why=why)))

    def init(self, noise: Noise) -> WatchersState:
        """Return the first state: nothing counted; all instances armed."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return WatchersState(zeros, noise.geometric(self.scale, self.width))

    def step(
        self, state: WatchersState, message: Message, noise: Noise
    ) -> tuple[WatchersState, IntArray | None]:
        """Add a row, or compare every column with its level and re-arm those that crossed.

        Raises:
            RejectedMessage: a bad row, or a query without a level for every column.
        """
        if not isinstance(message, Query):
            return WatchersState(state.count + checked(message.row, self.width), state.lift), None
        if not isinstance(message, LevelsQuery) or message.levels.shape != (self.width,):
            raise RejectedMessage(f"this query needs {self.width} public levels, one per column")
        lifted = state.count + noise.geometric(self.scale, self.width)
        crossed = lifted >= message.levels + state.lift
        number = int(crossed.sum())
        if not number:
            return state, np.zeros(self.width, dtype=np.int64)
        lift = state.lift.copy()
        lift[crossed] = noise.geometric(self.scale, number)
        return WatchersState(np.where(crossed, 0, state.count), lift), crossed.astype(np.int64)
