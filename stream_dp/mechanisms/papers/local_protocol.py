"""Local protocols: users who each hold a part of the data, and a server that receives only their private answers.

M_P = S_P o* ExtConComp of [HSV] section 8 as one continual mechanism. A row of event counts is split among the users:
user i gets the columns views[i]. A query lets the server play one round: it asks some users and receives their answers.
Rules: at each tick every user gets its part, even if all entries are 0, so that no destination depends on data (Claim
8.4). The server is deterministic and sees nothing but answers (Remark 8.3: its coins would be a separate mechanism).
For programs, not for pipelines: the users of a pipeline send events.

A user of the k-core example runs the multi-dimensional sparse vector: many counts, each compared until it first lies
below a public threshold. A coordinate is a fixed set of columns and has one sparse vector instance. A query names a
threshold and, if it is a `SubsetQuery`, the columns that count; each armed coordinate answers whether its count over
these columns lies below the threshold, and halts with its first 1. Rules: the columns of a coordinate are fixed for
ever, so the sensitivity D = sum over coordinates of max over queries |change| can be computed from the shape. If each
query assigned the columns anew, the max over queries of the sum would stay 1 while the loss grew with the number of
coordinates. Pipelines use a `monitor` instead.
"""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from stream_dp.core.composition import Ask, CompositionState, ConcurrentComposition, Create
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable, RejectedMessage, UsageError
from stream_dp.mechanisms.checks import checked
from stream_dp.mechanisms.serving import CountRows

S = TypeVar("S")


class Server(Protocol[S]):
    """The server's rules: its next questions, as a function of the answers so far."""

    def init(self) -> S:
        """Return the state before the first round; it consists of plain values, so it can be saved."""
        ...

    def questions(self, state: S) -> tuple[Ask, ...]:
        """Return the queries of the next round, where `index` is the user; empty once the server has halted."""
        ...

    def hear(self, state: S, answers: tuple[IntArray, ...]) -> S:
        """Return the state after the answers of the round, given in the order of the queries."""
        ...


@wire("local-protocol-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class LocalProtocolState:
    """`server` is public: a function of the answers so far. `parts` holds the states of the users, private."""

    server: Any
    parts: CompositionState


@wire("local-protocol", 1)
@dataclass(frozen=True)
class LocalProtocol:
    """`users` answer `server`; user i holds the columns views[i] of each row.

    An answer has the users' answers of one round, concatenated; shape (0,) once the server has halted. Because the
    server is deterministic, the answers so far determine its whole view ([HSV] Def 8.1) and contain nothing more.

    Privacy claim ([HSV] Thm 8.7, Cor 8.8): with users that are pure epsilon'-DP, k * epsilon'-DP for one-hot event
    streams under `neighbors`, where an event lies in the parts of at most k users (Cor 5.5), as in Remark 8.10 also
    while their data grows. For (epsilon', delta')-DP users whose data comes whole in one first message, the rule of Cor
    8.8 in the accounting has the price; with growing data no price exists (Thm 5.2).
    """

    users: tuple[Mechanism[Any], ...]
    views: tuple[tuple[int, ...], ...]
    server: Server[Any]
    composition: ConcurrentComposition = field(
        default_factory=ConcurrentComposition, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.users or len(self.users) != len(self.views):
            raise UsageError(
                f"each user must hold one part of the data: got {len(self.users)} user(s) and "
                f"{len(self.views)} part(s)"
            )
        for number, (user, view) in enumerate(zip(self.users, self.views, strict=True)):
            if len(set(view)) < len(view) or min(view, default=0) < 0 or user.width != len(view):
                raise UsageError(
                    f"user {number} needs rows of {user.width} column(s), so its part must name as many "
                    f"distinct columns; got {len(view)}"
                )
        if len({user.guarantee.neighbors for user in self.users}) > 1:
            raise UsageError("all users must have the same neighbour relation")

    @cached_property
    def width(self) -> int:
        return 1 + max((column for view in self.views for column in view), default=-1)

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.guarantee.neighbors)

    @cached_property
    def sparsity(self) -> int:
        """k: the most users one event can touch."""
        holders = Counter(column for view in self.views for column in view)
        changed = self.users[0].guarantee.neighbors.l0(self.width)
        return min(len(self.users), changed * max(holders.values(), default=0))

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at k times the largest epsilon among the users (NotDerivable: a user is not pure)."""
        measures = [user.guarantee.measure for user in self.users]
        pure = [measure.epsilon for measure in measures if isinstance(measure, PureDP)]
        if len(pure) < len(measures):
            raise NotDerivable(
                "no guarantee is known for users with delta > 0 whose data grows ([HSV] Thm 5.2). "
                "Use users with delta = 0, or [HSV] Cor 8.8, where all data comes first"
            )
        return Guarantee(PureDP(self.sparsity * max(pure)), self.users[0].guarantee.neighbors)

    def init(self, noise: Noise) -> LocalProtocolState:
        parts = self.composition.init()
        for user in self.users:
            parts, _ = self.composition.step(parts, Create(user), noise)
        return LocalProtocolState(self.server.init(), parts)

    def step(
        self, state: LocalProtocolState, message: Message, noise: Noise
    ) -> Step[LocalProtocolState]:
        """Pass every user its part of a row, or play one round (RejectedMessage: a user refuses the query)."""
        if isinstance(message, Query):
            return self._round(state, noise)
        row, parts = self._whole(message.row), state.parts
        for user, view in enumerate(self.views):
            handed = Ask(user, Update(row[list(view)]))
            parts, _ = self.composition.step(parts, handed, noise)
        return LocalProtocolState(state.server, parts), None

    def _round(
        self, state: LocalProtocolState, noise: Noise
    ) -> tuple[LocalProtocolState, IntArray]:
        parts, answers = state.parts, []
        for question in self.server.questions(state.server):
            parts, answer = self.composition.step(parts, question, noise)
            if answer is None:
                raise TypeError("a server sends only queries; the data comes from the users")
            answers.append(answer)
        if not answers:
            return state, np.zeros(0, dtype=np.int64)
        heard = self.server.hear(state.server, tuple(answers))
        return LocalProtocolState(heard, parts), np.concatenate(answers)

    def _whole(self, row: IntArray) -> IntArray:
        """Return the checked row; tainted rows of the test kit hide their shape, and the users check their parts."""
        hidden = not isinstance(row, np.ndarray) and hasattr(row, "__array_ufunc__")
        return row if hidden else checked(row, self.width)


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
