"""Who is protected: the neighbour relations of events, and what one event can change.

Rules: sensitivities are computed here from the relation and the row's shape; nobody types one. The verification
functions of these relations are in `relations`. This file knows no mechanism, no noise and no time.
"""

from enum import StrEnum

from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable


@wire("neighbors", 1)
class Neighbors(StrEnum):
    """Event-level neighbours: the two streams differ in one event.

    `add_remove`: the event is present in one stream only. `replace`: the event's content differs, in one tick; the
    zero row (junk or filtered-out content) is an allowed content. `replace_any_tick`: the content differs, and the tick
    may too, as where an event's own time is part of its content: one event removed and one added. No mechanism is made
    for it; the accounting derives it from `add_remove` (`rules.moved`).
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"
    REPLACE_ANY_TICK = "replace_any_tick"

    @property
    def step(self) -> "Neighbors":
        """What mechanisms are made for: the relation itself, or the one that two steps of make it."""
        return Neighbors.ADD_REMOVE if self is Neighbors.REPLACE_ANY_TICK else self

    def monotone(self, width: int) -> bool:
        """Whether all entries of the two streams' difference have one sign (the cheap SVT scale)."""
        return self is Neighbors.ADD_REMOVE or self.l0(width) == 1

    def l0(self, width: int, ones: int = 1) -> int:
        """How many entries of a row of shape (width,) one event can change, where it sets at most `ones` of them.

        Under `add_remove` those it sets; under `replace` those of the old and of the new content: with `ones` = width
        every entry ([HSV] ~_H). `ones` = 1: one-hot rows.

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
