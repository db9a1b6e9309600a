"""`derive` tries every rule for a situation, takes the tightest, and keeps the others beside it with their prices.

Rules: the tightest rule has the least epsilon at the delta that the situation grants. Among theorems about one fixed
situation, each of which holds, this choice is allowed; among filters it is not. A measure without an epsilon at that
delta is compared at the delta at which the situation will be stated, and stays as it is. If no rule applies, the
refusal names the failed conditions of each rule. Rules are looked up by the exact class of the situation, and premises
must be exactly derivations. This file knows no mechanism.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from stream_dp.accounting.rules.fixed import concurrent, filtered, optimal
from stream_dp.accounting.rules.gaussian import gaussian, gaussian_first_pair
from stream_dp.accounting.rules.groups import (
    first_arrivals,
    group,
    moved,
    of_users,
    shared_totals,
    user_totals,
)
from stream_dp.accounting.rules.parallel import (
    first_pair,
    first_pair_renyi,
    first_pair_zcdp,
    local,
    sparse_delta,
    sparse_pure,
)
from stream_dp.accounting.rules.renyi import renyi, truncated, zcdp
from stream_dp.accounting.rules.rule import Premises, Rule, at_delta, composite, price
from stream_dp.accounting.rules.time import ticks
from stream_dp.accounting.situations import (
    Composite,
    Filtered,
    FirstArrivals,
    Fixed,
    Group,
    Local,
    Moved,
    OfUsers,
    Parallel,
    SharedTotals,
    Situation,
    Ticks,
    UserTotals,
)
from stream_dp.core.derivation import Alternative, Derivation, require_exactly
from stream_dp.errors import BrokenCondition, NotDerivable

RULES: dict[type[Any], tuple[Rule[Any], ...]] = {
    Fixed: (concurrent, optimal, zcdp, renyi, gaussian, truncated),
    Parallel: (
        sparse_pure, first_pair, sparse_delta, first_pair_zcdp, first_pair_renyi, gaussian_first_pair,
    ),
    Composite: (composite,),
    Local: (local,),
    Filtered: (filtered,),
    Group: (group,),
    Moved: (moved,),
    OfUsers: (of_users,),
    FirstArrivals: (first_arrivals,),
    UserTotals: (user_totals,),
    SharedTotals: (shared_totals,),
    Ticks: (ticks,),
}  # fmt: skip


def derive(premises: Premises, situation: Situation) -> Derivation:
    """Return the derivation of the tightest guarantee of the premises in this situation.

    Where a delta is granted, the result is (epsilon, delta)-DP. Among rules of equal price the first in the list is
    taken.

    Raises:
        NotDerivable: no rule applies (the message says which condition of each does not hold), or no rule is about
            the class of a premise or of the situation.
    """
    for premise in premises:
        require_exactly(premise, Derivation, "a premise")
    rules = RULES.get(type(situation))
    if rules is None:
        raise NotDerivable(f"no rule derives a guarantee for a {type(situation).__name__}")
    delta: Fraction = getattr(situation, "delta", Fraction(0))
    stated: Fraction = getattr(situation, "stated", Fraction(0))
    derived: list[Derivation] = []
    refused: list[tuple[Rule[Any], NotDerivable]] = []
    for rule in rules:
        try:
            derived.append(rule(premises, situation))
        except NotDerivable as refusal:
            refused.append((rule, refusal))
    if not derived:
        raise NotDerivable(_refusal(situation, refused))
    best = min(derived, key=lambda candidate: _order(candidate, delta, stated))
    beside = [
        Alternative(d.rule, d.source, (at_delta(d, delta) if delta else d).guarantee)
        for d in derived
        if d is not best
    ]
    beside += [Alternative(r.name, r.source, _reason(why)) for r, why in refused]
    taken = replace(best, alternatives=tuple(beside))
    return at_delta(taken, delta) if delta else taken


def _order(candidate: Derivation, delta: Fraction, stated: Fraction) -> tuple[bool, Fraction]:
    """Return the sort key: the price at `delta`; derivations without one come last, by price at `stated`."""
    measure = candidate.guarantee.measure
    epsilon = price(measure, delta)
    return epsilon is None, (price(measure, stated) if epsilon is None else epsilon) or Fraction(0)


def _refusal(situation: Situation, refused: list[tuple[Rule[Any], NotDerivable]]) -> str:
    if len(refused) == 1:
        return str(refused[0][1])
    reasons = "; ".join(f"{rule.source}: {_reason(why)}" for rule, why in refused)
    return f"{situation.subject}: no rule applies. {reasons}"


def _reason(refusal: NotDerivable) -> str:
    return refusal.reason if isinstance(refusal, BrokenCondition) else str(refusal)
