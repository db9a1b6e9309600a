"""The exact privacy of a finite mechanism against every adaptive adversary, by backward recursion over transcripts.

L_t of a transcript is the supremum over the next f-valid pair of queries of the sum over its answers of L_(t+1), and
at the end max(0, mu_b - e^eps mu_(1-b)) ([HSV] Def 10.2, 10.3; Claim 10.5 and Lemma 5.6: sup L_1 is the least delta).
The supremum is taken after each answer, so deterministic adversaries suffice. Hidden states are carried as the joint
measure, an exact mass per state under b = 0 and under b = 1. The value is homogeneous in it, so it is memoised on the
measure scaled to mass 1. `exact_moment` does the same for Renyi DP. Rules: e^eps is a rational and nothing is rounded;
noise is never truncated silently. This file knows no mechanism.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Pairs

Measure: TypeAlias = dict[Any, Fraction]
Joint: TypeAlias = tuple[Measure, Measure]
ZERO = Fraction(0)


def by_answer(
    machine: FiniteMachine[Any, Any], joint: Joint, pair: tuple[Any, Any]
) -> Mapping[Hashable, Joint]:
    """Return the joint measure after `pair`, split by the answer."""
    split: dict[Hashable, Joint] = {}
    for b in (0, 1):
        for state, mass in joint[b].items():
            for (answer, after), chance in machine.step(state, pair[b]).items():
                if chance:
                    part = split.setdefault(answer, ({}, {}))[b]
                    part[after] = part.get(after, ZERO) + mass * chance
    return split


def mass_of(measure: Measure) -> Fraction:
    return sum(measure.values(), ZERO)


def rescaled(joint: Joint, by: Fraction) -> Joint:
    zero, one = ({state: mass * by for state, mass in measure.items()} for measure in joint)
    return zero, one


def frozen(joint: Joint) -> Hashable:
    return frozenset(joint[0].items()), frozenset(joint[1].items())


Moment: TypeAlias = Fraction | float  # inf where one copy can answer what the other cannot


def exact_moment(machine: FiniteMachine[Any, Any], pairs: Pairs, order: int, rounds: int) -> Moment:
    """Return e^((order-1) eps) for the least eps with which `machine` is (order, eps)-RDP w.r.t. `pairs`.

    The game has `rounds` messages. The moment e^((order-1) D) of two laws is the sum over transcripts of P^order
    Q^(1-order) ([HSV] Def 13.1). That term is homogeneous of degree 1 in the joint measure (P, Q), so the recursion
    of delta gives the supremum over adversaries (Def 13.3). Whole orders only, so moments are rational.

    Raises:
        ValueError: the order is below 2, or the laws leave out some mass.
    """
    if order < 2:
        raise ValueError(f"the order is 2 or more, got {order}")
    start = dict(machine.initial())
    return max(
        _Moments(machine, order, b).value((start, dict(start)), pairs, rounds) for b in (0, 1)
    )


@dataclass(slots=True)
class _Moments:
    """The supremum of the sum over transcripts of mu_b^order mu_(1-b)^(1-order)."""

    machine: FiniteMachine[Any, Any]
    order: int
    b: int
    memo: dict[Hashable, Moment] = field(default_factory=dict)

    def value(self, joint: Joint, pairs: Pairs, rounds: int) -> Moment:
        p, q = mass_of(joint[self.b]), mass_of(joint[1 - self.b])
        if p == 0:
            return ZERO
        if q == 0:
            return math.inf
        if rounds == 0:
            return p**self.order / q ** (self.order - 1)
        scaled = rescaled(joint, 1 / (p + q))
        key = (frozen(scaled), pairs, rounds)
        if key not in self.memo:
            self.memo[key] = self._best(scaled, pairs, rounds)
        return self.memo[key] * (p + q)

    def _best(self, joint: Joint, pairs: Pairs, rounds: int) -> Moment:
        best = self.value(joint, pairs, 0)
        for pair, after in pairs.moves():
            parts = by_answer(self.machine, joint, pair).values()
            if sum((mass_of(p[0]) + mass_of(p[1]) for p in parts), ZERO) != 1:
                raise ValueError("the machine's laws leave out some mass")
            found: Moment = ZERO
            for part in parts:
                found += self.value(part, after, rounds - 1)
            best = max(best, found)
        return best


ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Bracket:
    """lower <= least delta <= upper."""

    lower: Fraction
    upper: Fraction


def exact_delta(
    machine: FiniteMachine[Any, Any], pairs: Pairs, ratio: Fraction, rounds: int
) -> Fraction:
    """Return the least delta with which `machine` is (ln ratio, delta)-DP w.r.t. `pairs` over `rounds` messages.

    Both directions of [HSV] Def 3.7 count. `ratio` is e^eps, an exact rational.

    Raises:
        ValueError: `ratio` < 1, or the laws do not add up to 1 (use `delta_bracket`).
    """
    found = delta_bracket(machine, pairs, ratio, rounds)
    if found.lower != found.upper:
        raise ValueError("the machine's laws leave out some mass; use delta_bracket")
    return found.upper


def delta_bracket(
    machine: FiniteMachine[Any, Any], pairs: Pairs, ratio: Fraction, rounds: int
) -> Bracket:
    """Return bounds of the least delta where the laws leave out some mass.

    An adversary's delta grows by at most the mass left out under b, and shrinks by at most e^eps times the mass
    left out under 1 - b.
    """
    if ratio < 1:
        raise ValueError(f"e^eps is at least 1, got {ratio}")
    start = dict(machine.initial())
    lower = upper = ZERO
    for b in (0, 1):
        value = Control(machine, ratio, b).value((start, dict(start)), pairs, rounds)
        low = value.delta - ratio * (1 - value.kept[1 - b])
        lower, upper = max(lower, low), max(upper, value.delta + 1 - value.kept[b])
    return Bracket(lower, min(upper, ONE))


def worst_ratio(machine: FiniteMachine[Any, Any], pairs: Pairs, rounds: int) -> Fraction | float:
    """Return e^eps of the least eps with which the machine is eps-DP: the largest ratio of a transcript, maybe inf.

    Raises:
        ValueError: the laws do not add up to 1.
    """
    start = dict(machine.initial())
    memo: dict[Hashable, Fraction | float] = {}
    return _ratio(machine, (start, dict(start)), pairs, rounds, memo)


@dataclass(frozen=True, slots=True)
class _Value:
    """`delta`: the control function. `kept`: the least mass that is not left out, under b = 0 and b = 1."""

    delta: Fraction
    kept: tuple[Fraction, Fraction]

    def scaled(self, by: Fraction) -> "_Value":
        return _Value(self.delta * by, (self.kept[0] * by, self.kept[1] * by))


@dataclass(slots=True)
class Control:
    """The control function L^b of [HSV] Def 10.3, as a function of the normalised joint measure."""

    machine: FiniteMachine[Any, Any]
    ratio: Fraction
    b: int
    memo: dict[Hashable, _Value] = field(default_factory=dict)

    def value(self, joint: Joint, pairs: Pairs, rounds: int) -> _Value:
        """Return L^b at a joint measure before `rounds` more messages, and the least mass that the laws keep."""
        mass = (mass_of(joint[0]), mass_of(joint[1]))
        here = _Value(max(ZERO, mass[self.b] - self.ratio * mass[1 - self.b]), mass)
        if rounds == 0 or ZERO in mass:  # no further message can add to the value
            return here
        total = mass[0] + mass[1]
        scaled = rescaled(joint, 1 / total)
        key = (frozen(scaled), pairs, rounds)
        if key not in self.memo:
            self.memo[key] = self._best(scaled, pairs, rounds, here.scaled(1 / total))
        return self.memo[key].scaled(total)

    def _best(self, joint: Joint, pairs: Pairs, rounds: int, here: _Value) -> _Value:
        """Return the supremum over the next pair; stopping is never better, and forced where no pair is left."""
        best = here
        for pair, after in pairs.moves():
            parts = [
                self.value(part, after, rounds - 1)
                for part in by_answer(self.machine, joint, pair).values()
            ]
            kept0, kept1 = (sum((p.kept[c] for p in parts), ZERO) for c in (0, 1))
            best = _Value(
                max(best.delta, sum((p.delta for p in parts), ZERO)),
                (min(best.kept[0], kept0), min(best.kept[1], kept1)),
            )
        return best


def _ratio(
    machine: FiniteMachine[Any, Any],
    joint: Joint,
    pairs: Pairs,
    rounds: int,
    memo: dict[Hashable, Fraction | float],
) -> Fraction | float:
    mass = (mass_of(joint[0]), mass_of(joint[1]))
    if ZERO in mass:
        return math.inf
    here = max(mass[0] / mass[1], mass[1] / mass[0])
    if rounds == 0:
        return here
    scaled = rescaled(joint, 1 / (mass[0] + mass[1]))
    key = (frozen(scaled), pairs, rounds)
    if key not in memo:
        worst: Fraction | float = here
        for pair, after in pairs.moves():
            parts = by_answer(machine, scaled, pair)
            if sum((mass_of(p[0]) + mass_of(p[1]) for p in parts.values()), ZERO) != 1:
                raise ValueError("the machine's laws leave out some mass")
            for part in parts.values():
                worst = max(worst, _ratio(machine, part, after, rounds - 1, memo))
        memo[key] = worst
    return memo[key]
