"""The content of a replay topic: the feed of its marks, the last marked tick, and whether there are records.

Rules: only committed records count, and another program's open transaction is an error. Whole batches are read, so
no single record can stop the inspection. The first mark names the topic's feed: later marks may be copies.
"""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    refused,
    speaking,
)
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.log.reader import reading
from stream_dp.kafka.source.batches import batches, consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.unpacker import Unpacker

_POLL_MS = 100


class FedTopic(NamedTuple):
    """The feed of the first mark (None: no mark), the last marked tick (-1: none), whether there are records."""

    feed: str | None
    last: int
    records: bool


async def look_at(settings: KafkaSettings, marks: TickMarks, partitions: Sequence[int]) -> FedTopic:
    """Return what the topic of `marks` holds; the marks of the first partition stand for all partitions.

    That partition is read from its beginning, because the records at its end may be copies of marks.

    Raises:
        FailClosed: a transaction of another program stays open.
        WorldError: the brokers do not answer, or deny access.
    """
    async with reading(settings, marks.topic) as log:
        await log.bounds()
    reader = consumer(settings, wait=True, fetch_wait_ms=_POLL_MS)
    unpacker = Unpacker(marks=True)
    feed, last, records = None, -1, False
    try:
        with speaking(settings, f"topic {marks.topic}"):
            await connect(settings, reader)
            async for batch in _committed(settings, reader, marks.topic, partitions[0]):
                records = True
                for claim in unpacker.unpack(batch).marks.values():
                    mark = marks.read_whole(partitions[0], claim)
                    if mark is not None:
                        feed, last = feed or mark.feed, max(last, mark.tick)
            for partition in partitions[1:]:
                if records:
                    break
                async for _ in _committed(settings, reader, marks.topic, partition):
                    records = True
                    break
    finally:
        await disconnect(reader)
    return FedTopic(feed, last, records)


async def _committed(
    settings: KafkaSettings, reader: Any, topic: str, partition: int
) -> AsyncIterator[RecordBatch]:
    """Yield the batches of a partition with committed records, up to its present end."""
    place = library().TopicPartition(topic, partition)
    at = (await reader.beginning_offsets([place]))[place]
    end = (await reader.end_offsets([place]))[place]
    reader.assign([place])
    reader.seek(place, at)
    heard = time.monotonic()
    while at < end:
        fetched = await reader.getmany(place, timeout_ms=_POLL_MS)
        for batch in batches(fetched.get(place, ())):
            if batch.kind in {Kind.DATA, Kind.FOREIGN} and batch.records:
                yield batch
        before, at = at, await reader.position(place)
        if at > before:
            heard = time.monotonic()
        elif time.monotonic() - heard > settings.patience_s:
            raise refused(settings, f"topic {topic}", TimeoutError())
