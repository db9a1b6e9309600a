"""Finite mechanisms with exact laws, and verification functions whose accepted pairs can be listed.

Rules: probabilities are `Fraction`s; states, queries and answers are hashable values. A law may add up to less than
1; the missing mass was cut off and may belong to any answer. This file knows no noise, no recursion and no game.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

S = TypeVar("S", bound=Hashable)
Q_contra = TypeVar("Q_contra", bound=Hashable, contravariant=True)

Law: TypeAlias = Mapping[tuple[Hashable, S], Fraction]


class FiniteMachine(Protocol[S, Q_contra]):
    """A continual mechanism ([HSV] Def 3.1) whose steps have finitely many outcomes."""

    def initial(self) -> Mapping[S, Fraction]:
        """Return the law of the state before the first message."""
        ...

    def step(self, state: S, query: Q_contra) -> Law[S]:
        """Return the joint law of (answer, next state); the answer None means that the machine has halted."""
        ...


class Pairs(Protocol):
    """An incremental verification function ([HSV] Def 3.3) that lists the pairs it accepts next; hashable."""

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Pairs"]]:
        """Yield every f-valid next pair of queries, and the verification function after it."""
        ...


@dataclass(frozen=True, slots=True)
class DifferAtMost:
    """Identical pairs from `queries` at any time, pairs from `different` at most `times` times."""

    queries: tuple[Hashable, ...]
    different: tuple[tuple[Hashable, Hashable], ...]
    times: int = 1

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "DifferAtMost"]]:
        """Yield the pairs that are allowed next."""
        if self.times:
            after = replace(self, times=self.times - 1)
            yield from ((pair, after) for pair in self.different)
        yield from (((query, query), self) for query in self.queries)


@dataclass(frozen=True, slots=True)
class OnceEach:
    """Identical pairs from `queries` at any time, each pair of `different` at most once.

    With one pair that removes an event and one that adds it, this is a replacement that may move.
    """

    queries: tuple[Hashable, ...]
    different: tuple[tuple[Hashable, Hashable], ...]

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "OnceEach"]]:
        """Yield the pairs that are allowed next."""
        for place, pair in enumerate(self.different):
            rest = (*self.different[:place], *self.different[place + 1 :])
            yield pair, replace(self, different=rest)
        yield from (((query, query), self) for query in self.queries)


@dataclass(frozen=True, slots=True)
class FirstPair:
    """One pair of `first`, then identical pairs of `queries`: first-pair consistent ([HSV] Def 5.12)."""

    first: tuple[tuple[Hashable, Hashable], ...]
    queries: tuple[Hashable, ...] = ()
    begun: bool = False

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "FirstPair"]]:
        """Yield the pairs that are allowed next."""
        if not self.begun:
            after = replace(self, begun=True)
            yield from ((pair, after) for pair in self.first)
        else:
            yield from (((query, query), self) for query in self.queries)


BIT_PAIRS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True, slots=True)
class Make:
    """Creation query of a composition of finite machines; `kind` is the index in its list of machines."""

    kind: int


@dataclass(frozen=True, slots=True)
class Send:
    """(query, index) message of a composition of finite machines; indices count creations from 0."""

    index: int
    query: Hashable


Running: TypeAlias = tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class FiniteComposition:
    """ExtConComp ([HSV] Def 4.1) over these kinds of finite machines; a state lists (kind, state of the machine)."""

    kinds: tuple[FiniteMachine[Any, Any], ...]

    def initial(self) -> Mapping[Running, Fraction]:
        """Return the law of the first state: no machine yet."""
        return {(): Fraction(1)}

    def step(self, state: Running, query: Make | Send) -> Law[Running]:
        """Create a machine, or pass a query to one."""
        if isinstance(query, Make):
            start = self.kinds[query.kind].initial()
            return {(True, (*state, (query.kind, s))): p for s, p in start.items()}
        kind, inner = state[query.index]
        before, behind = state[: query.index], state[query.index + 1 :]
        law = self.kinds[kind].step(inner, query.query)
        return {(a, (*before, (kind, s), *behind)): p for (a, s), p in law.items()}


@dataclass(frozen=True, slots=True)
class SparsePairs:
    """k-sparse parallel composition: suitable sequences ([HSV] Def 4.5) with at most `sparsity` machines that get a
    pair of different queries ([HSV] Def 5.1 (ii) for equal parameters).

    `kinds` holds the verification function of each kind, `creations` how many of each kind may still be made,
    `live` the verification functions of the machines made, `touched` the machines that got a pair of different
    queries. With `sparsity` = the number of creations it is the composition of fixed parameters of [HSV] Thm 4.12.
    """

    kinds: tuple[Pairs, ...]
    creations: tuple[int, ...]
    sparsity: int
    live: tuple[Pairs, ...] = ()
    touched: frozenset[int] = frozenset()

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "SparsePairs"]]:
        """Yield the pairs that are allowed next."""
        for kind, left in enumerate(self.creations):
            if left:
                creations = (*self.creations[:kind], left - 1, *self.creations[kind + 1 :])
                live = (*self.live, self.kinds[kind])
                yield (Make(kind), Make(kind)), replace(self, creations=creations, live=live)
        for index, pairs in enumerate(self.live):
            for (a, b), after in pairs.moves():
                touched = self.touched | {index} if a != b else self.touched
                if len(touched) <= self.sparsity:
                    live = (*self.live[:index], after, *self.live[index + 1 :])
                    yield (
                        (Send(index, a), Send(index, b)),
                        replace(self, live=live, touched=touched),
                    )
