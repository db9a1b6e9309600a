"""Who is protected: the neighbour relations of events, and what one event can change.

Rules: sensitivities are computed here from the relation and the row's shape; nobody types one. The verification
functions of these relations are in `relations`. This file knows no mechanism, no noise and no time.
"""

from enum import StrEnum

from stream_dp.core.wire import wire


@wire("neighbors", 1)
class Neighbors(StrEnum):
    """Event-level neighbours: the two streams differ in one event, in one tick.

    `add_remove`: the event is present in one stream only. `replace`: the event's content differs; the zero
    row (junk or filtered-out content) is an allowed content.
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"

    def monotone(self, width: int) -> bool:
        """Whether all entries of the two streams' difference have one sign (the cheap SVT scale)."""
        return self.l0(width) == 1

    def l0(self, width: int) -> int:
        """How many entries of a one-hot row vector of shape (width,) one event can change."""
        return 1 if self is Neighbors.ADD_REMOVE or width == 1 else 2
