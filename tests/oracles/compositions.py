"""Compositions made a second time: randomized response in closed form, and finite machines with exact laws.

`FiniteComposition` and `SparsePairs` are ExtConComp and k-sparse sequences without the core's composition and verifier.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Law, Pairs


def closed_form(epsilon: float, delta: float, k: int, target: float) -> float:
    """Kairouz, Oh, Viswanath: the delta at `target` of k-fold composition of RR_(epsilon, delta)."""
    inner = 0.0
    for low in range(k + 1):
        gap = (k - 2 * low) * epsilon - target
        if gap > 0:
            ways = math.log(math.comb(k, low)) - k * math.log1p(math.exp(epsilon))
            inner -= math.exp(ways + (k - low) * epsilon) * math.expm1(-gap)
    return 1 - (1 - delta) ** k * (1 - inner)


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
        return {(): Fraction(1)}

    def step(self, state: Running, query: Make | Send) -> Law[Running]:
        if isinstance(query, Make):
            start = self.kinds[query.kind].initial()
            return {(True, (*state, (query.kind, s))): p for s, p in start.items()}
        kind, inner = state[query.index]
        before, behind = state[: query.index], state[query.index + 1 :]
        law = self.kinds[kind].step(inner, query.query)
        return {(a, (*before, (kind, s), *behind)): p for (a, s), p in law.items()}


@dataclass(frozen=True, slots=True)
class SparsePairs:
    """k-sparse parallel composition: suitable sequences ([HSV] Def 4.5) that touch at most `sparsity` machines.

    A machine is touched by a pair of different queries ([HSV] Def 5.1 (ii) for equal parameters). `kinds` holds the
    verification function of each kind, `creations` how many of each kind may still be made, `live` the verification
    functions of the machines made. With `sparsity` = the number of creations it is the composition of fixed
    parameters of [HSV] Thm 4.12.
    """

    kinds: tuple[Pairs, ...]
    creations: tuple[int, ...]
    sparsity: int
    live: tuple[Pairs, ...] = ()
    touched: frozenset[int] = frozenset()

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "SparsePairs"]]:
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
                    sent = Send(index, a), Send(index, b)
                    yield sent, replace(self, live=live, touched=touched)
