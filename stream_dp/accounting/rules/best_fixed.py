"""Concurrent composition of fixed mechanisms or parameters at a granted delta: the optimal epsilon.

[HSV] Thm 4.10, 4.12: a guarantee of RR_(e1,d1) x ... x RR_(ek,dk) holds for the composition. `optimal` computes the
least epsilon at the granted delta; it is never above the sum.
"""

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.optimal import least_epsilon, precision, spare
from stream_dp.accounting.rules.fixed import fixed_before, paid, parts_delta
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    dp,
    epsilon_of,
    same_neighbors,
    stated,
)
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def optimum(epsilons: Sequence[Fraction], own: Fraction, granted: Fraction) -> Measure:
    """Return the optimum of RR_(e1,d1) x ... x RR_(ek,dk) at a granted delta, `own` = 1 - prod(1 - d); at most the
    sum.

    Raises:
        NotDerivable: delta reaches 1, so nothing is promised.
    """
    epsilon = least_epsilon(epsilons, spare(granted, own))
    return dp(epsilon, granted if epsilon < sum(epsilons) else own)


def _conditions(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    found = paid(premises, situation)
    known = stated(found)
    left = spare(situation.delta, parts_delta(found)) if known.holds else Fraction(0)
    why = (
        f"{text(situation.delta)} is granted, more than the parts' own deltas"
        if left > 0
        else "none is granted beyond the parts' own, so nothing is below the sum"
    )
    checked = (
        fixed_before(premises, situation),
        known,
        same_neighbors(premises),
        Condition("delta", left > 0 or not known.holds, why),
    )
    if not all(c.holds for c in checked):
        return checked
    how = precision([epsilon_of(m) for m in found], left)
    return (*checked, Condition("rounding", True, how))


def _measure(premises: Premises, situation: Fixed) -> Measure:
    found = paid(premises, situation)
    return optimum([epsilon_of(m) for m in found], parts_delta(found), situation.delta)


optimal = Rule(
    "optimal concurrent composition",
    "[HSV] Thm 4.10 with Kairouz-Oh-Viswanath, Murtagh-Vadhan",
    _conditions,
    _measure,
    finite=all_finite,
)
