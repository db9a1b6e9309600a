"""Neighbour relations of events: who is protected, and what one event can change.

Rules: sensitivities are computed here from the relation and the row's shape; nobody types one in. `row_relations`
has the verification functions of these relations. This file knows no mechanism, no noise and no time.
"""

from enum import StrEnum

from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable


@wire("neighbors", 1)
class Neighbors(StrEnum):
    """Event-level neighbours: the two streams differ in one event.

    `add_remove`: the event is present in one stream only. `replace`: the event's content differs, in one tick; the
    zero row (junk or filtered-out content) is an allowed content. `replace_any_tick`: the content differs, and the
    tick may differ too, for example where an event's own time is part of its content; this is one event removed and
    one added. No mechanism is made for it; the accounting derives its guarantee from `add_remove` (`rules.moved`).
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"
    REPLACE_ANY_TICK = "replace_any_tick"

    @property
    def step(self) -> "Neighbors":
        """The relation that mechanisms are made for: this relation, or the relation whose two steps give this one."""
        return Neighbors.ADD_REMOVE if self is Neighbors.REPLACE_ANY_TICK else self

    def monotone(self, width: int) -> bool:
        """Say whether all entries of the two streams' difference have one sign; sparse vectors then need less noise."""
        return self is Neighbors.ADD_REMOVE or self.l0(width) == 1

    def l0(self, width: int, ones: int = 1) -> int:
        """Return how many entries of a row of shape (width,) one event can change, if it sets at most `ones`
        entries.

        Under `add_remove` these are the entries it sets; under `replace` the entries of the old and of the new
        content: with `ones` = width every entry ([HSV] ~_H). `ones` = 1: one-hot rows.

        Raises:
            NotDerivable: the event may lie in two rows, or sets less than one entry.
        """
        if ones < 1:
            raise NotDerivable(f"an event sets at least one entry of its row, got ones = {ones}")
        if self is Neighbors.REPLACE_ANY_TICK:
            raise NotDerivable(
                "a replacement that may move to another tick lies in two rows: make the mechanism for add_remove at "
                "half the epsilon, and derive the rest (accounting.rules.moved)"
            )
        return min(width, ones if self is Neighbors.ADD_REMOVE else 2 * ones)
