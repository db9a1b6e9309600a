"""What an engine remembers beside the states of its mechanisms, and a journal restores: one class for each kind.

Rules: a memory stands at the cut. A commit holds, in its `parts` under the memory's kind, what its ticks, or the
messages before it, added to the memory. A start replays all commits in order, which gives the memory of an
uninterrupted run. Records read behind the cut leave no trace: `rewind` removes them before they are read again. A new
kind of memory is a class and its place in the engine's list.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from stream_dp.engine.history import Remembering
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit


class Memory(Remembering, Protocol):
    """Remembers what happened before the cut; a start replays every commit of the journal into it first."""

    kind: ClassVar[str]
    """The kind of its part in commits."""

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Move the cut behind these ticks, which come next; without ticks (a commit of messages) stay at the cut.

        Return the ticks with rows as they count, and this memory's part of the commit (None: nothing was added).
        """
        ...

    def rewind(self, cut: Cut) -> Cut:
        """Forget records read behind the cut; return the cut with what this memory knows of open ticks."""
        ...


class Memories:
    """The memories of an engine; each gets the ticks that the memory before it returned."""

    def __init__(self, *memories: Memory) -> None:
        self._memories = memories

    def replay(self, commit: Commit) -> None:
        """See `Memory`.

        Raises:
            FailClosed: the commit has a part of a kind that no memory reads.
        """
        unknown = sorted(commit.parts.keys() - {memory.kind for memory in self._memories})
        if unknown:
            raise FailClosed(
                f"commit {commit.sequence} of the journal holds a part of the kind {unknown[0]!r}, which this engine "
                "does not read: run the version of the code, and the pipeline file, that wrote it"
            )
        for memory in self._memories:
            memory.replay(commit)

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], dict[str, bytes]]:
        """Return the ticks with rows as they count, and the parts of the commit by kind; see `Memory`."""
        parts = dict[str, bytes]()
        for memory in self._memories:
            ticks, written = memory.record(ticks)
            if written is not None:
                parts[memory.kind] = written
        return ticks, parts

    def rewind(self, cut: Cut) -> Cut:
        """See `Memory`."""
        for memory in self._memories:
            cut = memory.rewind(cut)
        return cut
