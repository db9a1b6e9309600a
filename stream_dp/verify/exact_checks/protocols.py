"""Local protocols ([HSV] sections 8 and 9): users with a data set each, and a server that receives only answers.

The vertices of a graph are users. A vertex is the sparse vector of `MultiSparseVector` with one coordinate, in closed
form (`BelowThreshold`), so that laws are exact; the tests compare the two. One instance plays the real code with its
noise cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Local, Parallel, Touched
from stream_dp.core.composition import Ask, Create
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Query
from stream_dp.core.relation import Relation, same
from stream_dp.mechanisms.papers.local_protocol import LocalProtocol
from stream_dp.mechanisms.papers.multi_sparse_vector import MultiSparseVector
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_sparse_vector import BelowThreshold
from stream_dp.verify.exact.finite import FirstPair
from stream_dp.verify.exact_checks.instance import (
    ADD,
    Instance,
    Part,
    composed,
    irr,
    known,
    private,
    related,
    sent,
)
from stream_dp.verify.relations.creation import Truth, own
from stream_dp.verify.relations.pair_conditions import Suitable
from stream_dp.verify.relations.streams import DataNeighbors, StaticDataSet


@dataclass(frozen=True, slots=True)
class SparseDataSets:
    """At most `k` of the pairs of data sets differ, each by `relates`: ~_(k, ~*) of [HSV] Cor 8.8."""

    k: int
    relates: DataNeighbors

    @property
    def first_pair_consistent(self) -> bool:
        return False

    def accept(self, left: Any, right: Any) -> "SparseDataSets | None":
        if same(left, right):
            return self if self.relates(left, right) else None
        return replace(self, k=self.k - 1) if self.k and self.relates(left, right) else None


@dataclass(frozen=True, slots=True)
class LocalMessages:
    """f_(P, ~) ([HSV] Def 8.5): all users' mechanisms, then all their data sets, then identical queries to any user.

    Creations and data sets come in the order of `users`. An `auxiliary` mechanism is created where the server draws
    coins (Remark 8.3). `datasets` judges the pairs of data sets; a prefix that it accepts must have a completion to
    neighbouring sequences. Each user's own verification function judges the queries to that user. `step` counts the
    messages so far, up to the last data set.
    """

    users: tuple[Create, ...]
    datasets: Relation
    auxiliary: tuple[Create, ...] = ()
    suitable: Suitable = Suitable()  # noqa: RUF009  an immutable value
    step: int = 0

    @classmethod
    def of(
        cls,
        users: tuple[Create, ...],
        datasets: Relation,
        auxiliary: tuple[Create, ...] = (),
        truth: Truth = own,
    ) -> "LocalMessages":
        return cls(users, datasets, auxiliary, Suitable(truth))

    @property
    def first_pair_consistent(self) -> bool:
        """False: the first pair is a creation."""
        return False

    def accept(self, left: Any, right: Any) -> "LocalMessages | None":
        suitable = self.suitable.accept(left, right)
        if suitable is None:
            return None
        if (expected := self._creation()) is not None:
            fits = same(left, expected)
            return replace(self, suitable=suitable, step=self.step + 1) if fits else None
        if not isinstance(left, Ask) or not isinstance(right, Ask):
            return None
        user = self.step - len(self.users) - len(self.auxiliary)
        if user < len(self.users):
            return self._dataset(user, left, right, suitable)
        return replace(self, suitable=suitable) if same(left, right) else None

    def _creation(self) -> Create | None:
        if self.step < len(self.users):
            return self.users[self.step]
        place = self.step - len(self.users)
        return self.auxiliary[place] if place < len(self.auxiliary) else None

    def _dataset(
        self, user: int, left: Ask, right: Ask, suitable: Suitable
    ) -> "LocalMessages | None":
        datasets = self.datasets.accept(left.message, right.message)
        if datasets is None or left.index != user:
            return None
        return replace(self, datasets=datasets, suitable=suitable, step=self.step + 1)


THREE, TENTH, HALF = Fraction(3), Fraction(1, 10), Fraction(1, 2)
STATIC = "a user's data set is its first message and never changes"
Rows: TypeAlias = tuple[tuple[int, ...], ...]  # the row of each vertex
EDGES = ((0, 1), (0, 2), (1, 2))  # edge j of a triangle joins these vertices
CUT_BASE, CUT_RADIUS = Fraction(1, 8), 6


@dataclass(frozen=True, slots=True)
class OneEdge:
    """The vertices' rows, one after the other, of two graphs that differ in at most one edge (~ of [HSV] Def 8.5).

    `possible` are the pairs of graphs that fit the rows so far, each with its remaining rows.
    """

    possible: frozenset[tuple[Rows, Rows]]

    @classmethod
    def of(cls, edges: Sequence[tuple[int, int]], vertices: int) -> "OneEdge":
        graphs = list(product((0, 1), repeat=len(edges)))
        return cls(
            frozenset(
                (edge_rows(a, edges, vertices), edge_rows(b, edges, vertices))
                for a, b in product(graphs, graphs)
                if one_apart(a, b)
            )
        )

    @property
    def first_pair_consistent(self) -> bool:
        return False

    def accept(self, left: Any, right: Any) -> "OneEdge | None":
        left_over = frozenset(
            (a[1:], b[1:]) for a, b in self.possible if a and (a[0], b[0]) == (left, right)
        )
        return OneEdge(left_over) if left_over else None


def edge_rows(graph: Sequence[int], edges: Sequence[tuple[int, int]], vertices: int) -> Rows:
    """Return, for each vertex, which of its possible edges the graph has."""
    return tuple(
        tuple(there for there, edge in zip(graph, edges, strict=True) if vertex in edge)
        for vertex in range(vertices)
    )


def one_apart(left: Sequence[int], right: Sequence[int]) -> bool:
    """Say whether two graphs, or two rows, differ in at most one edge."""
    return sum(x != y for x, y in zip(left, right, strict=True)) <= 1


@dataclass(frozen=True, slots=True)
class OneQuestion:
    """One question, equal on both sides, any number of times: prop of [HSV] Def 8.5."""

    question: Any

    @property
    def first_pair_consistent(self) -> bool:
        """True, because all pairs are equal."""
        return True

    def accept(self, left: Any, right: Any) -> "OneQuestion | None":
        return self if left == right == self.question else None


def vertex(degree: int) -> Part:
    """Return a vertex that answers whether it has fewer edges than a threshold.

    Its threshold and its answers have a share of ln 2 each.
    """
    every = list(product((0, 1), repeat=degree))
    data = tuple((a, b) for a, b in product(every, every) if one_apart(a, b))
    question = (tuple(range(degree)), 1)
    machine = BelowThreshold(HALF, HALF)
    relation = StaticDataSet(one_apart, OneQuestion(question))
    return Part("vertex", machine, private(Fraction(4)), relation, (*data, (question, question)))


def _played(
    words: str, users: tuple[Part, ...], datasets: Relation, k: int, delta: Fraction, questions: int
) -> Instance:
    messages = LocalMessages.of(tuple(user.create for user in users), datasets, truth=known)
    return Instance(
        words,
        (users[0].leaf,),
        Local("users", len(users), Touched(k, ADD, "what the relation allows"), STATIC, delta),
        composed(),
        sent(messages, users, len(users)),
        2 * len(users) + questions,
    )


def one_user(delta: Fraction) -> Instance:
    """Return two users, one of whom may hold another bit: Cor 8.8 with a delta."""
    users = (irr(THREE, TENTH),) * 2
    words = "2 users with IRR(ln 3, 0.1), 1 of them differs (Def 8.5)"
    return _played(words, users, SparseDataSets(1, related), 1, delta, 4)


def triangle(questions: int = 4) -> Instance:
    """Return all graphs on three vertices; two graphs differ in one edge, which two vertices hold."""
    users = (vertex(2),) * 3
    datasets = OneEdge.of(EDGES, 3)
    words = "all graphs on 3 vertices, 1 edge differs, each vertex ln 4 (Def 8.5)"
    return _played(words, users, datasets, 2, Fraction(0), questions)


@dataclass(frozen=True, slots=True)
class Twice:
    """A server that asks every vertex the same question twice, except a vertex that has answered 1."""

    users: int
    query: Query

    def init(self) -> tuple[int, tuple[int, ...]]:
        return 2, tuple(range(self.users))

    def questions(self, state: tuple[int, tuple[int, ...]]) -> tuple[Ask, ...]:
        left, asked = state
        return tuple(Ask(user, self.query) for user in asked) if left else ()

    def hear(
        self, state: tuple[int, tuple[int, ...]], answers: tuple[IntArray, ...]
    ) -> tuple[int, tuple[int, ...]]:
        left, asked = state
        stay = (user for user, answer in zip(asked, answers, strict=True) if not answer[0])
        return left - 1, tuple(stay)


def edge_protocol() -> LocalProtocol:
    """Return two vertices that may share an edge, as mechanisms of the product; one unit of epsilon is ln 8."""
    one = Fraction(1)
    user = MultiSparseVector(1, ((0,),), one, one, ADD)
    return LocalProtocol((user, user), ((0,), (0,)), Twice(2, Query(1)))


def real_code(questions: int = 2) -> Instance:
    """Return the product's `LocalProtocol` of `MultiSparseVector`s, every noise value up to a radius enumerated."""
    protocol = edge_protocol()
    return Instance(
        "LocalProtocol of 2 MultiSparseVectors of ln 64 that share an edge",
        (leaf("vertex", Guarantee(private(CUT_BASE**-2), ADD), "[HSV] section 9"),),
        Local("users", 2, Touched(protocol.sparsity, ADD, "an edge has two ends"), STATIC),
        Enumerated(protocol, CUT_BASE, CUT_RADIUS),
        FirstPair((((0,), (1,)), ((1,), (0,))), (None,)),
        1 + questions,
        cut=True,
    )


def local() -> tuple[Instance, ...]:
    return one_user(TENTH), triangle(), real_code()


def coordinates() -> Instance:
    """Return two coordinates over one column as one sparse vector ([HSV] section 9)."""
    two = Fraction(2)
    vector = MultiSparseVector(1, ((0,), (0,)), two, two, ADD)
    touched = Touched(vector.sensitivity, ADD, "coordinates that look at one column")
    same = FirstPair((((0,), (1,)), ((1,), (0,))), (1,))
    return Instance(
        "MultiSparseVector, 2 coordinates of ln 64 that look at one column",
        (leaf("coordinate", Guarantee(private(CUT_BASE**-2), ADD), "[HSV] section 9"),),
        Parallel("coordinates", touched, (2,)),
        Enumerated(vector, CUT_BASE, CUT_RADIUS),
        same,
        3,
        cut=True,
    )
