"""All events of one user, of which at most k count: k steps of one event under `add_remove`.

A guard decides by a user's own records alone which of them count. So, with or without that user, the counted events
of all others are the same, and at most k events differ, all in one public window where the cap is for windows.
Between the two streams lie hybrids with some of these events, taken in the order in which they come, so a hybrid's
row is known as soon as the pair of rows is. Two consecutive hybrids are neighbours under `add_remove`, so this is
group privacy over k (`rules.group`), adaptively. Two streams that differ in only some records of a user are no such
pair: the cap may then admit other records of the user instead.

The proof says more than the total: each of the k events costs at most a k-th, whenever it comes. `divided` tests
for that. The time rule rests on it, because the events may meet different mechanisms. A guarantee with another
proof may cost its full epsilon for a single event.
"""

from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, one_event_each, rests_on
from stream_dp.accounting.situations import Group, OfUsers
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure


def divided(derivation: Derivation) -> bool:
    """Say whether the whole derivation rests on `of_users`: each of k events then costs at most a k-th."""
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
