"""Local protocols ([HSV] sections 8 and 9): users with a data set each, and a server that receives only answers.

The vertices of a graph are users. A vertex is the sparse vector of `MultiSparseVector` with one coordinate, in closed
form (`BelowThreshold`), so that laws are exact; the tests compare the two. One instance plays the real code with its
noise cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, TypeAlias

from stream_dp.accounting.situations import Local, Parallel, Situation, Touched
from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import IntArray, Query
from stream_dp.core.relation import Relation, same
from stream_dp.mechanisms.papers import LocalProtocol, MultiSparseVector
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_sparse_vector import BelowThreshold
from stream_dp.verify.exact.finite import FirstPair
from stream_dp.verify.exact_checks.instance import (
    ADD,
    Instance,
    Part,
    claimed,
    game,
    irr,
    known,
    private,
    related,
)
from stream_dp.verify.relations import DataNeighbors, StaticDataSet, Suitable


@dataclass(frozen=True, slots=True)
class SparseDataSets:
    """At most `k` of the pairs of data sets differ, each by `relates`: ~_(k, ~*) of [HSV] Cor 8.8."""

    first_pair_consistent: ClassVar[bool] = False
    k: int
    relates: DataNeighbors

    def accept(self, left: Any, right: Any) -> "SparseDataSets | None":
        if not self.relates(left, right):
            return None
        if same(left, right):
            return self
        return replace(self, k=self.k - 1) if self.k else None


@dataclass(frozen=True, slots=True)
class LocalMessages:
    """f_(P, ~) ([HSV] Def 8.5): all users' mechanisms, then all their data sets, then identical queries to any user.

    Creations and data sets come in the order of `users`. An `auxiliary` mechanism is created where the server draws
    coins (Remark 8.3). `datasets` judges the pairs of data sets; a prefix that it accepts must have a completion to
    neighbouring sequences. Each user's own verification function judges the queries to that user. `step` counts the
    messages so far, up to the last data set.
    """

    first_pair_consistent: ClassVar[bool] = False  # the first pair is a creation
    users: tuple[Create, ...]
    datasets: Relation
    auxiliary: tuple[Create, ...] = ()
    suitable: Suitable = Suitable()  # noqa: RUF009  an immutable value
    step: int = 0

    def accept(self, left: Any, right: Any) -> "LocalMessages | None":
        suitable = self.suitable.accept(left, right)
        if suitable is None:
            return None
        after = replace(self, suitable=suitable, step=self.step + 1)
        creations = (*self.users, *self.auxiliary)
        if self.step < len(creations):
            return after if same(left, creations[self.step]) else None
        if not isinstance(left, Ask) or not isinstance(right, Ask):
            return None
        user = self.step - len(creations)
        if user == len(self.users):
            return replace(self, suitable=suitable) if same(left, right) else None
        datasets = self.datasets.accept(left.message, right.message)
        return None if datasets is None or left.index != user else replace(after, datasets=datasets)


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

    first_pair_consistent: ClassVar[bool] = False
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

    first_pair_consistent: ClassVar[bool] = True
    question: Any

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
    words: str, users: tuple[Part, ...], datasets: Relation, k: int, delta: Fraction
) -> Instance:
    """Return these users, who follow identical procedures and are sent four questions in all."""
    created = tuple(user.create for user in users)
    messages = LocalMessages(created, datasets, suitable=Suitable(known))
    touched = Touched(k, ADD, "what the relation allows")
    situation = Local("users", len(users), touched, STATIC, delta)
    rounds = 2 * len(users) + 4
    return game(words, situation, messages, users, len(users), rounds, premises=users[:1])


def one_user(delta: Fraction) -> Instance:
    """Return two users, one of whom may hold another bit: Cor 8.8 with a delta."""
    users = (irr(THREE, TENTH),) * 2
    words = "2 users with IRR(ln 3, 0.1), 1 of them differs (Def 8.5)"
    return _played(words, users, SparseDataSets(1, related), 1, delta)


def triangle() -> Instance:
    """Return all graphs on three vertices; two graphs differ in one edge, which two vertices hold."""
    words = "all graphs on 3 vertices, 1 edge differs, each vertex ln 4 (Def 8.5)"
    return _played(words, (vertex(2),) * 3, OneEdge.of(EDGES, 3), 2, Fraction(0))


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


def _real(words: str, situation: Situation, mechanism: Any, question: int | None) -> Instance:
    """Return a mechanism of the product, every noise value up to a radius enumerated: an event, then two questions."""
    part = claimed("vertex or coordinate", private(CUT_BASE**-2))
    machine = Enumerated(mechanism, CUT_BASE, CUT_RADIUS)
    pairs = FirstPair((((0,), (1,)), ((1,), (0,))), (question,))
    return Instance(words, (part,), situation, machine, pairs, 3, cut=True)


def real_code() -> Instance:
    """Return the product's `LocalProtocol` of `MultiSparseVector`s."""
    protocol = edge_protocol()
    touched = Touched(protocol.sparsity, ADD, "an edge has two ends")
    words = "LocalProtocol of 2 MultiSparseVectors of ln 64 that share an edge"
    return _real(words, Local("users", 2, touched, STATIC), protocol, None)


def local() -> tuple[Instance, ...]:
    return one_user(TENTH), triangle(), real_code()


def coordinates() -> Instance:
    """Return two coordinates over one column as one sparse vector ([HSV] section 9)."""
    two = Fraction(2)
    vector = MultiSparseVector(1, ((0,), (0,)), two, two, ADD)
    touched = Touched(vector.sensitivity, ADD, "coordinates that look at one column")
    words = "MultiSparseVector, 2 coordinates of ln 64 that look at one column"
    return _real(words, Parallel("coordinates", touched, (2,)), vector, 1)
