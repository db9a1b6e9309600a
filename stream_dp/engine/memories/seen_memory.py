"""The memories of identifiers: those in ticks that are still open, and those that came earlier in their window.

Rules: identifiers of ticks that are still open are kept as sets by tick and column. A commit holds the identifiers
that its own cut added. So the chain of commits holds each identifier of a tick and column once, however long the
tick stays open; the commit with the tick drops them. Ticks are counted in order, at the cut, so a count depends on
the identifiers of its tick and of the earlier ticks of its public window, and on nothing else: not on partitions,
batches or the order within a tick. A window is forgotten when its last tick has closed and for no other reason:
neither other identifiers nor want of room evict it. Snapshots repeat nothing: a start reads the chain from its
first commit on. Private: keyed hashes, in sealed commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.engine.memories.identifiers import (
    ByColumn,
    Came,
    read_identifiers,
    write_identifiers,
)
from stream_dp.engine.memories.user_memory import UserMemory
from stream_dp.engine.memories.user_table import Hashes, Used
from stream_dp.engine.ticks.tick_assembler import ClosedTick, Cut
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit

Recorded = dict[int, dict[int, bytes]]
"""Identifiers that a commit records, each with one event: by column and window, in the form of `user_memory`."""


class SeenMemory:
    """The identifiers that each column has counted in its window.

    `windows` maps a column to the length of its window in ticks (None: for ever).
    """

    def __init__(self, windows: Mapping[int, int | None] | None = None) -> None:
        self._columns = {at: UserMemory(1, window) for at, window in (windows or {}).items()}

    @property
    def size(self) -> int:
        """The size of its tables in bytes (private)."""
        return sum(memory.size for memory in self._columns.values())

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """Return the ticks with rows that count identifiers seen first in their window; else see `Memory`."""
        if not (self._columns and ticks):
            return ticks, {}
        used: dict[int, list[Used]] = {column: [] for column in self._columns}
        counted = [self._counted(closed, used) for closed in ticks]
        settled = {
            column: memory.settle(used[column], ticks[-1].tick + 1)
            for column, memory in self._columns.items()
        }
        return counted, {"arrived": {column: part for column, part in settled.items() if part}}

    def rewind(self, cut: Cut) -> Cut:
        """Return the cut; records behind it never reach this memory."""
        return cut

    def replay(self, commit: Commit) -> None:
        """Add what a commit recorded.

        Raises:
            FailClosed: this memory has not written the entries.
        """
        for column, memory in self._columns.items():
            memory.recall(commit.arrived.get(column, {}), commit)

    def content(self) -> Recorded:
        """Return all entries, in the form of commits (private)."""
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


class OpenIdentifiers:
    """The identifiers that have come in ticks behind the last commit, by tick and column."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, list[Hashes]]] = {}
        self._next_tick = 0

    def replay(self, commit: Commit) -> None:
        """Add the identifiers of the next commit, and drop those of ticks that are over with it.

        Raises:
            FailClosed: the commit adds to a tick that is over, or its identifiers cannot be read.
        """
        if commit.ticks:
            self._next_tick = commit.ticks[-1] + 1
        came = read_identifiers(commit.arriving)
        if any(tick < self._next_tick for tick in came):
            raise FailClosed(
                f"commit {commit.sequence} of the journal holds identifiers of a tick that was over: restore the "
                "journal, or run the version of the code that wrote it"
            )
        self._add(came)

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """See `Memory`."""
        if not ticks:
            return ticks, {}
        self._next_tick = ticks[-1].tick + 1
        came = added_behind(ticks[-1].tick, (closed.arriving for closed in ticks))
        self._add(came)
        return ticks, {"arriving": write_identifiers(came)}

    def rewind(self, cut: Cut) -> Cut:
        """Return the cut with the identifiers of open ticks; records behind the cut never reach this memory."""
        return replace(cut, arriving=self.content())

    def content(self) -> dict[int, ByColumn]:
        """Return all identifiers, by tick and column (private)."""
        return {
            tick: {column: np.concatenate(parts) for column, parts in sorted(found.items())}
            for tick, found in sorted(self._parts.items())
        }

    def _add(self, came: Mapping[int, ByColumn]) -> None:
        for tick, columns in came.items():
            for column, hashes in columns.items():
                self._parts.setdefault(tick, {}).setdefault(column, []).append(hashes)
        for tick in [open_tick for open_tick in self._parts if open_tick < self._next_tick]:
            del self._parts[tick]

    def __repr__(self) -> str:
        return "<OpenIdentifiers>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


def added_behind(last: int, cuts: Iterable[Mapping[int, ByColumn]]) -> dict[int, ByColumn]:
    """Return the distinct identifiers that these cuts added to ticks after `last`, by tick and column."""
    came: dict[int, Came] = {}
    for cut in cuts:
        for tick, found in cut.items():
            if tick > last:
                came.setdefault(tick, Came()).add(found)
    return {tick: each.once() for tick, each in sorted(came.items())}
