"""What an engine remembers beside the states of its mechanisms, and a journal restores: one class for each kind.

Rules: a memory stands at the cut. A commit holds what its ticks, or the messages before it, added to the memory. A
start replays all commits in order, which gives the memory of an uninterrupted run. Records read behind the cut
leave no trace: `rewind` removes them before they are read again. A new kind of memory is a class and its place in
the engine's list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stream_dp.engine.history import Remembering
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.journal.commit import Commit


class Memory(Remembering, Protocol):
    """Remembers what happened before the cut; a start replays every commit of the journal into it first."""

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """Move the cut behind these ticks, which come next; without ticks (a commit of messages) stay at the cut.

        Return the ticks with rows as they count, and the commit fields that this memory writes.
        """

    def rewind(self, cut: Cut) -> Cut:
        """Forget records read behind the cut; return the cut with what this memory knows of open ticks."""


class Memories:
    """Several memories as one; each gets the ticks that the memory before it returned."""

    def __init__(self, *memories: Memory) -> None:
        self._memories = memories

    def replay(self, commit: Commit) -> None:
        for memory in self._memories:
            memory.replay(commit)

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        fields = dict[str, Any]()
        for memory in self._memories:
            ticks, written = memory.record(ticks)
            fields |= written
        return ticks, fields

    def rewind(self, cut: Cut) -> Cut:
        for memory in self._memories:
            cut = memory.rewind(cut)
        return cut
