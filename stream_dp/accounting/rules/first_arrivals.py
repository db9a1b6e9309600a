"""Rows that count identifiers at their first tick: steps of one unit each, whatever one event or one user moves.

The raw streams differ in one event, or in all of a user's that count; what a mechanism is sent are rows made of them by
a memory of what was there before. Such rows differ in at most `changes` units over all ticks (`core.arrivals` counts
them), wherever they lie. Between two of them lie those with some of these units, as many as have come so far, so each
is known as soon as the pair of rows is; none has an entry below 0, for it lies between two rows that have none. Each
pair of neighbouring ones differs in one unit at one tick, which is the premise's neighbour: group privacy over
`changes` (`rules.group`), adaptively.

All of it is charged where the raw event is, for the memory is a part of the mechanism: who is not alive at its tick
never hears of it. One event alone may cost all of it, also where users are protected.
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
