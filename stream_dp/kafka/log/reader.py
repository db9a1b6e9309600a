"""A reader of one partition of the pipeline's own topics; most have one.

Rules: the reader sees committed records only and waits for open transactions, unless it is opened at the level
`read_uncommitted`, which shows all written records.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from stream_dp.errors import FailClosed
from stream_dp.kafka.client.clients import (
    RECORD_BYTES,
    KafkaSettings,
    connected,
    library,
    patiently,
    refused,
    speaking,
)

_ROWS = 500
_POLL_MS = 100
_WINDOW, _WIDER = 8, 16


class PartitionLog:
    """Committed records of a partition, which `committed` reads."""

    def __init__(self, settings: KafkaSettings, place: Any, committed: Any, raw: Any) -> None:
        self._settings, self._topic = settings, place.topic
        self._committed, self._raw = committed, raw
        self._partition = place

    async def bounds(self) -> tuple[int, int]:
        """Return begin and end of the log; `FailClosed` if a transaction stays open on it."""
        decided, end = await self.ends()
        if decided < end:
            raise FailClosed(
                f"topic {self._topic!r} has an open transaction. If an engine was killed just now, "
                "the transaction belongs to that engine, and the brokers end the transaction within "
                "a minute: try again then. Otherwise another program writes to this topic, which "
                "only this pipeline may do: remove that program's right to write (ACL), then start "
                "again"
            )
        return await self.begin(), decided

    async def begin(self) -> int:
        return await self._offset(self._raw.beginning_offsets)

    async def ends(self) -> tuple[int, int]:
        """Return the end of the decided part, and the end of the log at the time of the call.

        The two are equal once no transaction is open; wait some seconds at most for an open one.
        """
        deadline = time.monotonic() + self._settings.patience_s
        end = await self._offset(self._raw.end_offsets)
        while (decided := await self._offset(self._committed.end_offsets)) < end:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        return decided, end

    async def _offset(self, look_up: Callable[[list[Any]], Awaitable[dict[Any, int]]]) -> int:
        place, about = self._partition, f"topic {self._topic!r}"
        return int((await patiently(self._settings, about, lambda: look_up([place])))[place])

    async def records(self, begin: int, end: int) -> AsyncGenerator[list[Any]]:
        """Yield the visible records from `begin` up to `end`, in groups."""
        self._committed.seek(self._partition, begin)
        seen = time.monotonic()
        while await self._committed.position(self._partition) < end:
            fetched = await self._committed.getmany(timeout_ms=_POLL_MS, max_records=_ROWS)
            group = [record for record in fetched.get(self._partition, ()) if record.offset < end]
            if group:
                yield group
                seen = time.monotonic()
            elif time.monotonic() - seen > self._settings.retry_s:
                raise refused(self._settings, f"topic {self._topic!r}", TimeoutError())

    async def start_of(self, begin: int, end: int, wanted: Callable[[bytes], bool]) -> int:
        """Return a place at or before the first `wanted` record; wanted ones are at the end. Searches backwards."""
        for start in _backwards(begin, end):
            async with aclosing(self.records(start, end)) as groups:
                first = await anext(groups, None)
            if first is not None and not wanted(first[0].value):
                return start
        return begin

    async def first(self, wanted: Callable[[Any], bool]) -> int:
        """Return the place of the first `wanted` record, by halving; wanted ones are at the end, and there is one."""
        low, end = await self.bounds()
        high = end
        while low < high:
            middle = (low + high) // 2
            async with aclosing(self.records(middle, high)) as groups:
                group = await anext(groups, None)
            if group is None or wanted(group[0]):
                high = middle
            else:
                low = group[0].offset + 1
        async with aclosing(self.records(low, end)) as groups:
            return int((await anext(groups))[0].offset)

    async def last(self) -> Any | None:
        """Return the last visible record; the log may end with markers and aborted records."""
        begin, end = await self.bounds()
        for start in _backwards(begin, end):
            if lasts := [group[-1] async for group in self.records(start, end)]:
                return lasts[-1]
        return None


def _backwards(begin: int, end: int) -> Iterator[int]:
    """Yield where to begin reading, ever earlier, down to `begin`."""
    window, start = _WINDOW, end
    while start > begin:
        start = max(begin, end - window)
        yield start
        window *= _WIDER


@asynccontextmanager
async def reading(
    settings: KafkaSettings, topic: str, level: str = "read_committed", partition: int = 0
) -> AsyncIterator[PartitionLog]:
    """Open a log of one of the pipeline's own topics; `read_uncommitted` shows all records ever written."""
    place = library().TopicPartition(topic, partition)
    clients = [
        library().AIOKafkaConsumer(
            isolation_level=level,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=RECORD_BYTES,
            fetch_max_wait_ms=_POLL_MS,
            **settings.client(),
        )
        for level in (level, "read_uncommitted")
    ]
    with speaking(settings, f"topic {topic!r}"):
        async with connected(settings, *clients):
            clients[0].assign([place])
            clients[0].seek(place, 0)
            yield PartitionLog(settings, place, *clients)
