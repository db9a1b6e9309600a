"""Finite mechanisms with exact laws, and verification functions whose accepted pairs can be listed.

Rules: probabilities are `Fraction`s; states, queries and answers are hashable values. A law may add up to less than
1; the missing mass was cut off and may belong to any answer. `Sampled` runs a finite machine over bits as a core
`Mechanism`. This file knows no recursion, no game and no finite machine by name.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.row_relations import RowSpace
from stream_dp.errors import FailClosed, RejectedMessage
from stream_dp.mechanisms.checks import checked

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
        if not self.begun:
            after = replace(self, begun=True)
            yield from ((pair, after) for pair in self.first)
        else:
            yield from (((query, query), self) for query in self.queries)


BIT_PAIRS = ((0, 0), (0, 1), (1, 0), (1, 1))


T = TypeVar("T", bound=Hashable)
_TRIES = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class SampledState:
    """`inner`: the machine's state. `answer`: its answer to the last bit; None before the first bit."""

    inner: Any
    answer: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """`machine` over bits as a core mechanism, sampled exactly; `exact_delta` can certify its `guarantee`.

    An `Update` of one column carries the bit; a `Query` asks for the answer to it.
    """

    width: ClassVar[int] = 1
    machine: FiniteMachine[Any, Any]
    guarantee: Guarantee

    def takes(self, message: object) -> bool:
        """Say whether a message is in the query space: a bit, or a query for the answer."""
        return isinstance(message, Query) or (
            isinstance(message, Update) and RowSpace(1, 0, 1).holds(message.row)
        )

    def init(self, noise: Noise) -> SampledState:
        return SampledState(draw_from(self.machine.initial(), noise), None)

    def step(
        self, state: SampledState, message: Message, noise: Noise
    ) -> tuple[SampledState, IntArray | None]:
        """Take a bit, or answer the last one (RejectedMessage: no bit, nothing to answer yet, or halted)."""
        if isinstance(message, Query):
            if state.answer is None:
                raise RejectedMessage("there is nothing to answer yet; send a bit first")
            return state, np.array(state.answer, dtype=np.int64)
        bit = int(checked(message.row, 1)[0])
        if bit > 1:
            raise RejectedMessage("this mechanism takes bits")
        answer, inner = draw_from(self.machine.step(state.inner, bit), noise)
        if answer is None:
            raise RejectedMessage("this mechanism has halted; create a new one")
        plain = answer if isinstance(answer, tuple) else (answer,)
        return SampledState(inner, tuple(map(int, plain))), None


def draw_from(law: Mapping[T, Fraction], noise: Noise) -> T:
    """Return an outcome with exactly the probabilities of `law`, by fair bits and rejection."""
    whole = lcm(*(chance.denominator for chance in law.values()))
    for _ in range(_TRIES):
        drawn = 0
        for _ in range((whole - 1).bit_length()):
            drawn = 2 * drawn + fair_bit(noise)
        for outcome, chance in law.items():
            drawn -= int(chance * whole)
            if drawn < 0:
                return outcome
    raise FailClosed("this noise is not random: no sample after 10,000 tries")


def fair_bit(noise: Noise) -> int:
    """Return the sign of a discrete Laplace sample that is not 0."""
    for _ in range(_TRIES):
        sample = int(noise.laplace(Fraction(4), 1)[0])
        if sample:
            return int(sample > 0)
    raise FailClosed("this noise is not random: 10,000 samples are 0")
