"""Concurrent composition of fixed mechanisms ([HSV] Thm 4.10) or of fixed parameters (Thm 4.12): the sum.

RR_(e1,d1) x ... x RR_(ek,dk) is (sum e, 1 - prod(1 - d))-DP. For pure parts the sum of the epsilons is the optimum at
delta 0: the product of randomized responses attains it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush

from stream_dp.accounting.amounts import text
from stream_dp.accounting.filters.filter import Entry, Filter, Spend
from stream_dp.accounting.filters.linear import by_ticks
from stream_dp.accounting.ledger import proven
from stream_dp.accounting.loads import Loads
from stream_dp.accounting.optimal import joint_delta, least_epsilon, precision, spare
from stream_dp.accounting.rules.groups import (
    CONCURRENT,
    currency_of,
    in_currencies,
    seen_box,
    whole_at_one_event,
)
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
    total,
    within,
)
from stream_dp.accounting.situations import Alive, Filtered, Fixed
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure
from stream_dp.core.wording import how_many
from stream_dp.errors import BudgetRefused, NotDerivable


def paid(premises: Premises, situation: Fixed) -> tuple[Measure, ...]:
    """Return the measures to pay for: those of the parts, or all parameters that were fixed for them."""
    return measures(premises) if situation.parameters is None else situation.parameters


def _own_delta(parts: Sequence[Measure]) -> Fraction:
    return joint_delta(delta_of(m) for m in parts)


def fixed_before(premises: Premises, situation: Fixed) -> Condition:
    """Check that mechanisms are fixed, or parameters a sub-multiset of fixed ones ([HSV] Def 4.11 (ii))."""
    if situation.parameters is None:
        return Condition(
            "fixed", True, "mechanisms and parameters are fixed before the first event"
        )
    over = Counter(measures(premises)) - Counter(situation.parameters)
    why = (
        f"{over.total()} of the parts have parameters that were not fixed before"
        if over
        else f"the parts' parameters are among the {len(situation.parameters)} fixed before (Thm 4.12)"
    )
    return Condition("fixed", not over, why)


def _concurrent(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    known = stated(parts)
    own = _own_delta(parts) if known.holds else Fraction(0)
    return (
        fixed_before(premises, situation),
        known,
        same_neighbors(premises),
        within(own, situation.delta),
    )


def _sum(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    return dp(total(map(epsilon_of, parts)), _own_delta(parts))


concurrent = Rule(CONCURRENT, "[HSV] Thm 4.10", _concurrent, _sum, finite=all_finite)


# A guarantee of RR_(e1,d1) x ... x RR_(ek,dk) holds for the composition ([HSV] Thm 4.10, 4.12).
def optimum(epsilons: Sequence[Fraction], own: Fraction, granted: Fraction) -> Measure:
    """Return the optimum of RR_(e1,d1) x ... x RR_(ek,dk) at a granted delta, never above the sum (`optimal`).

    `own` is 1 - prod(1 - d); NotDerivable is raised where delta reaches 1.
    """
    epsilon = least_epsilon(epsilons, spare(granted, own))
    return dp(epsilon, granted if epsilon < sum(epsilons) else own)


def _optimal(premises: Premises, situation: Fixed) -> tuple[Condition, ...]:
    parts = paid(premises, situation)
    known = stated(parts)
    left = spare(situation.delta, _own_delta(parts)) if known.holds else Fraction(0)
    why = (
        f"{text(situation.delta)} is granted, more than the parts' own deltas"
        if left > 0
        else "none is granted beyond the parts' own, so nothing is below the sum"
    )
    conditions = (
        fixed_before(premises, situation),
        known,
        same_neighbors(premises),
        Condition("delta", left > 0 or not known.holds, why),
    )
    if not all(c.holds for c in conditions):
        return conditions
    how = precision([epsilon_of(m) for m in parts], left)
    return (*conditions, Condition("rounding", True, how))


def _optimum(premises: Premises, situation: Fixed) -> Measure:
    parts = paid(premises, situation)
    return optimum([epsilon_of(m) for m in parts], _own_delta(parts), situation.delta)


optimal = Rule(
    "optimal concurrent composition",
    "[HSV] Thm 4.10 with Kairouz-Oh-Viswanath, Murtagh-Vadhan",
    _optimal,
    _optimum,
    finite=all_finite,
)


# Parameters chosen adaptively through one filter ([HSV] Thm 12.4; Cor 13.8 for RDP and zCDP, Cor 14.10 for GDP). The
# filter's promise holds for all that it admits, if it is proven for concurrent continual mechanisms.
def _standing(filter_: Filter) -> Condition:
    name = "proven for concurrent continual mechanisms"
    try:
        standing = proven(filter_)
    except NotDerivable as refusal:
        return Condition(name, False, str(refusal))
    limit = f", if {standing.condition}" if standing.condition else ""
    return Condition(name, True, f"{filter_.name} filter: {standing.source}{limit}")


def _admitted(premises: Premises, situation: Filtered) -> Condition:
    """Check at every tick, in every box, that the filter admits what an event meets, and what no halt has freed."""
    number = len(premises)
    alive = situation.alive or (Alive(0, None),) * number
    boxes = situation.boxes or (EVERYTHING,) * number
    if not len(alive) == len(boxes) == number:
        wrong = f"{how_many(number, 'part')}, {how_many(len(alive), 'time')}, {how_many(len(boxes), 'box', 'boxes')}"
        return Condition("admitted", False, wrong)
    try:
        loads = reached(premises, alive, boxes, situation.filter)
    except BudgetRefused as refusal:
        return Condition("admitted", False, str(refusal))
    holds = all(map(situation.filter.admits, loads))
    fit = "fit into" if holds else "exceed"
    ends = any(time.last is not None for time in alive)
    when = " at every tick" if ends and holds else " at a tick" if ends else ""
    boxed = any(box.sides for box in boxes)
    who = "" if not boxed else " for every record" if holds else " for some record"
    return Condition(
        "admitted", holds, f"the parts ({number}) together {fit} the filter's capacity{when}{who}"
    )


def reached(
    premises: Premises, alive: Sequence[Alive], boxes: Sequence[Box], filter_: Filter
) -> list[Spend]:
    """Return for each part, at its first tick, the most that an event meets whose load the part changes.

    Every event's load is one of them at most: that of the last part that changed it. A part that one step may cost in
    full counts as long as that user, or that event, may have others, whatever they hold. Raises `BudgetRefused` if the
    filter has no theorem for a part.
    """
    alive = [_counted(part, time) for part, time in zip(premises, alive, strict=True)]
    protected = premises[0].guarantee.protected if premises else None
    shares = any(currency_of(part) or in_currencies(part) for part in premises)
    loads, most = Loads(filter_, protected, shares), list[Spend]()
    ends: list[tuple[int, int, Entry]] = []
    order = sorted(range(len(premises)), key=lambda at: alive[at].first)
    for at in order:
        time, entry = alive[at], _entry(filter_, premises[at], seen_box(premises[at], boxes[at]))
        while ends and ends[0][0] < time.first:
            last, _, gone = heappop(ends)
            loads = loads.less(gone, last + 1)
        most.append(loads.around(entry, time.first) + filter_.cost(entry))
        loads = loads.plus(entry)
        if time.last is not None:
            heappush(ends, (time.last, at, entry))
    return most


def _counted(part: Derivation, time: Alive) -> Alive:
    by_units, users = currency_of(part) or in_currencies(part), part.guarantee.users
    if by_units or not whole_at_one_event(part):
        return time
    return Alive(0, None) if users is None else Alive(*users.rounded(time.first, time.last))


def _entry(filter_: Filter, part: Derivation, box: Box) -> Entry:
    like = part.guarantee
    entry = filter_.entry(part.subject, like.measure, part.rule, finite=like.finite)
    parts = in_currencies(part) if by_ticks(filter_) else ()
    apart = tuple(_entry(filter_, each, box) for each in parts)
    return replace(entry, fresh=like.fresh, box=box, currency=currency_of(part), apart=apart)


filtered: Rule[Filtered] = Rule(
    "filter composition",
    "[HSV] Thm 12.4",
    lambda premises, situation: (
        _standing(situation.filter),
        _admitted(premises, situation),
        same_neighbors(premises),
    ),
    lambda _, situation: situation.filter.promise,
)
