"""Chains of steps of one event, each priced by group privacy over the number of its steps.

Chains are: groups, a replacement in any tick, all events of a user, identifiers that count when they first come, and
amounts of which a user adds at most a total, to one part or to all.
Two consecutive streams of a chain (hybrids) differ in one event and are admissible streams. An adversary against them
plays the event-level game and gives equal pairs elsewhere, so the bounds hold adaptively.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.optimal import FAR
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    S,
    all_finite,
    dp,
    epsilon_of,
    one_event_each,
    rests_on,
    total,
)
from stream_dp.accounting.situations import (
    FirstArrivals,
    Group,
    Moved,
    OfUsers,
    SharedTotals,
    UserTotals,
)
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    ProbabilisticDP,
    Protected,
    PureDP,
    is_pure,
)
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.wording import how_many
from stream_dp.errors import NotDerivable

# Group privacy over k. Pure: k e. (e, d): k e and d (1 + e^e + ... + e^((k-1)e)), not k d. zCDP: k^2 rho (Bun, Steinke
# 2016, Prop. 1.9). GDP: k mu (Dong, Roth, Su 2022, Thm 2.14). The sum of k randomized responses would be false: all k
# events may fall into one interval of one sparse vector.

TINY = Fraction(1, 10**30)  # half of the 60 digits of an interval are left
KNOWN = (PureDP, ApproxDP, ProbabilisticDP, ZCDP, GaussianDP)


def group_delta(epsilon: Fraction, delta: Fraction, size: int) -> Fraction:
    """Return delta (e^(k epsilon) - 1) / (e^epsilon - 1), rounded up; k delta at epsilon 0, and 1 where it overflows.

    Below `TINY`, where e^epsilon - 1 would lose its digits, the larger k e^((k-1) epsilon) replaces the quotient.
    """
    if epsilon == 0 or size == 1 or delta == 0:
        return size * delta
    if size * epsilon > FAR:
        return Fraction(1)
    if epsilon < TINY:
        return (Interval.of((size - 1) * epsilon).exp() * size * delta).upper
    factor = (Interval.of(size * epsilon).exp() - 1) / (Interval.of(epsilon).exp() - 1)
    return (factor * delta).upper


def _delta(measure: Measure, size: int) -> Fraction:
    if isinstance(measure, ApproxDP | ProbabilisticDP):
        return group_delta(measure.epsilon, measure.delta, size)
    return Fraction(0)


def _conditions(premises: Premises, situation: Group) -> tuple[Condition, ...]:
    measure, k = premises[0].guarantee.measure, situation.size
    name, known = NAMES[type(measure)], isinstance(measure, KNOWN)
    why = f"{name} has a group rule" if known else f"no group rule is known for {name}"
    sized = Condition(
        "group size", k >= 1, f"up to {how_many(k, 'event')} of one unit, enforced by the guard"
    )
    has_rule = Condition("measure", known, why)
    if not (sized.holds and known):
        return sized, has_rule
    delta = _delta(measure, k)
    return (
        sized,
        Condition(
            "one premise",
            len(premises) == 1,
            "the rule takes exactly one part: compose several parts first",
        ),
        has_rule,
        Condition("delta below 1", delta < 1, f"the group's delta is {float(delta):.3g}"),
    )


def _measure(premises: Premises, situation: Group) -> Measure:
    measure, k = premises[0].guarantee.measure, situation.size
    match measure:
        case PureDP(epsilon):
            return PureDP(k * epsilon)
        case ApproxDP(epsilon) | ProbabilisticDP(epsilon):
            return ApproxDP(k * epsilon, _delta(measure, k))
        case ZCDP(rho):
            return ZCDP(k * k * rho)
        case GaussianDP(mu):
            return GaussianDP(k * mu)
        case _:
            raise NotDerivable(f"no group rule is known for {NAMES[type(measure)]}")


TOTAL = "total"
"""The currency of units of a shared total; where users have several, each names its amount."""
CONCURRENT = "concurrent composition"
"""The rule that adds up prices."""

SOURCE = "Dwork, Roth 2014, Thm 2.2; zCDP: Bun, Steinke 2016, Prop. 1.9; GDP: Dong, Roth, Su 2022, Thm 2.14"
group = Rule("group privacy", SOURCE, _conditions, _measure, lambda s: s.size, finite=all_finite)


def _chain(
    name: str,
    steps: str,
    size: Callable[[S], int],
    neighbours: Callable[[Premises, S], tuple[Condition, ...]],
    *,
    relation: Neighbors | None = None,
    users: Callable[[S], Users | None] = lambda _: None,
    currency: Callable[[S], str] = lambda _: "",
) -> Rule[S]:
    """Return the rule of a chain of `size` steps: group privacy, with `neighbours` in place of its group size.

    `neighbours` checks that the steps are those of the premise's neighbours; the result covers one of its own.
    """

    def conditions(premises: Premises, situation: S) -> tuple[Condition, ...]:
        _, *others = group.conditions(premises, Group(situation.subject, size(situation)))
        return *neighbours(premises, situation), *others

    def measure(premises: Premises, situation: S) -> Measure:
        return group.measure(premises, Group(situation.subject, size(situation)))

    source = f"{steps} of {group.source}"
    return Rule(
        name, source, conditions, measure,
        relation=relation, finite=all_finite, users=users, currency=currency,
    )  # fmt: skip


STEPS = 2


def event_steps(protected: Protected | None) -> int:
    """Return how many steps of one event in one tick the neighbouring streams are apart at most."""
    if protected is not None and protected.users is not None:
        return protected.users.cap
    moves = protected is not None and protected.neighbors is Neighbors.REPLACE_ANY_TICK
    return STEPS if moves else 1


def seen_box(derivation: Derivation, box: Box) -> Box:
    """Return the box in which what sees the records of `box` costs; every record where no less is proven."""
    by_units = bool(currency_of(derivation) or in_currencies(derivation))
    local = derivation.guarantee.group == 1 and (by_units or not whole_at_one_event(derivation))
    return box if local else EVERYTHING


def currency_of(derivation: Derivation) -> str:
    """Return what each part of the price is for: "", an event, or a unit of a total that a guard lets a user add."""
    below = {currency_of(premise) for premise in derivation.premises}
    return derivation.currency or (below.pop() if len(below) == 1 else "")


def in_currencies(derivation: Derivation) -> Premises:
    """Return the parts of a price that is their sum, where they are of several currencies; nothing where it is of one,
    or where a single event or unit may cost more of a part than its own.
    """
    parts = derivation.premises
    each = [part.guarantee.measure for part in parts]
    if len({currency_of(part) for part in parts}) < 2 or not all(map(is_pure, each)):
        return ()
    summed = dp(total(map(epsilon_of, each)), Fraction(0)) == derivation.guarantee.measure
    apart = all(currency_of(part) or divided(part) for part in parts)
    return parts if derivation.rule == CONCURRENT and summed and apart else ()


def whole_at_one_event(derivation: Derivation) -> str:
    """Return why one step may cost all that the guarantee claims, and not its part; empty where it may not."""
    like = derivation.guarantee
    if like.users is not None and not divided(derivation):
        return "for one event of a user, and a halt would free that price at ticks of the user's other events"
    if like.neighbors is Neighbors.REPLACE_ANY_TICK and not halved(derivation):
        return "at one of the two ticks of a replaced event, and a halt would free it at the other tick"
    return ""


def halved(derivation: Derivation) -> bool:
    """Say whether the whole derivation rests on `moved`: one event more or less then costs at most half.

    The time rule needs this, because the two steps may meet different mechanisms. A guarantee with another proof may
    cost its full epsilon for a single step.
    """
    return rests_on(derivation, moved.name)


# A replacement in any tick is two steps of one event under `add_remove`. Where both contents lie in one tick, the
# hybrid's row there has neither content: for counts the entrywise minimum of the two rows, for signed amounts not.
# Otherwise the hybrid has the right row at the first of the two ticks and the left row at the second. So its row is
# known as soon as the pair of rows is, and each step differs in one event, in one tick.
moved: Rule[Moved] = _chain(
    "replacement in any tick",
    "two steps",
    lambda _: STEPS,
    lambda premises, _: (one_event_each("one removed, one added", premises),),
    relation=Neighbors.REPLACE_ANY_TICK,
)


def divided(derivation: Derivation) -> bool:
    """Say whether the whole derivation rests on `of_users`: each of k events then costs at most a k-th.

    The time rule needs this, because the events may meet different mechanisms. A guarantee with another proof may
    cost its full epsilon for a single event.
    """
    return rests_on(derivation, of_users.name)


# All events of one user, at most k of which count, are k steps of one event under `add_remove`. A guard decides by a
# user's own records alone which of them count. So the counted events of all others are the same with or without the
# user, and at most k events differ, in one public window where the cap is for windows. Hybrids have some of these
# events, in the order in which they come, so a hybrid's row is known as soon as the pair of rows is. Streams that
# differ in only some records of a user are no such pair: the cap may admit other records instead.
of_users: Rule[OfUsers] = _chain(
    "all events of one user",
    "so many steps",
    lambda situation: situation.users.cap,
    lambda premises, situation: (
        Condition(
            "cap",
            True,
            f"{situation.users}: a guard in front of all parts counts no more events than that",
        ),
        one_event_each("one event more each", premises),
    ),
    users=lambda situation: situation.users,
)


def _first_arrivals_steps(premises: Premises, situation: FirstArrivals) -> tuple[Condition, ...]:
    """Check that a change by one event, or one user, is a chain of one-unit steps in rows of first ticks.

    A memory of earlier identifiers makes the rows from the events. The rows of neighbours differ in at most `changes`
    units over all ticks (`core.row_relations`). Hybrids have some of these units, in the order in which they come, so a
    hybrid's row is known as soon as the pair of rows is. None has an entry below 0, because it lies between two rows
    without such entries. Where only whole windows are seen (`ended`), the same holds of their numbers: they differ in
    at most `changes` units, and a hybrid's is known when its window ends, before anything is told of it. The memory is
    a part of the mechanism, so the whole price is charged at the tick of the raw event, and one event may cost all of
    it, also where users are protected.
    """
    arrivals, like = situation.arrivals, premises[0].guarantee
    in_its_tick = like.neighbors is Neighbors.ADD_REMOVE or (
        like.neighbors is Neighbors.REPLACE and arrivals.users is None
    )
    units = f"{arrivals}: the rows of neighbouring streams differ by {arrivals.changes} in all"
    step = "an event keeps its tick, and for the premise, one unit more or less at one tick is a neighbour"
    return (
        Condition("units", True, units),
        Condition("one unit each", in_its_tick and not like.unit, step),
    )


first_arrivals = _chain(
    "first ticks of identifiers",
    "as many steps as units",
    lambda situation: situation.arrivals.changes,
    _first_arrivals_steps,
    users=lambda situation: situation.arrivals.users,
)


_Total = TypeVar("_Total", UserTotals, SharedTotals)


def _totals(
    name: str, adder: str, currency: Callable[[_Total], str] = lambda _: ""
) -> Rule[_Total]:
    """Return the rule of rows to which `adder` lets a user add at most `total` units, one unit a step.

    The adder sums up, for each user and public window of the cap, what that user's records added so far: S becomes
    min(C, S + v), and the rows get the increment. v is not negative, so the increments of a user are not negative and
    add up to at most C over all ticks and entries of the window, whatever the number of records. They depend on that
    user's own records alone, so without the user the rows of all others are the same. Hybrids have some of these units,
    in the order in which they come, so a hybrid's row is known as soon as the pair of rows is. One event may cost all
    of it. Of amounts of both signs the rows get what a user's whole window comes to, clamped to -C .. C, at its last
    tick.
    """

    def neighbours(premises: Premises, situation: _Total) -> tuple[Condition, ...]:
        most = f"{situation.users}: {adder} lets all of them add at most {situation.total:,} units"
        return Condition("total", True, most), one_event_each("one unit more each", premises)

    return _chain(
        name,
        "as many steps as units",
        lambda situation: situation.total,
        neighbours,
        users=lambda situation: situation.users,
        currency=currency,
    )


user_totals: Rule[UserTotals] = _totals("totals of users", "a memory")
# The guard decides before any part's conditions, so the hybrids are the same for all parts: one more unit of one
# record, which lies in one tick and has one content. Only the parts that are alive there and see that record meet it,
# each at a C-th of its epsilon. Of another total a user may add all in another record: it is another currency.
shared_totals: Rule[SharedTotals] = _totals(
    "totals shared by series",
    "a guard in front of all parts",
    lambda situation: f"{TOTAL} of {situation.of}" if situation.of else TOTAL,
)
