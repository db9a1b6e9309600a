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

from collections.abc import Sequence
from fractions import Fraction

from stream_dp.accounting.rules.groups import divided, halved
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


def loads(alive: Sequence[Alive], epsilons: Sequence[Fraction]) -> list[tuple[int, Fraction]]:
    """Return (tick, sum of the epsilons alive from that tick on) at every tick where the sum changes, in order."""
    changes: dict[int, Fraction] = {}
    for time, epsilon in zip(alive, epsilons, strict=True):
        changes[time.first] = changes.get(time.first, Fraction(0)) + epsilon
        if time.last is not None:
            changes[time.last + 1] = changes.get(time.last + 1, Fraction(0)) - epsilon
    total, found = Fraction(0), []
    for tick in sorted(changes):
        total += changes[tick]
        found.append((tick, total))
    return found


def _conditions(premises: Premises, situation: Ticks) -> tuple[Condition, ...]:
    times = situation.alive
    matched = len(times) == len(premises)
    valid = matched and all(t.first >= 0 and (t.last is None or t.first <= t.last) for t in times)
    return (
        pure(premises, "a part is not pure DP, and its delta counts at every tick ([HSV] Thm 5.2)"),
        Condition(
            "times",
            valid,
            "every part is alive from its first tick to its last"
            if valid
            else f"{len(times)} time(s) for {len(premises)} part(s), or a part that ends before it begins",
        ),
        _event_level(premises),
        same_neighbors(premises),
    )


def _event_level(premises: Premises) -> Condition:
    """Check that an event lies in one tick; or in two that each cost half; or is one of a user's events."""
    name = "event level"
    if any(p.guarantee.group != 1 for p in premises):
        return Condition(name, False, "a user has many ticks; give their cap (situation OfUsers)")
    if any(p.guarantee.users for p in premises):
        return Condition(name, True, _of_users(premises))
    if all(p.guarantee.neighbors is not Neighbors.REPLACE_ANY_TICK for p in premises):
        return Condition(name, True, "an event is in one tick")
    halves = all(map(halved, premises))
    why = (
        "a replaced event is in two ticks, and each costs half"
        if halves
        else "a replaced event is in two ticks, and one of them alone may cost all that a part claims"
    )
    return Condition(name, halves, why)


def _of_users(premises: Premises) -> str:
    if all(map(divided, premises)):
        return "each of a user's events is in one tick, and costs its part of every epsilon"
    return (
        "a part that one of a user's events may cost in full counts in whole windows, or for ever"
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
