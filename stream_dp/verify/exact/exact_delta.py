"""The exact privacy of a finite mechanism against every adaptive adversary, by backward recursion over transcripts.

L_t of a transcript is the supremum over the next f-valid pair of queries of the sum over its answers of L_(t+1), and
at the end max(0, mu_b - e^eps mu_(1-b)) ([HSV] Def 10.2, 10.3; Claim 10.5 and Lemma 5.6: sup L_1 is the least delta).
The supremum is taken after each answer, so deterministic adversaries suffice. Hidden states are carried as the joint
measure, an exact mass per state under b = 0 and under b = 1. The value is homogeneous in it, so it is memoised on the
measure scaled to mass 1. Rules: e^eps is a rational and nothing is rounded; noise is never truncated silently. This
file knows no mechanism.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Pairs

Measure: TypeAlias = dict[Any, Fraction]
Joint: TypeAlias = tuple[Measure, Measure]
Two: TypeAlias = tuple[Fraction, Fraction]
Amount: TypeAlias = Fraction | float  # inf where one copy can answer what the other cannot
ZERO, ONE = Fraction(0), Fraction(1)


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


def masses(joint: Joint) -> Two:
    return sum(joint[0].values(), ZERO), sum(joint[1].values(), ZERO)


def beginning(machine: FiniteMachine[Any, Any]) -> Joint:
    start = machine.initial()
    return dict(start), dict(start)


@dataclass(slots=True)
class Worst:
    """Suprema over all adversaries; each of the figures that `end` reads off a transcript's two masses by itself.

    `additive`: figures add up over the answers and are homogeneous of degree 1 in the masses; else the largest
    answer counts, and the degree is 0. `cut`: the laws may leave out some mass (else ValueError where one does).
    """

    machine: FiniteMachine[Any, Any]
    end: Callable[[Two], tuple[Any, ...]]
    additive: bool = True
    cut: bool = False
    memo: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict)

    def value(self, joint: Joint, pairs: Pairs, rounds: int) -> tuple[Any, ...]:
        """Return the suprema at a joint measure before `rounds` more messages."""
        mass = masses(joint)
        if rounds == 0 or ZERO in mass:  # no further message can add to the value
            return self.end(mass)
        total = mass[0] + mass[1]
        zero, one = ({state: m / total for state, m in measure.items()} for measure in joint)
        key = (frozenset(zero.items()), frozenset(one.items()), pairs, rounds)
        if key not in self.memo:
            self.memo[key] = self._best((zero, one), pairs, rounds)
        if not self.additive:
            return self.memo[key]
        return tuple(figure * total for figure in self.memo[key])

    def _best(self, joint: Joint, pairs: Pairs, rounds: int) -> tuple[Any, ...]:
        """Return the suprema over the next pair; stopping is never better, and forced where no pair is left."""
        best = self.end(masses(joint))
        for pair, after in pairs.moves():
            parts = by_answer(self.machine, joint, pair).values()
            if not self.cut and sum(sum(masses(part)) for part in parts) != 1:
                raise ValueError("the machine's laws leave out some mass")
            figures = [self.value(part, after, rounds - 1) for part in parts]
            if self.additive:
                figures = [tuple(map(sum, zip(self.end((ZERO, ZERO)), *figures, strict=True)))]
            best = tuple(map(max, zip(best, *figures, strict=True)))
        return best


def exact_moment(machine: FiniteMachine[Any, Any], pairs: Pairs, order: int, rounds: int) -> Amount:
    """Return e^((order-1) eps) for the least eps with which `machine` is (order, eps)-RDP w.r.t. `pairs`.

    The game has `rounds` messages. The moment e^((order-1) D) of two laws is the sum over transcripts of P^order
    Q^(1-order) ([HSV] Def 13.1). That term is homogeneous of degree 1 in the joint measure (P, Q), so the recursion
    of delta gives the supremum over adversaries (Def 13.3). Whole orders only, so moments are rational.

    Raises:
        ValueError: the order is below 2, or the laws leave out some mass.
    """
    if order < 2:
        raise ValueError(f"the order is 2 or more, got {order}")

    def moment(p: Fraction, q: Fraction) -> Amount:
        if p == 0 or q == 0:
            return math.inf if p else ZERO
        return p**order / q ** (order - 1)

    worst = Worst(machine, lambda mass: (moment(*mass), moment(*mass[::-1])))
    moments: tuple[Amount, ...] = worst.value(beginning(machine), pairs, rounds)
    return max(moments)


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
    bracket = delta_bracket(machine, pairs, ratio, rounds)
    if bracket.lower != bracket.upper:
        raise ValueError("the machine's laws leave out some mass; use delta_bracket")
    return bracket.upper


def delta_bracket(
    machine: FiniteMachine[Any, Any], pairs: Pairs, ratio: Fraction, rounds: int
) -> Bracket:
    """Return bounds of the least delta where the laws leave out some mass.

    An adversary's delta grows by at most the mass left out under b, and shrinks by at most e^eps times the mass
    left out under 1 - b.
    """
    if ratio < 1:
        raise ValueError(f"e^eps is at least 1, got {ratio}")
    *deltas, gone0, gone1 = control(machine, ratio).value(beginning(machine), pairs, rounds)
    gone = 1 + gone0, 1 + gone1
    lower = max(ZERO, *(deltas[b] - ratio * gone[1 - b] for b in (0, 1)))
    return Bracket(lower, min(ONE, max(deltas[b] + gone[b] for b in (0, 1))))


def control(machine: FiniteMachine[Any, Any], ratio: Fraction) -> Worst:
    """Return the control functions L^0 and L^1 of [HSV] Def 10.3, then the least masses that the laws keep, negated."""

    def end(mass: Two) -> tuple[Fraction, ...]:
        p, q = mass
        return max(ZERO, p - ratio * q), max(ZERO, q - ratio * p), -p, -q

    return Worst(machine, end, cut=True)


def worst_ratio(machine: FiniteMachine[Any, Any], pairs: Pairs, rounds: int) -> Amount:
    """Return e^eps of the least eps with which the machine is eps-DP: the largest ratio of a transcript, maybe inf.

    Raises:
        ValueError: the laws do not add up to 1.
    """

    def end(mass: Two) -> tuple[Amount]:
        p, q = mass
        return (math.inf if ZERO in mass else max(p / q, q / p),)

    worst = Worst(machine, end, additive=False)
    ratios: tuple[Amount, ...] = worst.value(beginning(machine), pairs, rounds)
    return max(ratios)
