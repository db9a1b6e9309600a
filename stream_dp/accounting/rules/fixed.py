"""Concurrent composition of fixed mechanisms ([HSV] Thm 4.10) or of fixed parameters (Thm 4.12): the sum.

RR_(e1,d1) x ... x RR_(ek,dk) is (sum e, 1 - prod(1 - d))-DP. For pure parts the sum of the epsilons is the optimum at
delta 0: the product of randomized responses attains it.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.optimal import joint_delta
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    delta_of,
    dp,
    epsilon_of,
    measures,
    same_neighbors,
    stated,
    within,
)
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def paid(premises: Premises, situation: Fixed) -> tuple[Measure, ...]:
    """Return the measures to pay for: those of the parts, or all parameters that were fixed for them."""
    return measures(premises) if situation.parameters is None else situation.parameters


def parts_delta(found: Sequence[Measure]) -> Fraction:
    """Return the joint delta of the parts."""
    return joint_delta(delta_of(m) for m in found)


def fixed_before(premises: Premises, situation: Fixed) -> Condition:
    """Check that mechanisms are fixed, or parameters a sub-multiset of fixed ones ([HSV] Def 4.11 (ii))."""
    if situation.parameters is None:
        return Condition(
            "fixed", True, "mechanisms and parameters are fixed before the first event"
        )
    over = Counter(measures(premises)) - Counter(situation.parameters)
    why = (
        f"{over.total()} part(s) are not among the parameters that were fixed before"
        if over
        else f"the parts' parameters are among the {len(situation.parameters)} fixed before (Thm 4.12)"
    )
    return Condition("fixed", not over, why)


def _conditions(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    found = paid(premises, situation)
    known = stated(found)
    own = parts_delta(found) if known.holds else Fraction(0)
    return (
        fixed_before(premises, situation),
        known,
        same_neighbors(premises),
        within(own, situation.delta),
    )


def _measure(premises: Premises, situation: Fixed) -> Measure:
    found = paid(premises, situation)
    return dp(sum((epsilon_of(m) for m in found), Fraction(0)), parts_delta(found))


concurrent = Rule(
    "concurrent composition", "[HSV] Thm 4.10", _conditions, _measure, finite=all_finite
)
