"""Rows that count identifiers at their first tick: a change by one event or one user is a chain of one-unit steps.

The raw streams differ in one event, or in all counted events of one user. A mechanism receives rows that a memory
of earlier identifiers makes from these events. The rows of the two streams differ in at most `changes` units over
all ticks (`core.arrivals` counts them), in any ticks. Between the two streams of rows lie hybrids with some of
these units, taken in the order in which they come, so each hybrid's row is known as soon as the pair of rows is. No
hybrid has an entry below 0, because it lies between two rows without such entries. Two consecutive hybrids differ
in one unit at one tick, as the premise's neighbours do. So this is group privacy over `changes` (`rules.group`),
adaptively.

The whole price is charged at the tick of the raw event, because the memory is a part of the mechanism: a mechanism
that is not alive at that tick never sees the event. A single event may cost the whole price, also where users are
protected.
"""

from stream_dp.accounting.rules.group import group
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite
from stream_dp.accounting.situations import FirstArrivals, Group
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure
from stream_dp.core.neighbors import Neighbors

_IN_ITS_TICK = (Neighbors.ADD_REMOVE, Neighbors.REPLACE)


def _conditions(premises: Premises, situation: FirstArrivals) -> tuple[Condition, ...]:
    arrivals = situation.arrivals
    relations = _IN_ITS_TICK[:1] if arrivals.users else _IN_ITS_TICK
    like = premises[0].guarantee
    steps = Condition(
        "one unit each",
        like.neighbors in relations and not like.unit,
        "an event keeps its tick, and one unit more or less at one tick is a neighbour of the premise",
    )
    counted = Condition(
        "units", True, f"{arrivals}: rows of neighbours differ by {arrivals.changes} in all"
    )
    _, *others = group.conditions(premises, _group(situation))
    return counted, steps, *others


def _measure(premises: Premises, situation: FirstArrivals) -> Measure:
    return group.measure(premises, _group(situation))


def _group(situation: FirstArrivals) -> Group:
    return Group(situation.subject, situation.arrivals.changes)


first_arrivals = Rule(
    "first ticks of identifiers",
    f"as many steps as units of {group.source}",
    _conditions,
    _measure,
    finite=all_finite,
    users=lambda situation: situation.arrivals.users,
)
