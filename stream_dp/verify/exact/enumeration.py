"""A real mechanism as a finite machine: the production code, run with every noise value in turn.

Rules: one unit of epsilon stands for -ln(base), and a claim of e units is e^eps = base^-e. Noise of scale s then has
the decay base^(1/s), an exact rational where 1/s is whole (a Gaussian of variance v: where 1/(2 v) is whole). Values
beyond `radius` are left out, and `delta_bracket` includes the missing mass in its bounds. A machine whose laws are
known (`Lawful`) draws from them and leaves nothing out. States are compared by their `contents`. This file knows no
mechanism by name.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.composition import Ask, Create
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.relation import Relation
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.errors import RejectedMessage
from stream_dp.verify.exact.finite import FiniteMachine, Law
from stream_dp.verify.game import Verifier

T = TypeVar("T")
Plain: TypeAlias = Any  # a row, a threshold or None for a query, or a message of the mechanism


@dataclass(slots=True)
class Script:
    """Noise that returns the script's values, cut at the radius; at its end `wanted` is the law of the next value."""

    values: tuple[Any, ...]
    base: Fraction
    radius: int
    used: int = 0
    wanted: Mapping[Any, Fraction] | None = None
    chance: Fraction = Fraction(1)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        a = self._decay(scale)
        law = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-self.radius, self.radius + 1)}
        return self._take(law, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        a = self._decay(scale)
        return self._take({x: (1 - a) * a**x for x in range(self.radius + 1)}, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Return values; a bound on the mass that the normalisation leaves out counts as missing too."""
        a = self._decay(2 * variance)
        masses = {x: a ** (x * x) for x in range(-self.radius, self.radius + 1)}
        first = self.radius + 1  # beyond: a^(first^2) (1 + a^(2 first + 1) + ...), on two sides
        whole = sum(masses.values()) + 2 * a ** (first * first) / (1 - a ** (2 * first + 1))
        return self._take({x: mass / whole for x, mass in masses.items()}, size)

    def _decay(self, scale: Fraction) -> Fraction:
        rate = 1 / Fraction(scale)
        if rate.denominator != 1:
            raise ValueError(
                f"scale {scale}: 1/scale must be a whole number; choose a larger epsilon"
            )
        return self.base**rate.numerator

    def _take(self, law: dict[int, Fraction], size: int) -> IntArray:
        return np.array([self.choose(law) for _ in range(size)], dtype=np.int64)

    def choose(self, law: Mapping[T, Fraction]) -> T:
        """Return the script's next value; its probability is the one in `law`."""
        if self.used == len(self.values):
            self.wanted = law
            raise _MoreNoise
        value: T = self.values[self.used]
        self.used += 1
        self.chance *= law[value]
        return value


class _MoreNoise(Exception):
    """The script has ended."""


@dataclass(frozen=True)
class Lawful:
    """A finite machine as a mechanism for compositions to create, play and enumerate; messages are its queries.

    It draws from its exact laws, so its noise must be a `Script`. Its creation query states its guarantee.
    """

    machine: FiniteMachine[Any, Any]

    def takes(self, message: object) -> bool:
        """Accept any query: the claim's relation decides which queries may be sent."""
        return True

    def init(self, noise: Script) -> Any:
        return noise.choose(self.machine.initial())

    def step(self, state: Any, message: Any, noise: Script) -> tuple[Any, Any]:
        answer, after = noise.choose(self.machine.step(state, message))
        return after, answer


@dataclass(frozen=True)
class Enumerated:
    """`mechanism`, or a composition, with all its noise enumerated.

    A query is a row (tuple), the threshold or None of a `Query`, or any message of the mechanism.
    """

    mechanism: Any
    base: Fraction = Fraction(1, 2)
    radius: int = 0
    known: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    laws: dict[tuple[Hashable, Plain], Law[Hashable]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def initial(self) -> Mapping[Hashable, Fraction]:
        law: dict[Hashable, Fraction] = {}
        for (state, _), chance in self._runs(lambda noise: (self.mechanism.init(noise), None)):
            law[state] = law.get(state, Fraction(0)) + chance
        return law

    def step(self, state: Hashable, query: Plain) -> Law[Hashable]:
        """Return the joint law of the answer (a tuple, or "" for an update) and the next state."""
        if (state, query) not in self.laws:
            self.laws[state, query] = self._law(state, _message(query))
        return self.laws[state, query]

    def _law(self, state: Hashable, message: Any) -> Law[Hashable]:
        law: dict[tuple[Hashable, Hashable], Fraction] = {}
        step = partial(self.mechanism.step, self.known[state], message)
        try:
            runs = list(self._runs(step))
        except RejectedMessage:
            return {(None, state): Fraction(1)}
        for (after, answer), chance in runs:
            key = ("" if answer is None else contents(answer), after)
            law[key] = law.get(key, Fraction(0)) + chance
        return law

    def _runs(self, run: Any) -> Iterator[tuple[tuple[Hashable, Any], Fraction]]:
        """Yield every outcome of `run` with its probability, with scripts that grow where more noise is needed."""
        open_scripts: list[tuple[Any, ...]] = [()]
        while open_scripts:
            script = Script(open_scripts.pop(), self.base, self.radius)
            try:
                state, answer = run(script)
            except _MoreNoise:
                law = script.wanted or {}
                open_scripts.extend((*script.values, x) for x, chance in law.items() if chance)
                continue
            name = contents(state)
            self.known.setdefault(name, state)
            yield (name, answer), script.chance


def contents(value: Any) -> Hashable:
    """Return a hashable form; it is equal where contents are equal, arrays and dicts included."""
    if isinstance(value, np.ndarray):
        return contents(value.tolist())
    if type(value) is SealedState:
        return contents(inside_of(value))
    if isinstance(value, dict):
        return frozenset((key, contents(item)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(contents, value))
    try:
        hash(value)
    except TypeError:
        if not is_dataclass(value):
            raise
        return (type(value), *(contents(getattr(value, f.name)) for f in fields(value)))
    return value  # type: ignore[no-any-return]


def _message(query: Plain) -> Any:
    if isinstance(query, tuple):
        return Update(np.array(query, dtype=np.int64))
    return Query(query) if query is None or isinstance(query, int) else query


@dataclass(frozen=True, eq=False)
class Verified:
    """The pairs of `menu` that `verifier`, the V[f] of games ([HSV] Def 3.5), lets pass, as moves for `exact_delta`.

    The menu must hold every pair that could help an adversary. A pair that the verifier refuses is no move: halting
    earlier never helps. Equal where menus and the verifiers' contents are equal.
    """

    verifier: Verifier
    menu: tuple[tuple[Any, Any], ...]
    _held: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_held", contents(self.verifier))

    def __hash__(self) -> int:
        return hash(self._held)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Verified):
            return NotImplemented
        return self.menu is other.menu and self._held == other._held

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "Verified"]]:
        for pair in self.menu:
            after = self.verifier.verify(pair)
            if not after.halted:
                yield pair, Verified(after, self.menu)


def behind(
    relation: Relation,
    creations: Iterable[Create],
    queries: Iterable[tuple[Any, Any]],
    indices: int,
) -> Verified:
    """Return the moves of a composition behind V[relation]; queries go to the first `indices` mechanisms."""
    asked = tuple(queries)
    menu = (
        *((create, create) for create in creations),
        *((Ask(i, left), Ask(i, right)) for i in range(indices) for left, right in asked),
    )
    return Verified(Verifier(relation), menu)
