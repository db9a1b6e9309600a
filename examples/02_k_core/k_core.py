"""Private core numbers of a graph whose edges arrive as a stream, day by day, for ever, at one epsilon.

Each vertex is a user of a local protocol ([HSV] section 9): it holds its own edges and has one sparse vector. The
server peels: it asks all vertices that are left whether they have fewer than d neighbours among those left, takes away
those who say so, and raises d when nobody does. Every day has a protocol of its own, created while the stream goes on.

Run it from the repository:  .venv/bin/python examples/02_k_core/k_core.py
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import log
from statistics import mean
from typing import TypeAlias

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.rules.parallel import sparse_pure
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.composition import Ask, ConcurrentComposition, Create, Halt
from stream_dp.core.derivation import Derivation
from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.papers import LocalProtocol, MultiSparseVector, SubsetQuery
from stream_dp.noise import NoiseStream

Edge: TypeAlias = tuple[int, int]
Vertices: TypeAlias = tuple[int, ...]
Peeled: TypeAlias = tuple[int, Vertices, tuple[int, ...]]  # d, who is left, the estimates so far

ENDS = 2  # vertices that hold one edge


# --- the protocol -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peeling:
    """The server: knows the vertices and what they answered, no edge.

    The paper's text never raises d and gives a vertex that has fewer than d neighbours left the core number d; it
    is at most d - 1. Both are put right here; `raise_by` is how far d goes up at a time.
    """

    vertices: int
    raise_by: int = 1

    def init(self) -> Peeled:
        """Everybody is left."""
        return 1, tuple(range(self.vertices)), (0,) * self.vertices

    def questions(self, state: Peeled) -> tuple[Ask, ...]:
        """To all who are left: have you fewer than d edges to each other? Nobody has n of them: then it ends."""
        d, left, _ = state
        if d > self.vertices:
            return ()
        return tuple(Ask(v, SubsetQuery(d, own_columns(v, left))) for v in left)

    def hear(self, state: Peeled, answers: tuple[IntArray, ...]) -> Peeled:
        """Take away those who said yes; raise d where nobody did."""
        d, left, estimates = state
        said_yes = {v for v, answer in zip(left, answers, strict=True) if answer[0]}
        if not said_yes:
            raised = d + self.raise_by
            above = {v: min(raised, self.vertices) - 1 for v in left}  # if the protocol ends here
            return raised, left, tuple(above.get(v, k) for v, k in enumerate(estimates))
        known = tuple(d - 1 if v in said_yes else k for v, k in enumerate(estimates))
        return d, tuple(v for v in left if v not in said_yes), known


def edges_of(vertices: int) -> list[Edge]:
    """The columns of a row: every edge there can be."""
    return list(combinations(range(vertices), ENDS))


def own_columns(vertex: int, others: Vertices) -> tuple[int, ...]:
    """Where in its own part, which lists the other vertices in order, a vertex finds its edges to `others`."""
    return tuple(u - (u > vertex) for u in others if u != vertex)


def core_protocol(vertices: int, epsilon: Fraction, raise_by: int = 1) -> LocalProtocol:
    """One run of the protocol; `epsilon` for an edge, so half of it for each of its two ends."""
    columns = edges_of(vertices)
    views = tuple(
        tuple(c for c, edge in enumerate(columns) if vertex in edge) for vertex in range(vertices)
    )
    share = epsilon / ENDS / 2
    everything = (tuple(range(vertices - 1)),)
    user = MultiSparseVector(vertices - 1, everything, share, share, Neighbors.ADD_REMOVE)
    return LocalProtocol((user,) * vertices, views, Peeling(vertices, raise_by))


def promise(protocol: LocalProtocol) -> Derivation:
    """What is promised for one edge, over all days, with its reasons."""
    user = leaf("a vertex's sparse vector", protocol.users[0].guarantee, "[HSV] Alg. 3, Lemma 7.4")
    why = "an edge lies in the parts of its two ends, and every vertex gets its part at every tick"
    ends = Touched(protocol.sparsity, Neighbors.ADD_REMOVE, f"[HSV] Cor 8.8: {why}")
    day = sparse_pure((user,), Parallel("core numbers of a day", ends))
    once = Touched(1, Neighbors.ADD_REMOVE, "an edge arrives on one day")
    return sparse_pure((day,), Parallel("core numbers of every day", once))


def explained(derivation: Derivation, depth: int = 0) -> Iterator[str]:
    """The promise as lines of text: each node with its price, its rule and its conditions."""
    indent, price = "    " * depth, text(derivation.guarantee.measure.epsilon)
    yield f"{indent}{derivation.subject}: eps {price} by {derivation.rule}, {derivation.source}"
    for condition in derivation.conditions:
        yield f"{indent}  holds: {condition.name}: {condition.why}"
    for premise in derivation.premises:
        yield from explained(premise, depth + 1)


def error_bound(vertices: int, epsilon: Fraction, raise_by: int, failure: float) -> float:
    """All estimates of a day are at most this far from the core numbers, but for the probability `failure`.

    Who answers "fewer than d" has at most d - 1 + a neighbours left, who does not has at least d - b, where a bounds
    all query noises and b all threshold noises. So who was left when d was raised had core number >= d - b, and a
    subgraph's first vertex to go had degree <= d - 1 + a in it. A round raises d or takes a vertex away.
    """
    scale = float(2 * ENDS / epsilon)
    rounds = vertices + -(-vertices // raise_by)
    a = scale * log(2 * vertices * rounds / failure)
    b = scale * log(2 * vertices / failure)
    return max(a, b + raise_by - 1)


# --- the stream ---------------------------------------------------------------------------------


def run(
    days: Sequence[Sequence[Sequence[Edge]]], protocol: LocalProtocol, noise: Noise
) -> Iterator[tuple[int, ...]]:
    """The estimated core numbers after each day; a day is a list of ticks, a tick a list of edges."""
    vertices = len(protocol.users)
    place = {edge: column for column, edge in enumerate(edges_of(vertices))}
    over = ConcurrentComposition()
    state = over.init()
    for day in days:
        today = state.created
        state, _ = over.step(state, Create(protocol), noise)
        for tick in day:
            row = np.zeros(len(place), dtype=np.int64)
            for u, v in tick:
                row[place[min(u, v), max(u, v)]] += 1
            state, _ = over.step(state, Ask(today, Update(row)), noise)
        heard = (
            protocol.server.init()
        )  # public: whoever sees the answers knows what the server knows
        while questions := protocol.server.questions(heard):
            state, answers = over.step(state, Ask(today, Query()), noise)
            heard = protocol.server.hear(heard, tuple(np.split(answers, len(questions))))
        state, _ = over.step(state, Halt(today), noise)
        yield heard[2]


def core_numbers(vertices: int, edges: Sequence[Edge]) -> tuple[int, ...]:
    """The exact core numbers, by peeling without noise: for comparison, and NOT PRIVATE."""
    left, found, d = set(range(vertices)), [0] * vertices, 0
    while left:
        degree = {v: sum(v in e and left.issuperset(e) for e in edges) for v in left}
        low = {v for v, k in degree.items() if k <= d}
        for v in low:
            found[v] = d
        left -= low
        d += not low
    return tuple(found)


# --- a made-up graph ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Town:
    """Members of a club meet nearly all others of it, everybody else meets a few people at random."""

    vertices: int
    club: range
    hours: int = 12

    def day(self, rng: np.random.Generator) -> list[list[Edge]]:
        """One day's meetings, hour by hour."""
        inside = [e for e in combinations(self.club, ENDS) if rng.random() < 0.9]
        outside = [e for e in edges_of(self.vertices) if rng.random() < 2 / self.vertices]
        edges = sorted({*inside, *outside})
        hours = rng.integers(0, self.hours, len(edges))
        return [[e for e, h in zip(edges, hours, strict=True) if h == t] for t in range(self.hours)]


def main(noise: Noise, vertices: int = 100, epsilon: Fraction = Fraction(2)) -> None:
    """Two days, on the second of which the club has moved."""
    rng, raise_by = np.random.default_rng(1), 3
    clubs = [range(60), range(40, vertices)]
    days = [Town(vertices, club).day(rng) for club in clubs]
    protocol = core_protocol(vertices, epsilon, raise_by)
    print(*explained(promise(protocol)), sep="\n")
    bound = error_bound(vertices, epsilon, raise_by, failure=0.05)
    print(f"proven error of all {vertices} estimates: {bound:.0f} (95%)")
    for number, (day, club, estimates) in enumerate(
        zip(days, clubs, run(days, protocol, noise), strict=True), start=1
    ):
        exact = core_numbers(vertices, [edge for tick in day for edge in tick])
        error = max(abs(a - b) for a, b in zip(estimates, exact, strict=True))
        print(f"day {number}: largest error {error}")
        for name, members in (("club", set(club)), ("others", set(range(vertices)) - set(club))):
            of = [(estimates[v], exact[v]) for v in members]
            print(
                f"  {name:6} {len(of):3} vertices, core number {mean(e for _, e in of):4.1f}, "
                f"estimated {mean(e for e, _ in of):4.1f}"
            )


if __name__ == "__main__":
    main(NoiseStream(os.urandom(32), 0))
