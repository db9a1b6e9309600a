"""Concurrent composition of fixed mechanisms or parameters at a granted delta: the optimal epsilon.

[HSV] Thm 4.10, 4.12: whatever holds for RR_(e1,d1) x ... x RR_(ek,dk) holds. The least epsilon at the granted delta is
that of `optimal`; it is never above the sum.
"""

from fractions import Fraction

from stream_dp.accounting.amounts import text
from stream_dp.accounting.optimal import kept, least_epsilon, precision, spare
from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    delta_of,
    dp,
    epsilon_of,
    same_neighbors,
    stated,
)
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def _conditions(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    found = paid(premises, situation)
    known = stated(found)
    left = spare(situation.delta, [delta_of(m) for m in found]) if known.holds else Fraction(0)
    own = (
        f"{text(situation.delta)} is granted, more than the parts' own deltas"
        if left > 0
        else "none is granted beyond the parts' own, so nothing is below the sum"
    )
    checked = (
        fixed_before(premises, situation),
        known,
        same_neighbors(premises),
        Condition("delta", left > 0 or not known.holds, own),
    )
    if not all(c.holds for c in checked):
        return checked
    how = precision([epsilon_of(m) for m in found], left)
    return (*checked, Condition("rounding", True, how))


def _measure(premises: Premises, situation: Fixed) -> Measure:
    found = paid(premises, situation)
    deltas, epsilons = [delta_of(m) for m in found], [epsilon_of(m) for m in found]
    epsilon = least_epsilon(epsilons, spare(situation.delta, deltas))
    total = sum(epsilons, Fraction(0))
    return dp(epsilon, situation.delta if epsilon < total else 1 - kept(deltas))


optimal = Rule(
    "optimal concurrent composition",
    "[HSV] Thm 4.10 with Kairouz-Oh-Viswanath, Murtagh-Vadhan",
    _conditions,
    _measure,
)
