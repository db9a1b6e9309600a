"""Feeding a topic for a replay clock: records in time order, and a tick mark in every partition at each end.

Rules: a chunk of whole ticks is one transaction, so a feed that is killed goes on after its last complete tick and
never sends a record twice. A record's partition is a function of the record alone. Marks carry the header
`stream-dp-tick` and an empty value. This file knows no mechanism and no release.
"""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

from stream_dp.adapters.kafka_shard import reading
from stream_dp.adapters.kafka_topics import KafkaSettings, library, speaking
from stream_dp.adapters.records import Record

MARK = "stream-dp-tick"
_SCAN = 64


class KafkaFeed:
    """Writes ticks into `topic`; one feed per topic (the newest wins)."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._producer: Any = None
        self._partitions: tuple[int, ...] = ()

    async def open(self) -> int:
        """Fence other feeds and return the next tick to send: the one after the last mark in the topic."""
        with speaking(self._settings, f"topic {self._topic}"):
            self._producer = library().AIOKafkaProducer(
                **self._settings.client(),
                transactional_id=f"{self._topic}.stream-dp-feed",
                max_batch_size=256 * 1024,
                linger_ms=5,
                compression_type="lz4",
            )
            await self._producer.start()
            self._partitions = tuple(sorted(await self._producer.partitions_for(self._topic)))
        return await self._last_mark() + 1

    async def send(self, first: int, ticks: Sequence[Sequence[Record]]) -> None:
        """Write the records of ticks first, first+1, ... and their marks, all or nothing."""
        with speaking(self._settings, f"topic {self._topic}"):
            async with self._producer.transaction():
                sent: list[Any] = []
                for tick, records in enumerate(ticks, first):
                    sent += [await self._record(record.payload) for record in records]
                    sent += [await self._mark(partition, tick) for partition in self._partitions]
                await asyncio.gather(*sent)

    async def close(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _record(self, payload: bytes) -> Any:
        partition = self._partitions[zlib.crc32(payload) % len(self._partitions)]
        return await self._producer.send(self._topic, payload, partition=partition)

    async def _mark(self, partition: int, tick: int) -> Any:
        header = [(MARK, str(tick).encode())]
        return await self._producer.send(self._topic, b"", partition=partition, headers=header)

    async def _last_mark(self) -> int:
        """The last tick whose marks are in the topic; -1 where there is none (partition 0 tells for all)."""
        async with reading(self._settings, self._topic) as log:
            begin, end = await log.bounds()
            start = max(begin, end - _SCAN)
            while True:
                found = -1
                async for records in log.records(start, end):
                    for record in records:
                        for name, value in record.headers:
                            found = int(value) if name == MARK else found
                if found >= 0 or start <= begin:
                    return found
                start = max(begin, start - 16 * (end - start))
