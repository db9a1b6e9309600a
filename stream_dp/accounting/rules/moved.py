"""One event replaced, and the replacement may lie in another tick: two steps of one event under `add_remove`.

Between two such streams lies one that differs from each in one event. Where both contents lie in one tick, it has the
row with neither there; else it has the right row at the first of the two ticks and the left row at the second. So it is
known as soon as the pair of rows is, whatever an event adds: of counts the row with neither is the lesser of the two,
entry by entry, of signed amounts it is not. Left against it, one event differs, in one tick; it against right, one, in
one tick. Both games are those of `add_remove`, so this is group privacy over two (`rules.group`), adaptively.

It says more than its sum: of the two steps, each costs at most half, whenever it comes. `halved` looks for that; the
time rule rests on it, as the two steps may meet different mechanisms. A guarantee of another proof may cost all of it
for one step alone.
"""

from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, one_event_each, rests_on
from stream_dp.accounting.situations import Group, Moved
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure
from stream_dp.core.neighbors import Neighbors

STEPS = 2


def halved(derivation: Derivation) -> bool:
    """Say whether all that this rests on is by `moved`: one event more or less costs at most half of it."""
    return rests_on(derivation, moved.name)


def _conditions(premises: Premises, situation: Moved) -> tuple[Condition, ...]:
    steps = one_event_each("one removed, one added", premises)
    _, *others = group.conditions(premises, Group(situation.subject, STEPS))
    return steps, *others


def _measure(premises: Premises, situation: Moved) -> Measure:
    return group.measure(premises, Group(situation.subject, STEPS))


moved = Rule(
    "replacement in any tick",
    f"two steps of {group.source}",
    _conditions,
    _measure,
    relation=Neighbors.REPLACE_ANY_TICK,
    finite=all_finite,
)
