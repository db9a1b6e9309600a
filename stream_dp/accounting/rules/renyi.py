"""Concurrent composition in Renyi DP, for fixed parameters: the epsilons at one order add up ([HSV] Cor 13.4).

The sum holds at every order of a curve, because each order is a separate statement, and at all orders for zCDP,
whose bound rho alpha is fixed for each alpha in advance, so the rhos add up. The rhos of truncated zCDP add up
below omega ([Lyu] Cor 1), and the least omega of the parts remains.
"""

from fractions import Fraction

from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.orders import (
    all_orders,
    at,
    concentrated,
    curve,
    one_order,
    orders,
    rhos,
)
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, same_neighbors
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import ZCDP, Measure, RenyiDP, TruncatedZCDP


def _at_orders(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    known = one_order(parts, situation.order)
    return fixed_before(premises, situation), known, same_neighbors(premises)


def _sums(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    shared = orders(parts, situation.order)
    return curve([RenyiDP(a, sum((at(m, a) for m in parts), Fraction(0))) for a in shared])


def _everywhere(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    return fixed_before(premises, situation), all_orders(parts), same_neighbors(premises)


def _rho(premises: Premises, situation: Fixed) -> Measure:
    return ZCDP(sum(rhos(paid(premises, situation)), Fraction(0)))


def _truncated(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    some = any(isinstance(m, TruncatedZCDP) for m in parts)
    known = all(isinstance(m, TruncatedZCDP) or concentrated(m) is not None for m in parts)
    why = (
        "a part is neither tCDP, zCDP nor pure"
        if not known
        else "every part has a rho below the least omega"
        if some
        else "no part is tCDP"
    )
    checked = Condition("tCDP", known and some, why)
    return fixed_before(premises, situation), checked, same_neighbors(premises)


def _below(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    cut = [m for m in parts if isinstance(m, TruncatedZCDP)]
    whole = rhos(tuple(m for m in parts if not isinstance(m, TruncatedZCDP)))
    return TruncatedZCDP(
        sum((m.rho for m in cut), Fraction(0)) + sum(whole, Fraction(0)),
        min(m.omega for m in cut),
    )


renyi = Rule(
    "concurrent composition in Renyi DP", "[HSV] Cor 13.4", _at_orders, _sums, finite=all_finite
)
zcdp = Rule(
    "concurrent composition in zCDP",
    "[HSV] Cor 13.4 at every order",
    _everywhere,
    _rho,
    finite=all_finite,
)
truncated = Rule(
    "concurrent composition in truncated zCDP",
    "[Lyu] Cor 1, [HSV] Cor 13.4 at every order below omega",
    _truncated,
    _below,
    finite=all_finite,
)
