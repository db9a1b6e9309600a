"""Writes a topic for a replay clock: records in time order, and a mark in every partition after each tick.

Rules: a chunk of whole ticks is one transaction. A killed feed therefore continues after its last complete tick and
never sends a record twice, whatever other programs write to the topic. A topic belongs to the feed of its first
mark; a topic with anything before that mark is refused, because the records of both would count. A record's
partition is a function of the record alone (`engine.ticks.placement`). This file knows no mechanism and no release.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from stream_dp.engine.ticks.placement import Placement, by_content
from stream_dp.errors import FailClosed, WorldError
from stream_dp.files.records import Record
from stream_dp.kafka.client.clients import KafkaSettings, connect, disconnect, library, speaking
from stream_dp.kafka.client.fed_topic import look_at
from stream_dp.kafka.client.tick_marks import TICK_HEADER, TickMarks
from stream_dp.kafka.client.topics import administering, existing

_ANOTHER = "holds the tick marks of another replay (another file, other records left out, or another schema)"
_UNMARKED = (
    "holds records, and no tick mark that this operator's key signed for this start and step"
)
_Item: TypeAlias = tuple[bytes, list[tuple[str, bytes]]]


class KafkaFeed:
    """Writes ticks into the topic of `marks`; one feed per topic (the newest wins)."""

    def __init__(
        self, settings: KafkaSettings, marks: TickMarks, place: Placement = by_content
    ) -> None:
        self._settings = settings
        self._place = place
        self._marks = marks
        self._topic = marks.topic
        self._producer: Any = None
        self._partitions: tuple[int, ...] = ()

    async def open(self) -> int:
        """Fence other feeds and return the next tick to send: the one after the last mark in the topic.

        Raises:
            FailClosed: the topic holds records of another feed, or none signed with this key, start and step.
            UsageError: no partitioner says in which of its partitions records belong.
            WorldError: the topic does not exist, the brokers do not answer, or access is denied.
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
        if held.feed is None and held.records:
            raise FailClosed(_refused(self._topic, _UNMARKED))
        if held.feed not in {None, self._marks.feed}:
            raise FailClosed(_refused(self._topic, _ANOTHER))
        return held.last + 1

    async def send(self, first: int, ticks: Sequence[Sequence[Record]]) -> None:
        """Write the records of ticks first, first+1, ... and their marks, all or nothing."""
        lanes: dict[int, list[_Item]] = {partition: [] for partition in self._partitions}
        for tick, records in enumerate(ticks, first):
            payloads = [record.payload for record in records]
            placed = self._place(payloads, self._partitions)
            for payload, partition in zip(payloads, placed, strict=True):
                lanes[partition].append((payload, []))
            for partition, lane in lanes.items():
                lane.append((b"", [(TICK_HEADER, self._marks.sign(partition, tick))]))
        with speaking(self._settings, f"topic {self._topic}"):
            async with self._producer.transaction():
                sent: list[Any] = []
                for partition, lane in lanes.items():
                    sent += [await self._send(partition, batch) for batch in self._batches(lane)]
                await asyncio.gather(*sent)

    async def close(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    async def _send(self, partition: int, batch: Any) -> Any:
        return await self._producer.send_batch(batch, self._topic, partition=partition)

    def _batches(self, lane: Sequence[_Item]) -> Iterator[Any]:
        """Yield the lane's items in full record batches."""
        batch = self._producer.create_batch()
        for value, headers in lane:
            if batch.append(key=None, value=value, timestamp=None, headers=headers) is None:
                batch.close()
                yield batch
                batch = self._producer.create_batch()
                batch.append(key=None, value=value, timestamp=None, headers=headers)
        batch.close()
        yield batch


def _refused(topic: str, why: str) -> str:
    return (
        f"topic {topic} {why}; nothing was sent, for the records of both would count. Feed a new topic "
        "(--create N makes it with N partitions) and name it in the pipeline file, or delete this one first"
    )
