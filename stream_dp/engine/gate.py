"""The gate: a private commit first, then the outbox, the only way out for private data; and the chain of commits.

Rules: a release or an answer becomes visible only after the commit that holds its bytes is durable, and only as exactly
those bytes. An answer is published at once. Public blocks are cut by tick numbers, never by load (`PublicBlocks`): a
block is published as a whole, and not before its hold is over; a commit may hold a part of one, or several. A commit
says where its cut lies and links to the one before it. One is in flight at a time, is never cancelled, and its outcome
is awaited.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec

from stream_dp.core.time import TickGrid
from stream_dp.engine.ports import Ports, Published
from stream_dp.engine.recovery import Recovered
from stream_dp.engine.run_config import PublicBlocks
from stream_dp.engine.series import MadeSeries, Series
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.journal.answer_body import AnswerCut
from stream_dp.journal.checkpoint import KEPT, PRUNED, Standing, pieces_of
from stream_dp.journal.checkpoint import KIND as CHECKPOINT
from stream_dp.journal.commit import (
    Answer,
    Commit,
    Release,
    SavedStates,
    digest,
    encode,
    part,
    row_of,
)
from stream_dp.journal.dead_letters import DeadLetters


@dataclass(slots=True, repr=False, eq=False)
class Gate:
    """Seals, commits and publishes; a public block waits for `hold` ms after its end. `releasing` returns the series
    that have a release at the tick that was committed last.
    """

    ports: Ports
    grid: TickGrid
    blocks: PublicBlocks
    hold: int | None = None
    published: Published = lambda release: None
    releasing: Callable[[], Iterable[Series | MadeSeries]] = tuple
    durable: int = field(default=0, init=False)
    """How many commits this gate has made durable."""
    _waiting: deque[Release] = field(default_factory=deque, init=False)
    _ends: deque[int] = field(default_factory=deque, init=False)

    @property
    def unpublished(self) -> int | None:
        """The first durable tick that waits for the rest of its block; None if there is none."""
        return self._waiting[0].tick if self._waiting else None

    def seal(self, commit: Commit) -> tuple[bytes, bytes]:
        """Return the sealed bytes of a commit, and their digest, which the next commit holds as `previous`."""
        sealed = self.ports.sealer.seal(commit.sequence, encode(commit))
        return sealed, digest(sealed)

    async def commit(self, commit: Commit, sealed: bytes) -> None:
        """Make the commit durable, then publish its answers and the blocks it completes."""
        with self.ports.spans("commit"):
            await self.ports.journal.append(commit, sealed)
        self.durable += 1
        await self.tell(commit.answers)
        await self.publish(commit.releases)

    async def tell(self, durable: Sequence[Answer]) -> None:
        if durable and self.ports.answers is not None:
            with self.ports.spans("answer"):
                await self.ports.answers.publish(durable)

    async def publish(self, durable: Sequence[Release]) -> None:
        """Queue releases of durable commits, which hold whole ticks, and publish every complete block."""
        self._waiting += durable
        ticks = dict.fromkeys(release.tick for release in durable)
        self._ends += self.blocks.ends(ticks, self.releasing)
        while self._ends:
            last = self._ends[0]
            block = self._up_to(last)
            if self.hold is not None:
                await self.ports.clock.sleep_until(self.grid.end(last) + self.hold)
            with self.ports.spans("publish", tick=last):
                await self.ports.sink.publish(block)
            for release in block:
                self._waiting.popleft()
                self.published(release)
            self._ends.popleft()

    def _up_to(self, tick: int) -> list[Release]:
        return [*takewhile(lambda release: release.tick <= tick, self._waiting)]


class CommitChain:
    """Seals commits and makes them durable through `gate`, continuing (and updating) the chain of `recovered`."""

    def __init__(self, gate: Gate, grid: TickGrid, recovered: Recovered) -> None:
        self._gate = gate
        self._grid = grid
        self.now = recovered
        self.settled = recovered.cut.next_tick
        """The first tick that is not durable."""
        self._pieces: deque[bytes] = deque()
        self._owed = recovered.owed

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
        return AnswerCut.before(self.next_tick, self._grid)

    def opened(self, width: int, fresh: slice) -> Cut:
        """Give the rows at the cut `width` entries, of which those in `fresh` begin to count; return the cut."""
        self.now.cut = self.now.cut.opened(width, fresh)
        return self.now.cut

    def with_checkpoint(
        self, commit: Commit, series: Callable[[], Standing], save: Callable[[], dict[str, bytes]]
    ) -> Commit:
        """Return this commit of ticks, which is the next one, with a piece of a checkpoint if there is one to write.

        A checkpoint stands after a commit with a snapshot. The next one is made once as many other bytes have been
        committed as the last one had, so that checkpoints take no more room than all else and one of them. `series`
        returns which there are, `save` what the memories hold after this commit.
        """
        if commit.snapshot is not None and self._owed <= 0 and not self._pieces:
            checkpoint = self.now.past.checkpoint(self.now.partitions, series(), save())
            self._pieces.extend(pieces_of(checkpoint, self.now.next_commit))
            self._owed = 2 * sum(map(len, self._pieces))
        if not self._pieces:
            return commit
        parts = commit.parts | {CHECKPOINT: self._pieces.popleft()}
        return msgspec.structs.replace(commit, parts=parts)

    def prunable(self, keep: int) -> int | None:
        """Return the next commit before which all may be deleted, because a start needs nothing of it: two checkpoints
        stand at it or behind it, its ticks are public, and so are `keep` ticks after them. Public values decide.
        """
        journal = self._gate.ports.journal
        if len(known := journal.checkpoints()) < KEPT:
            return None
        before = self.now.past.places.next(journal.begin, self.shown - 1 - keep)
        return before if before is not None and before <= known[-1] else None

    @property
    def said(self) -> int | None:
        """The commit before which all is to be deleted, as the journal says, and is not yet; None if all is."""
        begin, pruned = self._gate.ports.journal.begin, self.now.past.places.pruned
        return pruned if begin < pruned else None

    async def say(self, before: int, parts: dict[str, bytes]) -> None:
        """Commit that all before this commit is to be deleted, with the `parts` of memories."""
        await self.add(Commit(0, b"", parts=parts | {PRUNED: part(before)}))

    async def add(self, commit: Commit) -> None:
        """Append a commit at the cut: make it durable, then make its releases and answers visible."""
        now, cut = self.now, self.now.cut
        admitted = tuple(sorted(cut.marks.keys() - set(now.partitions)))
        now.partitions += admitted
        placed = msgspec.structs.replace(
            commit, sequence=now.next_commit, previous=now.previous, positions=dict(cut.positions),
            marks=dict(cut.marks), pending=cut.sparse, admitted=admitted,
            behind={partition: tuple(open_part) for partition, open_part in cut.behind.items()},
        )  # fmt: skip
        sealed, now.previous = self._gate.seal(placed)
        self._owed -= len(sealed)
        now.past.add(placed)
        now.next_commit += 1
        await uncancelled(self._gate.commit(placed, sealed))
        if commit.ticks:
            self.settled = commit.ticks[-1] + 1


def commit_of(
    ticks: Sequence[ClosedTick],
    seeds: Sequence[bytes],
    releases: tuple[Release, ...],
    snapshot: SavedStates | None,
    parts: dict[str, bytes],
) -> Commit:
    """Return the commit of these ticks, without a place in the chain; `parts` are those of memories, by kind."""
    return Commit(
        0, b"", ticks=tuple(t.tick for t in ticks), rows=tuple(row_of(t.row) for t in ticks),
        seeds=tuple(seeds), releases=releases, snapshot=snapshot, parts=parts,
        dead_letters=DeadLetters(*(t.dead_letters for t in ticks)).sealed(),
        late=sum(t.late for t in ticks),
        records=sum(t.records for t in ticks),
        capped=sum(t.capped for t in ticks),
    )  # fmt: skip


async def uncancelled(commit: Coroutine[Any, Any, None]) -> None:
    """Await a commit; if cancelled, wait for its outcome first: it must be known."""
    task = asyncio.create_task(commit)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the cancellation already says why the engine ends
        raise
