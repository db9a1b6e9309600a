"""k-sparse parallel composition: many mechanisms, of which two neighbouring runs touch at most k.

There is one rule for pure parts, one with a delta budget, and rules for first-pair consistent parts. [HSV] Def 5.1
fixes the k parameters before. Here they are the k worst of all parts that may be created; a part takes, when it is
first touched, the smallest free parameter that covers it. RR_e follows from RR_e' for e' >= e. The order of the
requests does not matter: a smaller parameter never covers a part that a larger one does not.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from heapq import nlargest

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
    total,
    within,
)
from stream_dp.accounting.situations import Local, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import ZCDP, Measure, RenyiDP
from stream_dp.core.wording import how_many


def sparse(premises: Premises, situation: Parallel) -> Condition:
    """Check that k >= 1, that k is for the parts' relation, and that every kind has a number of creations."""
    touched = situation.touched
    broken = next(_miscounted(premises, situation), "")
    return Condition(f"{touched.k}-sparse", not broken, broken or touched.why)


def _miscounted(premises: Premises, situation: Parallel) -> Iterator[str]:
    touched, creations = situation.touched, situation.creations
    relations = {p.guarantee.neighbors for p in premises}
    if touched.k < 1:
        yield f"k must be at least 1 ({touched.why})"
    if len(creations) != len(premises):
        yield f"{how_many(len(premises), 'kind')}, but {how_many(len(creations), 'creation count')}"
    if any(n is not None and n < 1 for n in creations):
        yield "a kind is created less than once"
    if relations != {touched.neighbors}:
        theirs = ", ".join(sorted(map(str, relations)))
        yield f"counted for {touched.neighbors}, but the parts protect under {theirs}"
    if any(p.guarantee.unit for p in premises):
        yield "counted for one event, but the parts protect groups or users"


def counted_finite(premises: Premises, situation: Parallel) -> bool:
    """Say whether communication is finite: each part's is, and so is the number of parts of each kind."""
    return all_finite(premises, situation) and None not in situation.creations


def worst(amounts: list[Fraction], situation: Parallel) -> list[Fraction]:
    """Return the k largest amounts of all that may be created; sorted, they dominate those of any k touched parts."""
    kinds = zip(amounts, situation.counts, strict=True)
    return nlargest(situation.touched.k, (amount for amount, n in kinds for _ in range(n)))


def touched_optimum(premises: Premises, situation: Parallel, own: Fraction) -> Measure:
    """Return the optimum of RR_(e1,d1) x ... x RR_(ek,dk) for the k largest epsilons; `own` as in `optimum`."""
    epsilons = worst([epsilon_of(m) for m in measures(premises)], situation)
    return optimum(epsilons, own, situation.delta)


# Cor 5.5: k touched pure mechanisms cost what the k most expensive ones cost together: the sum at delta 0, the optimum
# of RR_(e1,0) x ... x RR_(ek,0) at a granted delta.
sparse_pure: Rule[Parallel] = Rule(
    "sparse parallel composition",
    "[HSV] Cor 5.5",
    lambda premises, situation: (
        pure(premises, "a part is not pure DP, and [HSV] Thm 5.2 forbids delta > 0 here"),
        sparse(premises, situation),
        same_neighbors(premises),
    ),
    lambda premises, situation: touched_optimum(premises, situation, Fraction(0)),
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


def _sparse_delta(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    known, counted = stated(measures(premises)), sparse(premises, situation)
    if not known.holds or not counted.holds:
        return known, counted
    kinds = zip(measures(premises), situation.creations, strict=True)
    endless = any(n is None and delta_of(m) > 0 for m, n in kinds)
    why = (
        "a kind with delta > 0 is created without bound, so 1 - prod(1 - delta_j) reaches 1 ([HSV] Thm 5.2)"
        if endless
        else "the bound counts every creation, also those that the event does not touch"
    )
    return (
        known,
        counted,
        Condition("delta budget", not endless, why),
        within(created(premises, situation), situation.delta),
        same_neighbors(premises),
    )


sparse_delta = Rule(
    "sparse parallel composition with a delta budget",
    "[HSV] Thm 5.4",
    _sparse_delta,
    lambda premises, situation: touched_optimum(premises, situation, created(premises, situation)),
    finite=counted_finite,
)


# Def 5.12, Thm 5.14, Cor 5.15, Thm 13.6: a part whose first pair of messages is equal gets equal pairs for ever, as
# with a static data set, so only touched parts cost anything, deltas included. The k largest epsilons with the k
# largest deltas are at least as bad as any k parts, because the composition's delta grows with both.
def first_pair_consistent(situation: Parallel, broken_by: str) -> Condition:
    """Check that a part's first pair decides whether its pairs differ at all ([HSV] Def 5.12)."""
    why = situation.first_pair
    return Condition(
        "first-pair consistent",
        bool(why),
        why
        or f"the updates of the parts may still differ after the first pair, and {broken_by} shows that the rule "
        "then fails",
    )


def _touched_delta(premises: Premises, situation: Parallel) -> Fraction:
    return joint_delta(worst([delta_of(m) for m in measures(premises)], situation))


def _first_pair(premises: Premises, situation: Parallel) -> tuple[Condition, ...]:
    known, counted = stated(measures(premises)), sparse(premises, situation)
    consistent = first_pair_consistent(situation, "[HSV] Thm 5.2")
    if not known.holds or not counted.holds:
        return known, counted, consistent
    own = within(_touched_delta(premises, situation), situation.delta)
    return known, counted, consistent, own, same_neighbors(premises)


first_pair = Rule(
    "first-pair consistent parallel composition",
    "[HSV] Thm 5.14",
    _first_pair,
    lambda premises, situation: touched_optimum(
        premises, situation, _touched_delta(premises, situation)
    ),
    finite=counted_finite,
)


def data_first(
    premises: Premises, situation: Parallel, known: Condition, broken_by: str, *more: Condition
) -> tuple[Condition, ...]:
    """Return the conditions for first-pair consistent parts of another measure; `known` judges the measures."""
    consistent = first_pair_consistent(situation, broken_by)
    return known, sparse(premises, situation), *more, consistent, same_neighbors(premises)


def _renyi(premises: Premises, situation: Parallel) -> Measure:
    parts = measures(premises)
    sums = {a: total(worst([at(m, a) for m in parts], situation)) for a in orders(parts)}
    return curve([RenyiDP(alpha, epsilon) for alpha, epsilon in sums.items()])


first_pair_renyi: Rule[Parallel] = Rule(
    "first-pair consistent parallel composition in Renyi DP",
    "[HSV] Thm 13.6",
    lambda premises, situation: data_first(
        premises, situation, one_order(measures(premises)), "[HSV] Thm 13.5"
    ),
    _renyi,
    finite=counted_finite,
)
first_pair_zcdp: Rule[Parallel] = Rule(
    "first-pair consistent parallel composition in zCDP",
    "[HSV] Thm 13.6 at every order",
    lambda premises, situation: data_first(
        premises, situation, all_orders(measures(premises)), "[HSV] Thm 13.5"
    ),
    lambda premises, situation: ZCDP(total(worst(rhos(measures(premises)), situation))),
    finite=counted_finite,
)


# A user's data set is its mechanism's first message and all later pairs are equal, so users are first-pair consistent.
# At most k users hold different data sets: Thm 5.14 prices k users, whatever their number. The server sees answers
# only, which is the destination and response property (Claim 8.4).
def _parallel(premises: Premises, situation: Local) -> Parallel:
    creations = (situation.users,) if len(premises) == 1 else (1,) * len(premises)
    return Parallel(
        situation.subject, situation.touched, creations, situation.delta, situation.static
    )


def _local(premises: Premises, situation: Local) -> tuple[Condition, ...]:
    counted = situation.users >= 1 and len(premises) in (1, situation.users)
    alike = ", identical procedures" if len(premises) == 1 else ""
    why = f"{how_many(situation.users, 'user')}, {how_many(len(premises), 'mechanism')}{alike}"
    users = Condition("users", counted, why)
    if not counted:
        return (users,)
    return users, *first_pair.conditions(premises, _parallel(premises, situation))


local = Rule(
    "local protocol",
    "[HSV] Thm 8.7, Cor 8.8",
    _local,
    lambda premises, situation: first_pair.measure(premises, _parallel(premises, situation)),
    finite=all_finite,
)
