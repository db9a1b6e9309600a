"""The columns for users who were active and users who were cut off, as the guard for users sees them.

Rules: a user is active in the tick of an event. A user is cut off in the tick of an event that does not count
because the cap is used up. Both depend on that user's own events alone. A user who is cut off is also active. This
file knows no record and no memory.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.engine.memories.identifiers import ByColumn
from stream_dp.engine.memories.user_table import Hashes
from stream_dp.engine.ports import NOBODY
from stream_dp.pipeline.routing.layout import Slot
from stream_dp.records.record_columns import BoolArray


class CapUses:
    """The columns, two for each slot: one for active users, and one for users who were cut off."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._starts = [slot.start for slot in slots]

    def of(
        self, users: Hashes, ticks: IntArray, counting: BoolArray, kept: BoolArray
    ) -> Mapping[int, ByColumn]:
        """Return the distinct users by tick and column: of records that would count, and of those not `kept`."""
        if not self._starts:
            return NOBODY
        found: dict[int, dict[int, Hashes]] = {}
        for place, those in enumerate((counting, counting & ~kept)):
            for tick, once in _each_once(users[those], ticks[those]):
                columns = {start + place: once for start in self._starts}
                found.setdefault(tick, {}).update(columns)
        return found


def _each_once(users: Hashes, ticks: IntArray) -> Iterator[tuple[int, Hashes]]:
    """Yield the distinct users of each tick, sorted by hash."""
    order = np.lexsort((users[:, 1], users[:, 0], ticks))
    users, ticks = users[order], ticks[order]
    first = np.ones(len(ticks), np.bool_)
    first[1:] = (users[1:] != users[:-1]).any(axis=1) | (ticks[1:] != ticks[:-1])
    users, ticks = users[first], ticks[first]
    names, begins = np.unique(ticks, return_index=True)
    yield from zip(names.tolist(), np.split(users, begins[1:]), strict=False)
