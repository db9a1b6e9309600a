"""k-sparse parallel composition of first-pair consistent mechanisms ([HSV] Def 5.12, Thm 5.14; Cor 5.15; Thm 13.6).

A part whose first pair of messages is equal gets equal pairs for ever, as with a static data set. So only touched
parts cost anything, deltas included: RR_(e1,d1) x ... x RR_(ek,dk) over the k most expensive parts. The k largest
epsilons together with the k largest deltas are at least as bad as any k parts, as the composition's delta grows
with both.
"""

from fractions import Fraction

from stream_dp.accounting.optimal import joint_delta
from stream_dp.accounting.rules.best_fixed import optimum
from stream_dp.accounting.rules.orders import all_orders, at, curve, one_order, orders, rhos
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    delta_of,
    epsilon_of,
    measures,
    same_neighbors,
    stated,
    within,
)
from stream_dp.accounting.rules.sparse import counted_finite, first_pair_consistent, sparse, worst
from stream_dp.accounting.situations import Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import ZCDP, Measure, RenyiDP


def _touched_delta(premises: Premises, situation: Parallel) -> Fraction:
    """Return the joint delta of the k largest deltas."""
    return joint_delta(worst([delta_of(m) for m in measures(premises)], situation))


def _conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    known, counted = stated(measures(premises)), sparse(premises, situation)
    consistent = first_pair_consistent(situation, "[HSV] Thm 5.2")
    if not known.holds or not counted.holds:
        return known, counted, consistent
    own = _touched_delta(premises, situation)
    return known, counted, consistent, within(own, situation.delta), same_neighbors(premises)


def _measure(premises: Premises, situation: Parallel) -> Measure:
    epsilons = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(epsilons, _touched_delta(premises, situation), situation.delta)


def _renyi_conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    consistent = first_pair_consistent(situation, "[HSV] Thm 13.5")
    found = measures(premises)
    return one_order(found), sparse(premises, situation), consistent, same_neighbors(premises)


def _renyi(premises: Premises, situation: Parallel) -> Measure:
    found = measures(premises)
    return curve(
        [
            RenyiDP(a, sum(worst([at(m, a) for m in found], situation), Fraction(0)))
            for a in orders(found)
        ]
    )


def _zcdp_conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    consistent = first_pair_consistent(situation, "[HSV] Thm 13.5")
    found = measures(premises)
    return all_orders(found), sparse(premises, situation), consistent, same_neighbors(premises)


def _zcdp(premises: Premises, situation: Parallel) -> Measure:
    return ZCDP(sum(worst(rhos(measures(premises)), situation), Fraction(0)))


first_pair = Rule(
    "first-pair consistent parallel composition",
    "[HSV] Thm 5.14",
    _conditions,
    _measure,
    finite=counted_finite,
)
first_pair_renyi = Rule(
    "first-pair consistent parallel composition in Renyi DP",
    "[HSV] Thm 13.6",
    _renyi_conditions,
    _renyi,
    finite=counted_finite,
)
first_pair_zcdp = Rule(
    "first-pair consistent parallel composition in zCDP",
    "[HSV] Thm 13.6 at every order",
    _zcdp_conditions,
    _zcdp,
    finite=counted_finite,
)
