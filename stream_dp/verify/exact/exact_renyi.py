"""The exact Renyi privacy of a finite mechanism at a whole order, against every adaptive adversary.

The moment e^((order-1) D) of two laws is the sum over transcripts of P^order Q^(1-order) ([HSV] Def 13.1). That
term is homogeneous of degree 1 in the joint measure (P, Q), so the same backward recursion as for delta ([HSV] Def
10.3) gives the supremum over adversaries ([HSV] Def 13.3): the supremum, over the next pair of queries, of the sum
over its answers. Rules: whole orders only, so moments are rational; laws must add up to 1. This file knows no
mechanism.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.verify.exact.finite import FiniteMachine, Pairs
from stream_dp.verify.exact.joint import ZERO, Joint, by_answer, frozen, mass_of, rescaled

Moment: TypeAlias = Fraction | float  # inf where one copy can answer what the other cannot


def exact_moment(machine: FiniteMachine[Any, Any], pairs: Pairs, order: int, rounds: int) -> Moment:
    """Return e^((order-1) eps) of the least eps with which `machine` is (order, eps)-RDP w.r.t. `pairs` in `rounds`
    messages.

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
