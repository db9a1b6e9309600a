"""Concurrent composition in Renyi DP, for fixed parameters: the epsilons at one order add up ([HSV] Cor 13.4).

At every order of a curve at once, as each is a statement of its own; and at all orders for zCDP, whose bound rho alpha
is fixed for each alpha before, so that the rhos add up.
"""

from fractions import Fraction

from stream_dp.accounting.rules.fixed import fixed_before, paid
from stream_dp.accounting.rules.orders import all_orders, at, curve, one_order, orders, rhos
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, same_neighbors
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import ZCDP, Measure, RenyiDP


def _at_orders(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    return fixed_before(premises, situation), one_order(parts), same_neighbors(premises)


def _sums(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    return curve([RenyiDP(a, sum((at(m, a) for m in parts), Fraction(0))) for a in orders(parts)])


def _everywhere(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    return fixed_before(premises, situation), all_orders(parts), same_neighbors(premises)


def _rho(premises: Premises, situation: Fixed) -> Measure:
    return ZCDP(sum(rhos(paid(premises, situation)), Fraction(0)))


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
