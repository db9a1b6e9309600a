"""What an engine remembers beside the states of its mechanisms, and its journal gives back: a list, one class a kind.

Rules: a memory stands at the cut. A commit holds what its ticks, or the messages before it, added; a start replays all
commits in order, and has the memory of an uninterrupted run. What is read behind the cut leaves no trace: `rewind`
takes it back before it is read again. A new kind is a class and its place in the engine's list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from stream_dp.engine.recovery.history import Remembering
from stream_dp.engine.ticks.tick_assembler import ClosedTick, Cut
from stream_dp.journal.commit import Commit


class Memory(Remembering, Protocol):
    """Remembers what happened before the cut; a start gives it every commit of the journal first."""

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """Move on behind these ticks, which come next; without any stay at the cut, where a commit of messages lies.

        Return the ticks as they count, and the fields of their commit that this memory writes.
        """
        ...

    def rewind(self, cut: Cut) -> Cut:
        """Forget what was read behind the cut; return the cut with what this memory knows of ticks still open."""
        ...


class Memories:
    """Several memories as one; each takes the ticks as those before it let them count."""

    def __init__(self, *memories: Memory) -> None:
        self._memories = memories

    def replay(self, commit: Commit) -> None:
        """See `Memory`."""
        for memory in self._memories:
            memory.replay(commit)

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """See `Memory`."""
        fields = dict[str, Any]()
        for memory in self._memories:
            ticks, written = memory.record(ticks)
            fields |= written
        return ticks, fields

    def rewind(self, cut: Cut) -> Cut:
        """See `Memory`."""
        for memory in self._memories:
            cut = memory.rewind(cut)
        return cut
