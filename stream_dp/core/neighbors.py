"""Who is protected: neighbour relations on streams of tick rows, as incremental verification functions.

Rules: sensitivities are computed here from the relation and the row's shape; nobody types one. A pair check
does constant work per message ([HSV] Def 3.3). This file knows no mechanism, no noise and no time.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stream_dp.core.messages import IntArray


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


@dataclass(frozen=True, slots=True)
class OneHotPair:
    """Incremental pair check: have the two row streams so far differed in at most one one-hot event?

    The verification function of [HSV] Def 3.3 for event neighbours; `accept` returns the checker for the
    rest of the stream, or None where the pair is not f-valid.
    """

    neighbors: Neighbors
    used: bool = False

    def accept(self, left: IntArray, right: IntArray) -> "OneHotPair | None":
        """Take the next pair of rows, each of shape (width,)."""
        if left.shape != right.shape or np.any(left < 0) or np.any(right < 0):
            return None
        difference = left - right
        changed = difference[difference != 0]
        if changed.size == 0:
            return self
        if self.used or np.any(np.abs(changed) > 1):
            return None
        if changed.size > self.neighbors.l0(left.size) or (
            changed.size == 2 and changed.sum() != 0
        ):
            return None
        return OneHotPair(self.neighbors, used=True)
