"""The reader: source -> decoder -> guard -> router -> ticks, beside the commits, and again where a series was created.

Rules: the bounded inbox makes it wait. What it has read is not durable and can be read again at any time. This file
knows no actor and no journal.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from stream_dp.engine.commands import Inbox
from stream_dp.engine.ports import Batch, Source
from stream_dp.engine.tick_assembler import Cut, Router, TickAssembler
from stream_dp.engine.user_memory import Memories, UserMemory

# ---
# The guard between the source and the rows: which records of a batch count at all.
#
# Rules: a guard decides by a record's user, by that user's own records and by public values. Its memory stands at the
# cut. This file knows no field and no hash.


class RecordGuard(Protocol):
    """Decides which records count; nothing that a payload holds raises."""

    @property
    def memory(self) -> UserMemory:
        """The guard's memory of users."""
        ...

    def begin(self, partitions: Sequence[int]) -> None:
        """Start to guard a source that had these partitions at the first start.

        Raises:
            UsageError: it cannot tell which partition holds a user's records.
        """
        ...

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return the batch without records that do not count, and with the cap that the others use.

        The ticks up to `passed` are over in the batch's partition, so their records are late.
        """
        ...


class EveryRecord:
    """Admits every record; for pipelines that protect single events."""

    def __init__(self) -> None:
        self.memory = UserMemory(1, None)

    def begin(self, partitions: Sequence[int]) -> None:
        """Do nothing."""

    def admit(self, batch: Batch, passed: int) -> Batch:
        """Return the batch unchanged."""
        return batch


class Reader:
    """Reads `source` from a cut on and puts closed ticks into `inbox`, at most `group` at a time."""

    def __init__(
        self,
        source: Source,
        guard: RecordGuard,
        router: Router,
        partitions: Sequence[int],
        inbox: Inbox,
        memories: Memories,
        tasks: asyncio.TaskGroup,
        group: Callable[[], int],
    ) -> None:
        self._source = source
        self._guard = guard
        self._router = router
        self._partitions = partitions
        self._inbox = inbox
        self._memories = memories
        self._tasks = tasks
        self._group = group
        self._task: asyncio.Task[None] | None = None

    @property
    def width(self) -> int:
        """The number of entries of a row."""
        return self._router.width

    def begin(self, cut: Cut) -> None:
        """Start reading behind this cut, where the source stands."""
        cut = self._memories.rewind(cut)
        ticks = TickAssembler.at(cut, self._partitions, self.width)
        self._task = self._tasks.create_task(self._gather(ticks, self._group()))

    async def forget(self) -> None:
        """Stop reading, and drop what was read behind the cut."""
        await self.end()
        self._inbox.drop_ticks()

    async def again(self, cut: Cut) -> None:
        """Drop what was read behind this cut and read it again."""
        await self.forget()
        await self._source.seek(cut.positions, cut.behind)
        self.begin(cut)

    async def end(self) -> None:
        """Stop reading."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _gather(self, ticks: TickAssembler, group: int) -> None:
        batches: Sequence[Batch] = ()
        while True:
            for batch in batches:
                passed = ticks.passed(batch.partition)
                admitted = self._guard.admit(self._router.decode(batch), passed)
                ticks.add(admitted, self._router.route(admitted))
                await asyncio.sleep(0)  # let other tasks run after each batch
            while closed := ticks.closed(group):
                await self._inbox.put(closed)
            if not (batches := await self._source.read()):
                break
        await self._inbox.put([])
