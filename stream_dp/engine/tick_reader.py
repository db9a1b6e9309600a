"""The reader: source -> decoder -> guard -> router -> ticks, beside the commits, and again where a series was created.

Rules: the bounded inbox makes it wait. What it has read is not durable and can be read again at any time. A guard
decides by a record's user, by that user's own records and by public values. This file knows no actor and no journal.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_dp.engine.commands import Inbox
from stream_dp.engine.memories import Memories, UserMemory
from stream_dp.engine.ports import Batch, Source
from stream_dp.engine.tick_assembler import Cut, Router, TickAssembler


class RecordGuard(Protocol):
    """Decides which records count; nothing that a payload holds raises."""

    @property
    def memories(self) -> Sequence[UserMemory]:
        """Return the memories of its caps."""

    def begin(self, partitions: Sequence[int]) -> None:
        """Start to guard a source that had these partitions at the first start. Raises `UsageError` if it cannot tell
        which partition holds a user's records.
        """

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return the batch without records that do not count, and with the cap that the others use. The ticks up to
        `passed` are over in the batch's partition, so their records are late.
        """


class EveryRecord:
    """Admits every record; for pipelines that protect single events."""

    def __init__(self) -> None:
        self.memories: Sequence[UserMemory] = (UserMemory(1, None),)

    def begin(self, partitions: Sequence[int]) -> None:
        """Do nothing."""

    def admit(self, batch: Batch, passed: int) -> Batch:
        return batch


@dataclass(slots=True, repr=False, eq=False)
class Reader:
    """Reads `source` from a cut on and puts closed ticks into `inbox`: at a time those up to the next multiple of
    `group`.
    """

    source: Source
    guard: RecordGuard
    router: Router
    partitions: Sequence[int]
    inbox: Inbox
    memories: Memories
    tasks: asyncio.TaskGroup
    group: Callable[[], int]
    _task: asyncio.Task[None] | None = None

    @property
    def width(self) -> int:
        return self.router.width

    def begin(self, cut: Cut) -> None:
        """Start reading behind this cut, where the source stands."""
        ticks = TickAssembler(self.partitions, self.width, self.memories.rewind(cut))
        self._task = self.tasks.create_task(self._gather(ticks, cut.next_tick, self.group()))

    async def forget(self) -> None:
        """Stop reading, and drop what was read behind the cut."""
        await self.end()
        self.inbox.drop_ticks()

    async def again(self, cut: Cut) -> None:
        """Drop what was read behind this cut and read it again."""
        await self.forget()
        await self.source.seek(cut.positions, cut.behind)
        self.begin(cut)

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _gather(self, ticks: TickAssembler, tick: int, group: int) -> None:
        batches: Sequence[Batch] = ()
        while True:
            for batch in batches:
                passed = ticks.passed(batch.partition)
                admitted = self.guard.admit(self.router.decode(batch), passed)
                ticks.add(admitted, self.router.route(admitted))
                await asyncio.sleep(0)  # let other tasks run after each batch
            while closed := ticks.closed(group - tick % group):
                tick = closed[-1].tick + 1
                await self.inbox.put(closed, group)
            if not (batches := await self.source.read()):
                break
        await self.inbox.put([])
