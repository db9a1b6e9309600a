"""Writes a topic for a replay clock: records in time order, and a mark in every partition after each tick.

Rules: a chunk of whole ticks is one transaction. A killed feed therefore continues after its last complete tick and
never sends a record twice, whatever other programs write to the topic. A topic belongs to the feed of its first mark
(later marks may be copies); a topic with anything before that mark is refused, because the records of both would count.
A record's partition is a function of the record alone (`engine.ports`). Beside it: a producer for trying things out.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from stream_dp.engine.ports import Placement, by_content
from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.records import Record
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    connected,
    disconnect,
    library,
    refused,
    speaking,
)
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.client.topics import administering, config, existing, stamped
from stream_dp.kafka.log.reader import reading
from stream_dp.kafka.source.batches import batches, consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.records.cells import Sent, value_alone

_POLL_MS = 100
AT_ONCE = 1000  # the largest number of unacknowledged records
_ANOTHER = "holds the tick marks of another replay (another file, other records left out, or another schema)"
_UNMARKED = (
    "holds records, but no tick mark that this operator's key signed for this start and step"
)


class FedTopic(NamedTuple):
    """The feed of the first mark (None: no mark), the last marked tick (-1: none), whether there are records."""

    feed: str | None
    last: int
    records: bool


async def look_at(settings: KafkaSettings, marks: TickMarks, partitions: Sequence[int]) -> FedTopic:
    """Return what the topic of `marks` holds; the marks of the first partition stand for all partitions.

    That partition is read from its beginning in whole batches, so no single record can stop it. Only committed records
    count; `FailClosed` if a transaction of another program stays open.
    """
    async with reading(settings, marks.topic) as log:
        await log.bounds()
    reader = consumer(settings, wait=True, fetch_wait_ms=_POLL_MS)
    unpacker = Unpacker(marks=True)
    feed, last, records = None, -1, False
    with speaking(settings, f"topic {marks.topic}"):
        async with connected(settings, reader):
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


class TryOutProducer:
    """Sends records to one existing topic while its context is open; all in-sync replicas acknowledge each."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        place: Placement = by_content,
        sent: Sent = value_alone,
    ) -> None:
        self._settings, self._topic, self._place, self._with = settings, topic, place, sent
        self._partitions: tuple[int, ...] = ()
        self._producer: Any = None
        self._sent: list[asyncio.Future[Any]] = []
        self.stamped = False

    async def __aenter__(self) -> "TryOutProducer":
        """Check the topic and connect; `stamped` then says whether its brokers stamp records on arrival."""
        settings, topic = self._settings, self._topic
        async with administering(settings, f"topic {topic}") as admin:
            if await existing(admin, topic) is None:
                raise WorldError(
                    f"topic {topic} does not exist at {settings.bootstrap}; create it with `stream-dp "
                    f"topic {topic} --bootstrap {settings.bootstrap}`"
                )
            present = await config(admin, topic)
        self.stamped = stamped(present)
        self._producer = library().AIOKafkaProducer(
            **settings.client(), enable_idempotence=True, linger_ms=5
        )
        await connect(settings, self._producer)
        with speaking(settings, f"topic {topic}"):
            self._partitions = tuple(sorted(await self._producer.partitions_for(topic)))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await disconnect(self._producer)

    async def send(self, payload: bytes) -> None:
        """Send a record; when `AT_ONCE` records are unacknowledged, wait for all. `WorldError` if one was not."""
        (partition,) = self._place((payload,), self._partitions)
        with speaking(self._settings, f"topic {self._topic}"):
            key, headers = self._with(payload)
            record = {"value": payload, "key": key, "headers": headers, "partition": partition}
            self._sent.append(await self._producer.send(self._topic, **record))
        if len(self._sent) >= AT_ONCE:
            await self.acknowledged()

    async def acknowledged(self) -> None:
        sent, self._sent = self._sent, []
        with speaking(self._settings, f"topic {self._topic}"):
            await asyncio.gather(*sent)


_Item: TypeAlias = tuple[bytes, bytes | None, list[tuple[str, bytes]]]


class KafkaFeed:
    """Writes ticks into the topic of `marks`; one feed per topic (the newest wins)."""

    def __init__(
        self,
        settings: KafkaSettings,
        marks: TickMarks,
        place: Placement = by_content,
        sent: Sent = value_alone,
    ) -> None:
        self._settings, self._place, self._with = settings, place, sent
        self._marks, self._topic = marks, marks.topic
        self._producer: Any = None
        self._partitions: tuple[int, ...] = ()

    async def open(self) -> int:
        """Fence other feeds and return the next tick to send: the one after the last mark in the topic.

        Raises `FailClosed` (records of another feed, or none signed with this key, start and step), `UsageError` (no
        partitioner says in which partition records belong) or `WorldError`.
        """
        async with administering(self._settings, f"topic {self._topic}") as admin:
            if await existing(admin, self._topic) is None:
                raise WorldError(
                    f"topic {self._topic} does not exist at {self._settings.bootstrap}; create it, or "
                    "add --create N (N partitions)"
                )
        with speaking(self._settings, f"topic {self._topic}"):
            self._producer = library().AIOKafkaProducer(
                **self._settings.client(),
                transactional_id=f"{self._topic}.stream-dp-feed",
                max_batch_size=256 * 1024,
                linger_ms=5,
                compression_type="lz4",
            )
            await connect(self._settings, self._producer)
            self._partitions = tuple(sorted(await self._producer.partitions_for(self._topic)))
        self._place((), self._partitions)
        held = await look_at(self._settings, self._marks, self._partitions)
        unmarked = held.feed is None and held.records
        if unmarked or held.feed not in {None, self._marks.feed}:
            raise FailClosed(
                f"topic {self._topic} {(_UNMARKED if unmarked else _ANOTHER)}; nothing was sent, "
                "because the old and the new records would both count. Feed a new topic (--create N "
                "creates it with N partitions) and name it in the pipeline file, or delete this "
                "topic first"
            )
        return held.last + 1

    async def send(self, first: int, ticks: Sequence[Sequence[Record]]) -> None:
        """Write the records of ticks first, first+1, ... and their marks, all or nothing."""
        lanes: dict[int, list[_Item]] = {partition: [] for partition in self._partitions}
        for tick, records in enumerate(ticks, first):
            payloads = [record.payload for record in records]
            placed = self._place(payloads, self._partitions)
            for payload, partition in zip(payloads, placed, strict=True):
                lanes[partition].append((payload, *self._with(payload)))
            for partition, lane in lanes.items():
                lane.append((b"", None, [(TICK_HEADER, self._marks.sign(partition, tick))]))
        producer, topic = self._producer, self._topic
        with speaking(self._settings, f"topic {topic}"):
            async with producer.transaction():
                sent: list[Any] = []
                for partition, lane in lanes.items():
                    place = partial(producer.send_batch, topic=topic, partition=partition)
                    sent += [await place(batch) for batch in self._batches(lane)]
                await asyncio.gather(*sent)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    def _batches(self, lane: Sequence[_Item]) -> Iterator[Any]:
        """Yield the lane's items in full record batches."""
        batch = self._producer.create_batch()
        for value, key, headers in lane:
            item = {"key": key, "value": value, "timestamp": None, "headers": headers}
            if batch.append(**item) is None:
                batch.close()
                yield batch
                batch = self._producer.create_batch()
                batch.append(**item)
        batch.close()
        yield batch
