"""k-sparse parallel composition: many mechanisms, of which two neighbouring runs touch at most k.

There is one rule for pure parts, one with a delta budget, and rules for first-pair consistent parts. [HSV] Def 5.1
fixes the k parameters before. Here they are the k worst of all parts that may be created; a part takes, when it is
first touched, the smallest free parameter that covers it. RR_e follows from RR_e' for e' >= e. The order of the
requests does not matter: a smaller parameter never covers a part that a larger one does not.
"""

import math
from fractions import Fraction

from stream_dp.accounting.optimal import joint_delta
from stream_dp.accounting.rules.fixed import optimum
from stream_dp.accounting.rules.renyi import all_orders, at, curve, one_order, orders, rhos
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    delta_of,
    epsilon_of,
    measures,
    pure,
    same_neighbors,
    stated,
    within,
)
from stream_dp.accounting.situations import Local, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import ZCDP, Measure, RenyiDP


def sparse(premises: Premises, situation: Parallel) -> Condition:
    """Check that k >= 1, that k is for the parts' relation, and that every kind has a number of creations."""
    touched = situation.touched
    name = f"{touched.k}-sparse"
    relations = {p.guarantee.neighbors for p in premises}
    if touched.k < 1:
        return Condition(name, False, f"k must be at least 1 ({touched.why})")
    if len(situation.creations) != len(premises):
        return Condition(
            name,
            False,
            f"{len(premises)} kind(s), but {len(situation.creations)} creation count(s)",
        )
    if any(n is not None and n < 1 for n in situation.creations):
        return Condition(name, False, "a kind is created less than once")
    if relations != {touched.neighbors}:
        found = ", ".join(sorted(map(str, relations)))
        return Condition(
            name, False, f"counted for {touched.neighbors}, but the parts protect under {found}"
        )
    if any(p.guarantee.unit for p in premises):
        return Condition(
            name, False, "counted for one event, but the parts protect groups or users"
        )
    return Condition(name, True, touched.why)


def counted_finite(premises: Premises, situation: Parallel) -> bool:
    """Say whether communication is finite: each part's is, and so is the number of parts of each kind."""
    return all_finite(premises, situation) and None not in situation.creations


def worst(amounts: list[Fraction], situation: Parallel) -> list[Fraction]:
    """Return the k largest amounts of all that may be created; sorted, they dominate those of any k touched parts."""
    pairs = zip(amounts, situation.counts, strict=True)
    every = sorted((amount for amount, n in pairs for _ in range(n)), reverse=True)
    return every[: situation.touched.k]


def first_pair_consistent(situation: Parallel, broken_by: str) -> Condition:
    """Check that a part's first pair decides whether its pairs differ at all ([HSV] Def 5.12)."""
    why = situation.first_pair
    return Condition(
        "first-pair consistent",
        bool(why),
        why or f"the parts take updates that may differ later on, and {broken_by} breaks the rule",
    )


# Cor 5.5: k touched pure mechanisms cost what the k most expensive ones cost together: the sum at delta 0, the optimum
# of RR_(e1,0) x ... x RR_(ek,0) at a granted delta.


def _sparse_pure_conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    forbidden = "a part is not pure DP, and [HSV] Thm 5.2 forbids delta > 0 here"
    return pure(premises, forbidden), sparse(premises, situation), same_neighbors(premises)


def _sparse_pure_measure(premises: Premises, situation: Parallel) -> Measure:
    touched = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(touched, Fraction(0), situation.delta)


sparse_pure = Rule(
    "sparse parallel composition",
    "[HSV] Cor 5.5",
    _sparse_pure_conditions,
    _sparse_pure_measure,
    finite=counted_finite,
)

# Def 5.3, Thm 5.4: the epsilons count for the k touched parts only, the deltas for every creation (`created`). The two
# combine as 1 - (1 - delta)(1 - delta'), as in the proof; the theorem as printed says delta + delta'.


def created(premises: Premises, situation: Parallel) -> Fraction:
    """Return delta' = 1 - prod(1 - delta_j) over every creation, because a part may fail without being touched.

    Kinds without a delta may be created without bound. For other kinds delta' would reach 1, so the rule refuses
    them ([HSV] Thm 5.2).
    """
    kinds = zip(measures(premises), situation.creations, strict=True)
    return 1 - math.prod(
        ((1 - delta_of(m)) ** n for m, n in kinds if n is not None), start=Fraction(1)
    )


def _sparse_delta_conditions(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    known, counted = stated(measures(premises)), sparse(premises, situation)
    if not known.holds or not counted.holds:
        return known, counted
    kinds = zip(measures(premises), situation.creations, strict=True)
    endless = any(n is None and delta_of(m) > 0 for m, n in kinds)
    why = (
        "a kind with delta > 0 is created without bound, so 1 - prod(1 - delta_j) reaches 1 ([HSV] Thm 5.2)"
        if endless
        else "every creation is counted, touched or not"
    )
    every = within(created(premises, situation), situation.delta)
    return (
        known,
        counted,
        Condition("delta budget", not endless, why),
        every,
        same_neighbors(premises),
    )


def _sparse_delta_measure(premises: Premises, situation: Parallel) -> Measure:
    touched = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(touched, created(premises, situation), situation.delta)


sparse_delta = Rule(
    "sparse parallel composition with a delta budget",
    "[HSV] Thm 5.4",
    _sparse_delta_conditions,
    _sparse_delta_measure,
    finite=counted_finite,
)

# Def 5.12, Thm 5.14, Cor 5.15, Thm 13.6: a part whose first pair of messages is equal gets equal pairs for ever, as
# with a static data set, so only touched parts cost anything, deltas included. The k largest epsilons with the k
# largest deltas are at least as bad as any k parts, because the composition's delta grows with both.


def _touched_delta(premises: Premises, situation: Parallel) -> Fraction:
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


# A user's data set is its mechanism's first message and all later pairs are equal, so users are first-pair consistent.
# At most k users hold different data sets: Thm 5.14 prices k users, whatever their number. The server sees answers
# only, which is the destination and response property (Claim 8.4).


def _parallel(premises: Premises, situation: Local) -> Parallel:
    one = len(premises) == 1
    creations = (situation.users,) if one else (1,) * len(premises)
    return Parallel(
        situation.subject, situation.touched, creations, situation.delta, situation.static
    )


def _local_conditions(premises: Premises, situation: Local) -> tuple[Condition, ...]:
    counted = situation.users >= 1 and len(premises) in (1, situation.users)
    users = Condition(
        "users",
        counted,
        f"{situation.users} user(s), {len(premises)} mechanism(s)"
        + (", identical procedures" if len(premises) == 1 else ""),
    )
    if not counted:
        return (users,)
    return users, *first_pair.conditions(premises, _parallel(premises, situation))


def _local_measure(premises: Premises, situation: Local) -> Measure:
    return first_pair.measure(premises, _parallel(premises, situation))


local = Rule(
    "local protocol", "[HSV] Thm 8.7, Cor 8.8", _local_conditions, _local_measure, finite=all_finite
)
