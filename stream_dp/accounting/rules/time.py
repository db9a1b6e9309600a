"""Pure event-level privacy over time: the largest sum, over ticks, of the epsilons alive.

An event lies in one tick, also with both contents where it is replaced, so only mechanisms alive at that tick see
two different messages. A replacement that may move to another tick is one event removed and one added (`moved`):
each step costs at most half the epsilons of the mechanisms alive at its own tick, so both together cost no more
than the largest load, whichever mechanisms came or went between the two.

A user's k events lie in many ticks. Where each costs every part at most a k-th (`of_users`), a part that is alive at m
of them costs m/k of its epsilon. So all k cost no more than the mean of k loads, and no more than the largest load,
whichever mechanisms came or went between them. A part that may cost its full epsilon for one event counts at every
tick of the public windows in which it is alive; for ever, where the cap has no window.

Given one transcript, the odds of the two runs are a product over the mechanisms created: a factor of at most
e^(epsilon_j) for those alive at the tick, exactly 1 for all others, however many and however adaptively they were
created ([HSV] Cor 5.5; by Cor 5.7 a pure mechanism with equal pairs needs no randomized response). A mechanism with
a delta could fail without being touched (Thm 5.2), so the rule is for pure mechanisms only.
"""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from stream_dp.accounting.rules.groups import currency_of, divided, halved
from stream_dp.accounting.rules.rule import (
    Premises,
    Rule,
    all_finite,
    epsilon_of,
    measures,
    pure,
    same_neighbors,
)
from stream_dp.accounting.situations import Alive, Ticks
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wording import how_many


def loads(alive: Sequence[Alive], epsilons: Sequence[Fraction]) -> list[tuple[int, Fraction]]:
    """Return (tick, sum of the epsilons alive from that tick on) at every tick where the sum changes, in order."""
    changes: defaultdict[int, Fraction] = defaultdict(Fraction)
    for time, epsilon in zip(alive, epsilons, strict=True):
        changes[time.first] += epsilon
        if time.last is not None:
            changes[time.last + 1] -= epsilon
    ticks = sorted(changes)
    return list(zip(ticks, accumulate(changes[tick] for tick in ticks), strict=True))


def _conditions(premises: Premises, situation: Ticks) -> tuple[Condition, ...]:
    times = situation.alive
    valid = len(times) == len(premises) and all(
        t.first >= 0 and (t.last is None or t.first <= t.last) for t in times
    )
    why = (
        "every part runs from its first tick to its last"
        if valid
        else f"{how_many(len(times), 'time')} for {how_many(len(premises), 'part')}, or a part that ends before it "
        "begins"
    )
    return (
        pure(premises, "a part is not pure DP, and its delta counts at every tick ([HSV] Thm 5.2)"),
        Condition("times", valid, why),
        Condition("event level", *_event_level(premises)),
        same_neighbors(premises),
    )


def _event_level(premises: Premises) -> tuple[bool, str]:
    """Say whether an event lies in one tick; or in two that each cost half; or is one of a user's events; and why."""
    guarantees = [p.guarantee for p in premises]
    if any(g.group != 1 for g in guarantees):
        return (
            False,
            "a user has events in many ticks, so the rule needs the users' cap (situation OfUsers)",
        )
    if any(map(currency_of, premises)):
        return (
            False,
            "the price of a part is computed from units of a shared total, and these may lie in other ticks than "
            "events",
        )
    if any(g.users for g in guarantees):
        if all(map(divided, premises)):
            return (
                True,
                "each event of a user is in one tick, and costs its part of every epsilon",
            )
        return (
            True,
            "if a single event of a user may cost a part's full price, the part counts in whole windows, or for ever",
        )
    if all(g.neighbors is not Neighbors.REPLACE_ANY_TICK for g in guarantees):
        return True, "an event is in one tick"
    if all(map(halved, premises)):
        return True, "a replaced event is in two ticks, and each costs half"
    return (
        False,
        "a replaced event is in two ticks, and one of the two alone may cost the full price of a part",
    )


def _counted(part: Derivation, time: Alive) -> Alive:
    """Return the ticks in which a part is alive, in whole windows where one event of a user may cost it in full."""
    users = part.guarantee.users
    return time if users is None or divided(part) else Alive(*users.rounded(time.first, time.last))


def _measure(premises: Premises, situation: Ticks) -> Measure:
    epsilons = [epsilon_of(m) for m in measures(premises)]
    alive = [_counted(part, time) for part, time in zip(premises, situation.alive, strict=True)]
    return PureDP(max(load for _, load in loads(alive, epsilons)))


ticks = Rule(
    "parallel composition over ticks",
    "[HSV] Cor 5.5, 5.7",
    _conditions,
    _measure,
    finite=all_finite,
)
