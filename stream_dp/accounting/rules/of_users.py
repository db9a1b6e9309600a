"""All events of one user, of which at most k count: k steps of one event under `add_remove`.

A guard decides by a user's own records alone which of them count, so with or without that user all other rows are the
same and at most k events differ, of one public window where the cap is one for windows. Between the two streams lie
those with some of these events, as many as have come so far: known as soon as the pair of rows is. Each pair of
neighbouring ones is a pair of `add_remove`, so this is group privacy over k (`rules.group`), adaptively. A user who is
there with some of their records and not with others is no such pair: the cap may then admit others in their place.

It says more than its sum: of the k events, each costs at most a k-th, whenever it comes. `divided` looks for that; the
time rule rests on it, as the events may meet different mechanisms. A guarantee of another proof may cost all of it for
one event alone.
"""

from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, one_event_each, rests_on
from stream_dp.accounting.situations import Group, OfUsers
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure


def divided(derivation: Derivation) -> bool:
    """Say whether all that this rests on is by `of_users`: each of a user's k events costs at most a k-th of it."""
    return rests_on(derivation, of_users.name)


def _conditions(premises: Premises, situation: OfUsers) -> tuple[Condition, ...]:
    steps = one_event_each("one event more each", premises)
    _, *others = group.conditions(premises, _group(situation))
    enforced = f"{situation.users}: a guard in front of all parts lets no more count"
    return Condition("cap", True, enforced), steps, *others


def _measure(premises: Premises, situation: OfUsers) -> Measure:
    return group.measure(premises, _group(situation))


def _group(situation: OfUsers) -> Group:
    return Group(situation.subject, situation.users.cap)


of_users = Rule(
    "all events of one user",
    f"so many steps of {group.source}",
    _conditions,
    _measure,
    finite=all_finite,
    users=lambda situation: situation.users,
)
