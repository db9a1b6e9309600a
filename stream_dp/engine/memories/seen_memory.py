"""The memory of what was there before: it makes of the identifiers of closed ticks how many came for the first time.

Rules: ticks are taken in their order, at the cut, so a number depends on the identifiers of its tick and of the earlier
ticks of its public window, and on nothing else: not on partitions, batches or the order within a tick. A window is
forgotten when its last tick has closed, and by nothing else: neither by other identifiers nor for want of room. What
is read behind the cut changes nothing here, so nothing need be given back. Each commit records what its ticks added;
a start adds that up. Private: keyed hashes, in sealed commits only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.engine.memories.user_memory import Used, UserMemory
from stream_dp.engine.ticks.tick_assembler import ClosedTick
from stream_dp.journal.commit import Commit

Recorded = dict[int, dict[int, bytes]]
"""What a commit records: hashes by column and window, in the form of `user_memory`, of whom one event counts."""


class SeenMemory:
    """What each column of `windows` has counted in its window of so many ticks (None: for ever)."""

    def __init__(self, windows: Mapping[int, int | None] | None = None) -> None:
        self._columns = {at: UserMemory(1, window) for at, window in (windows or {}).items()}

    @property
    def size(self) -> int:
        """How many bytes its tables take (private)."""
        return sum(memory.size for memory in self._columns.values())

    def settle(self, ticks: Sequence[ClosedTick]) -> tuple[list[ClosedTick], Recorded]:
        """Count in these ticks, which come next, what they are the first to have; return them, and what is recorded."""
        if not self._columns:
            return list(ticks), {}
        used: dict[int, list[Used]] = {column: [] for column in self._columns}
        counted = [self._counted(each, used) for each in ticks]
        settled = {
            column: memory.settle(used[column], ticks[-1].tick + 1)
            for column, memory in self._columns.items()
        }
        return counted, {column: found for column, found in settled.items() if found}

    def replay(self, commit: Commit) -> None:
        """Take what a commit recorded.

        Raises:
            FailClosed: it is nothing that this memory has written.
        """
        for column, memory in self._columns.items():
            memory.recall(commit.arrived.get(column, {}), commit)

    def content(self) -> Recorded:
        """Return all that it holds, in the form of commits (private)."""
        return {column: memory.content() for column, memory in sorted(self._columns.items())}

    def _counted(self, closed: ClosedTick, used: dict[int, list[Used]]) -> ClosedTick:
        row: IntArray = closed.row.copy()
        for column, hashes in closed.arrived.items():
            memory = self._columns[column]
            windows = memory.windows(np.full(len(hashes), closed.tick))
            first, some = memory.admit(hashes, windows)
            row[column] = np.count_nonzero(first)
            used[column] += [] if some is None else [some]
        row.flags.writeable = False
        return replace(closed, row=row)

    def __repr__(self) -> str:
        return "<SeenMemory>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []
