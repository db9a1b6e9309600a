"""The chain of commits that a running engine adds to, and the cut where it stands.

Rules: a commit says where its cut lies and links to the one before it. One is in flight at a time and its outcome is
always awaited. This file knows no actor, message or source.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from stream_dp.core.tick_grid import TickGrid
from stream_dp.engine.gate import Gate
from stream_dp.engine.recovery.recovery import Recovered
from stream_dp.engine.ticks.tick_assembler import ClosedTick, Cut
from stream_dp.journal.answer_body import AnswerCut
from stream_dp.journal.commit import Commit, Release, SavedStates
from stream_dp.journal.dead_letters import DeadLetters


class CommitChain:
    """Seals commits and makes them durable through `gate`, continuing (and updating) the chain of `recovered`."""

    def __init__(self, gate: Gate, grid: TickGrid, recovered: Recovered) -> None:
        self._gate = gate
        self._grid = grid
        self.now = recovered
        self.settled = recovered.cut.next_tick
        """The first tick that is not durable."""

    @property
    def next_tick(self) -> int:
        """The tick that comes next; a change made now takes effect from it on."""
        return self.now.cut.next_tick

    @property
    def shown(self) -> int:
        """The first tick that is not public; it tells nothing of ticks that are being committed."""
        unpublished = self._gate.unpublished
        return self.settled if unpublished is None else unpublished

    @property
    def standing(self) -> AnswerCut:
        """The cut in the form that answers carry."""
        return AnswerCut.before(self.next_tick, self._grid)

    def opened(self, width: int, fresh: slice) -> Cut:
        """Give the rows at the cut `width` entries, of which those in `fresh` begin to count; return the cut."""
        self.now.cut = self.now.cut.opened(width, fresh)
        return self.now.cut

    async def add(self, commit: Commit) -> None:
        """Append a commit at the cut: make it durable, then make its releases and answers visible."""
        commit = self._placed(commit)
        sealed, self.now.previous = self._gate.seal(commit)
        self.now.next_commit += 1
        await uncancelled(self._gate.commit(commit, sealed))
        if commit.ticks:
            self.settled = commit.ticks[-1] + 1

    def _placed(self, commit: Commit) -> Commit:
        """Return the commit with its number, its link and the cut filled in."""
        now, cut = self.now, self.now.cut
        admitted = tuple(sorted(cut.marks.keys() - set(now.partitions)))
        now.partitions += admitted
        return msgspec.structs.replace(
            commit,
            sequence=now.next_commit,
            previous=now.previous,
            positions=dict(cut.positions),
            marks=dict(cut.marks),
            pending=cut.sparse,
            admitted=admitted,
            behind={partition: tuple(one) for partition, one in cut.behind.items()},
        )


def commit_of(
    ticks: Sequence[ClosedTick],
    seeds: Sequence[bytes],
    releases: tuple[Release, ...],
    snapshot: SavedStates | None,
    remembered: Mapping[str, Any],
) -> Commit:
    """Return the commit of these ticks; it has no place in the chain yet.

    `remembered` holds the fields that memories write.
    """
    return Commit(
        0,
        b"",
        ticks=tuple(t.tick for t in ticks),
        rows=tuple(tuple(t.row.tolist()) for t in ticks),
        seeds=tuple(seeds),
        releases=releases,
        dead_letters=DeadLetters(*(t.dead_letters for t in ticks)).sealed(),
        late=sum(t.late for t in ticks),
        records=sum(t.records for t in ticks),
        snapshot=snapshot,
        capped=sum(t.capped for t in ticks),
        **remembered,
    )


async def uncancelled(commit: Coroutine[Any, Any, None]) -> None:
    """Await a commit; if cancelled, wait for its outcome first, because that must be known."""
    task = asyncio.create_task(commit)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the cancellation already says why the engine ends
        raise
