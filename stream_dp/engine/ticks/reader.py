"""The reader: source -> decoder -> guard -> router -> ticks, beside the commits, and again where a series was created.

Rules: the bounded inbox holds it back. What it holds is not durable and can be read again at any time. This file
knows no actor and no journal.
"""

import asyncio
from collections.abc import Sequence

from stream_dp.engine.commands import Inbox
from stream_dp.engine.ports import Batch, Source
from stream_dp.engine.ticks.record_guard import RecordGuard
from stream_dp.engine.ticks.tick_assembler import Cut, Router, TickAssembler


class Reader:
    """Reads `source` from a cut on and puts closed ticks into `inbox`."""

    def __init__(
        self,
        source: Source,
        guard: RecordGuard,
        router: Router,
        partitions: Sequence[int],
        inbox: Inbox,
    ) -> None:
        self._source = source
        self._guard = guard
        self._router = router
        self._partitions = partitions
        self._inbox = inbox
        self._task: asyncio.Task[None] | None = None

    def begin(self, tasks: asyncio.TaskGroup, cut: Cut, group: int) -> None:
        """Read on behind this cut, where the source stands; put at most `group` ticks at a time."""
        self._guard.memory.rewind()
        ticks = TickAssembler.at(cut, self._partitions, self._router.width)
        self._task = tasks.create_task(self._gather(ticks, group))

    async def forget(self) -> None:
        """Stop reading, and forget what was read behind the cut."""
        await self.end()
        self._inbox.drop_ticks()

    async def again(self, tasks: asyncio.TaskGroup, cut: Cut, group: int) -> None:
        """Forget what was read behind this cut and read it again."""
        await self.forget()
        await self._source.seek(cut.positions, cut.behind)
        self.begin(tasks, cut, group)

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
                decoded = self._router.decode(batch)
                admitted = self._guard.admit(decoded, ticks.passed(batch.partition))
                routed = self._router.route(admitted.batch)
                ticks.add(admitted.batch, routed, admitted.used, admitted.capped, admitted.users)
                await asyncio.sleep(0)  # others must not wait for all that was fetched
            while closed := ticks.closed(group):
                await self._inbox.put(closed)
            if not (batches := await self._source.read()):
                break
        await self._inbox.put([])
