"""The joint measure of an adversary's view: a mass per hidden state under b = 0 and under b = 1.

Rules: masses are exact. The recursions over transcripts (`exact_delta`, `exact_renyi`) share this code; it knows no
adversary and no divergence.
"""

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine

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
    """Return the total mass of a joint measure, under b = 0 and b = 1."""
    return sum(measure.values(), ZERO)


def rescaled(joint: Joint, by: Fraction) -> Joint:
    """Return the joint measure multiplied by `by`."""
    zero, one = ({state: mass * by for state, mass in measure.items()} for measure in joint)
    return zero, one


def frozen(joint: Joint) -> Hashable:
    """Return a joint measure in a hashable form."""
    return frozenset(joint[0].items()), frozenset(joint[1].items())
