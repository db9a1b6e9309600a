"""The reader: source -> decoder -> guard -> router -> ticks, beside the commits, and again where a series was created.

Rules: the bounded inbox makes it wait. What it has read is not durable and can be read again at any time. A guard
decides by a record's user, by that user's own records and by public values. This file knows no actor and no journal.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stream_dp.engine.commands import Inbox
from stream_dp.engine.memories import Memories, UserMemory
from stream_dp.engine.ports import Batch, Source
from stream_dp.engine.tick_assembler import ClosedTick, Cut, Router, TickAssembler


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
class Reader(ABC):
    """Reads the source from a cut on and puts closed ticks into `inbox`: at a time those up to the next multiple of
    `group`. `tasks` fail with it, once they are known.
    """

    guard: RecordGuard
    router: Router
    partitions: Sequence[int]
    inbox: Inbox
    memories: Memories
    group: Callable[[], int]
    tasks: asyncio.TaskGroup | None = None
    lost: bool = False
    """Whether what was read behind the cut cannot go on, and is to be read again."""
    _task: asyncio.Task[None] | None = None

    @property
    def width(self) -> int:
        return self.router.width

    @abstractmethod
    async def seek(self, cut: Cut) -> None:
        """Let the source stand at this cut."""

    @abstractmethod
    async def _read(self, cut: Cut, group: int) -> None:
        """Read from this cut on, to the end of the source."""

    def begin(self, cut: Cut) -> None:
        """Start reading behind this cut, where the source stands."""
        if self.tasks is None:
            raise TypeError("the reader must begin inside the task group that ends when it fails")
        self._task = self.tasks.create_task(self._read(self.memories.rewind(cut), self.group()))

    def settled(self, next_tick: int) -> None:  # noqa: B027 - a reader need not do anything
        """Learn that nothing before this tick is read again."""

    async def forget(self) -> None:
        """Stop reading, and drop what was read behind the cut."""
        await self.end()
        self.inbox.drop_ticks()

    async def again(self, cut: Cut) -> None:
        """Drop what was read behind this cut and read it again."""
        await self.forget()
        await self.seek(cut)
        self.begin(cut)

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


@dataclass(slots=True, repr=False, eq=False, kw_only=True)
class OwnReader(Reader):
    """Reads `source` in this process."""

    source: Source

    async def seek(self, cut: Cut) -> None:
        await self.source.seek(cut.positions, cut.behind)

    async def _read(self, cut: Cut, group: int) -> None:
        ticks = TickAssembler(self.partitions, self.width, cut)
        gathering = Gathering(self.guard, self.router, ticks)

        async def put(closed: list[ClosedTick]) -> None:
            await self.inbox.put(closed, group)

        await gathering.to_the_end(self.source, cut.next_tick, group, put)


@dataclass(frozen=True, slots=True, repr=False)
class Gathering:
    """How records become closed ticks: decoder -> guard -> router -> `ticks`."""

    guard: RecordGuard
    router: Router
    ticks: TickAssembler

    def take(self, batch: Batch) -> None:
        passed = self.ticks.passed(batch.partition)
        admitted = self.guard.admit(self.router.decode(batch), passed)
        self.ticks.add(admitted, self.router.route(admitted))

    async def to_the_end(
        self,
        source: Source,
        tick: int,
        group: int,
        put: Callable[[list[ClosedTick]], Awaitable[None]],
    ) -> None:
        """Put the closed ticks of a source, of which `tick` is the next, up to the next multiple of `group` at a time;
        none at its end.
        """
        batches: Sequence[Batch] = ()
        while True:
            for batch in batches:
                self.take(batch)
                await asyncio.sleep(0)  # let other tasks run after each batch
            while closed := self.ticks.closed(group - tick % group):
                tick = closed[-1].tick + 1
                await put(closed)
            if not (batches := await source.read()):
                break
        await put([])
