"""One event replaced, and the replacement may lie in another tick: two steps of one event under `add_remove`.

Between two such streams lies a hybrid that differs from each in one event. Where both contents lie in one tick, the
hybrid has the row with neither content there; otherwise it has the right row at the first of the two ticks and the
left row at the second. So the hybrid's row is known as soon as the pair of rows is, whatever an event adds: for
counts the row with neither content is the entrywise minimum of the two rows, for signed amounts it is not. Left and
hybrid differ in one event, in one tick; hybrid and right differ in one event, in one tick. Both games are those of
`add_remove`, so this is group privacy over two (`rules.group`), adaptively.

The proof says more than the total: each of the two steps costs at most half, whenever it comes. `halved` tests for
that. The time rule rests on it, because the two steps may meet different mechanisms. A guarantee with another proof
may cost its full epsilon for a single step.
"""

from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite, one_event_each, rests_on
from stream_dp.accounting.situations import Group, Moved
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Measure
from stream_dp.core.neighbors import Neighbors

STEPS = 2


def halved(derivation: Derivation) -> bool:
    """Say whether the whole derivation rests on `moved`: one event more or less then costs at most half."""
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
