"""A real mechanism as a finite machine: the very code that runs in production, under every noise value in turn.

Rules: one unit of epsilon stands for -ln(base), so that noise of scale s has the decay base^(1/s), an exact rational
where 1/s is whole; a claim of e units is then e^eps = base^-e. Values beyond `radius` are left out, and the missing
mass is what `delta_bracket` puts into its bounds. States are told apart by their snapshot bytes.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from stream_dp.audit.finite import Law
from stream_dp.core.mechanism import Mechanism, Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.states import STATES

Plain: TypeAlias = tuple[int, ...] | Query | int | None  # a row, a query, or a query's threshold


@dataclass(slots=True)
class _Script:
    """Hands out the script's values; where it ends, says which law the next value has."""

    values: tuple[int, ...]
    base: Fraction
    radius: int
    used: int = 0
    wanted: dict[int, Fraction] | None = None
    chance: Fraction = Fraction(1)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        a = self._decay(scale)
        return self._take(
            {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-self.radius, self.radius + 1)}, size
        )

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        a = self._decay(scale)
        return self._take({x: (1 - a) * a**x for x in range(self.radius + 1)}, size)

    def _decay(self, scale: Fraction) -> Fraction:
        rate = 1 / Fraction(scale)
        if rate.denominator != 1:
            raise ValueError(f"scale {scale}: 1/scale must be whole; choose a larger epsilon")
        return self.base**rate.numerator

    def _take(self, law: dict[int, Fraction], size: int) -> IntArray:
        if self.used + size > len(self.values):
            self.wanted = law
            raise _MoreNoise
        taken = self.values[self.used : self.used + size]
        self.used += size
        for value in taken:
            self.chance *= law[value]
        return np.array(taken, dtype=np.int64)


class _MoreNoise(Exception):
    """The script is over."""


@dataclass(frozen=True)
class Enumerated:
    """`mechanism` with all its noise enumerated; queries are rows (tuples), a `Query`, or its threshold or None."""

    mechanism: Mechanism[Any]
    base: Fraction
    radius: int
    known: dict[bytes, Any] = field(default_factory=dict, compare=False, repr=False)
    laws: dict[tuple[bytes, Plain], Law[bytes]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def initial(self) -> Mapping[bytes, Fraction]:
        """The law of the first state."""
        law: dict[bytes, Fraction] = {}
        for (state, _), chance in self._runs(lambda noise: (self.mechanism.init(noise), None)):
            law[state] = law.get(state, Fraction(0)) + chance
        return law

    def step(self, state: bytes, query: Plain) -> Law[bytes]:
        """The law of the answer (a tuple, or "" for an update) and the next state."""
        if (state, query) not in self.laws:
            self.laws[state, query] = self._law(state, _message(query))
        return self.laws[state, query]

    def _law(self, state: bytes, message: Message) -> Law[bytes]:
        law: dict[tuple[Hashable, bytes], Fraction] = {}
        try:
            runs = list(
                self._runs(lambda noise: self.mechanism.step(self.known[state], message, noise))
            )
        except RejectedMessage:
            return {(None, state): Fraction(1)}
        for (after, answer), chance in runs:
            key = ("" if answer is None else tuple(map(int, answer)), after)
            law[key] = law.get(key, Fraction(0)) + chance
        return law

    def _runs(self, run: Any) -> Iterator[tuple[tuple[bytes, IntArray | None], Fraction]]:
        """Every outcome of `run` with its probability, by scripts that grow where more noise is asked for."""
        open_scripts: list[tuple[int, ...]] = [()]
        while open_scripts:
            script = _Script(open_scripts.pop(), self.base, self.radius)
            try:
                state, answer = run(_as_noise(script))
            except _MoreNoise:
                open_scripts.extend((*script.values, x) for x in script.wanted or ())
                continue
            name = STATES.encode(state)
            self.known.setdefault(name, state)
            yield (name, answer), script.chance


def _as_noise(script: _Script) -> Noise:
    return script


def _message(query: Plain) -> Message:
    if isinstance(query, tuple):
        return Update(np.array(query, dtype=np.int64))
    return query if isinstance(query, Query) else Query(query)
