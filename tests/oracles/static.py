"""Mechanisms with a static data set, finite and exact, alone and inside the production `ConcurrentComposition`.

Rules: the first message is the data set, later ones are queries. Two forms: `Answering` is a finite machine with given
laws; `Rounded` is a core mechanism that draws noise, and `Composed` runs the very `ConcurrentComposition` object under
every noise value in turn. `Accepted` lists the pairs that a relation of the package accepts; it is hashed by what each
mechanism was sent, which is all that a relation on composition messages may depend on. No number of a claim is here.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from stream_dp.core.composition import (
    Ask,
    Child,
    CompositionMessage,
    CompositionState,
    ConcurrentComposition,
    Create,
)
from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.relation import Relation
from stream_dp.core.sealed import inside_of
from stream_dp.verify.exact.finite import Law

ONE = Fraction(1)


@dataclass(frozen=True)
class Answering:
    """Answers the data set's bit by `first[bit]`, and then one query by `then[bit, answer]`, if there is one."""

    first: tuple[tuple[Fraction, ...], tuple[Fraction, ...]]
    then: tuple[tuple[tuple[Fraction, ...], ...], ...] = ()

    def initial(self) -> Mapping[Hashable, Fraction]:
        """Waiting for the data set."""
        return {"new": ONE}

    def step(self, state: Any, query: Hashable) -> Law[Any]:
        """Answer."""
        if state == "new" and isinstance(query, int):
            law = enumerate(self.first[query])
            return {(a, (query, a) if self.then else "end"): chance for a, chance in law}
        if isinstance(state, tuple) and query == "more":
            bit, answer = state
            return {(a, "end"): chance for a, chance in enumerate(self.then[bit][answer])}
        return {(None, "end"): ONE}


@dataclass(frozen=True, slots=True)
class Data:
    """The data set: one bit."""

    bit: int


@dataclass(frozen=True)
class Rounded:
    """clamp(bit + discrete Laplace noise, -1, 2), for the data set and, with `more`, once more for a query."""

    scale: Fraction
    more: bool = False

    def takes(self, message: object) -> bool:
        """Its query space."""
        return isinstance(message, Data | Query)

    def init(self, noise: Noise) -> tuple[int, int]:
        """No data set yet; (bit, answers left)."""
        return (-1, 1 + self.more)

    def step(
        self, state: tuple[int, int], message: Any, noise: Noise
    ) -> tuple[tuple[int, int], IntArray | None]:
        """Answer, as long as answers are left."""
        bit, left = state
        if isinstance(message, Data) and bit < 0:
            bit = message.bit
        if bit < 0 or not left or (isinstance(message, Data) and left < 1 + self.more):
            return state, None
        return (bit, left - 1), np.clip(bit + noise.laplace(self.scale, 1), -1, 2)


EDGE = 3  # noise of this size or more gives a clamped answer in any case


@dataclass
class _Every:
    """Noise that plays out one script; the tails beyond `EDGE` are lumped, which the clamp cannot tell apart."""

    base: Fraction
    value: int
    chance: Fraction = ONE

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        assert size == 1
        a = self.base ** (1 / Fraction(scale)).numerator
        tail = a**EDGE / (1 + a)
        self.chance *= tail if abs(self.value) == EDGE else (1 - a) / (1 + a) * a ** abs(self.value)
        return np.array([self.value], dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        raise NotImplementedError


@dataclass(frozen=True)
class Composed:
    """The production `ConcurrentComposition` over `Rounded` mechanisms as a finite machine."""

    base: Fraction
    composition: ConcurrentComposition = field(default_factory=ConcurrentComposition)
    laws: dict[tuple[Any, CompositionMessage], Law[Any]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def initial(self) -> Mapping[Hashable, Fraction]:
        """Nothing created."""
        return {(): ONE}

    def step(self, state: Any, query: CompositionMessage) -> Law[Any]:
        """Every outcome of the real step; one noise value at most is drawn in each."""
        if (state, query) not in self.laws:
            self.laws[state, query] = self._law(state, query)
        return self.laws[state, query]

    def _law(self, state: Any, query: CompositionMessage) -> Law[Any]:
        law: dict[tuple[Hashable, Any], Fraction] = {}
        for value in range(-EDGE, EDGE + 1):
            noise = _Every(self.base, value)
            after, answer = self.composition.step(_thawed(state), query, noise)
            chance = noise.chance if noise.chance != ONE else ONE * (value == 0)
            key = ("" if answer is None else int(answer[0]), _frozen(after))
            law[key] = law.get(key, Fraction(0)) + chance
        return law


def _frozen(state: CompositionState) -> Hashable:
    return tuple((child.mechanism, inside_of(child.state)) for child in state.live.values())


def _thawed(state: Any) -> CompositionState:
    children = {i: Child(mechanism, inner) for i, (mechanism, inner) in enumerate(state)}
    return CompositionState(len(children), children)


@dataclass(frozen=True)
class Accepted:
    """The pairs that `relation` accepts next, of creations from `kinds` and data sets and queries to what exists."""

    relation: Relation = field(compare=False)
    kinds: tuple[Create, ...]
    most: int
    seen: tuple[
        tuple[int, tuple[Hashable, ...]], ...
    ] = ()  # of each mechanism: its kind, what it was sent

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Accepted"]]:
        """Every pair and what is accepted after it."""
        if len(self.seen) < self.most:
            for kind, create in enumerate(self.kinds):
                yield from self._try(create, create, (*self.seen, (kind, ())))
        contents: list[tuple[Any, Any]] = [(Data(a), Data(b)) for a in (0, 1) for b in (0, 1)]
        for index, (kind, sent) in enumerate(self.seen):
            for left, right in [*contents, (Query(), Query())]:
                child = (kind, (*sent, (left, right)))
                seen = (*self.seen[:index], child, *self.seen[index + 1 :])
                yield from self._try(Ask(index, left), Ask(index, right), seen)

    def _try(
        self, left: Any, right: Any, seen: Any
    ) -> Iterator[tuple[tuple[Any, Any], "Accepted"]]:
        after = self.relation.accept(left, right)
        if after is not None:
            yield (left, right), Accepted(after, self.kinds, self.most, seen)
