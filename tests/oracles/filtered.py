"""Compositions behind a stopping rule as finite machines, so that `exact_delta` can certify filters and odometers.

Rules: the rule sees how many mechanisms of each kind were created, the next one included, and nothing else; once it
says no, nothing is answered any more (the view is truncated). This file knows no filter and no odometer.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.verify.exact.finite import FiniteMachine, Law

ONE = Fraction(1)
Counts = tuple[int, ...]
Rule = Callable[[Counts], bool]


def always(_: Counts) -> bool:
    """No rule."""
    return True


@dataclass(frozen=True)
class Filtered:
    """One-message mechanisms, created and asked in one message (kind, bit); the rule decides before it answers."""

    kinds: tuple[FiniteMachine[Any, Any], ...]
    rule: Rule

    def initial(self) -> Mapping[Counts | None, Fraction]:
        """None created."""
        return {(0,) * len(self.kinds): ONE}

    def step(self, state: Counts | None, query: tuple[int, int]) -> Law[Counts | None]:
        """One more mechanism, or nothing ever again."""
        if state is None:
            return {(None, None): ONE}
        kind, bit = query
        after = (*state[:kind], state[kind] + 1, *state[kind + 1 :])
        if not self.rule(after):
            return {(None, None): ONE}
        machine = self.kinds[kind]
        law: dict[tuple[Hashable, Counts | None], Fraction] = {}
        for start, chance in machine.initial().items():
            for (answer, _), more in machine.step(start, bit).items():
                law[answer, after] = law.get((answer, after), Fraction(0)) + chance * more
        return law


@dataclass(frozen=True)
class SecretBit:
    """Every message carries the secret: the data set is the bit, and all mechanisms are asked about it."""

    kinds: int

    def moves(self) -> Iterator[tuple[tuple[Any, Any], "SecretBit"]]:
        """A mechanism of any kind."""
        for kind in range(self.kinds):
            yield ((kind, 0), (kind, 1)), self


def least_epsilon(odds: Fraction) -> Fraction:
    """ln(odds), rounded up to 10^-12: what RR with these odds is charged."""
    up = Fraction(math.ceil(math.log(odds) * 10**12) + 1, 10**12)
    assert math.log(odds) < up
    return up


def below_log(ratio: Fraction) -> Fraction:
    """A little less than ln(ratio): what exact_delta finds at `ratio` is at most the delta there."""
    return Fraction(math.floor(math.log(ratio) * 10**12) - 1, 10**12)
