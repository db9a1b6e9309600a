"""Messages of analysts as a Kafka topic, `PIPELINE.queries`: analysts write, the engine only reads.

Rules: brokers stamp messages on arrival; a sender's own time is ignored. Whole, committed record batches are read, and
no record stops the reader: an unreadable or too large record, or a tombstone, is an empty message at its place. A
writer may open a transaction if the brokers allow that; later messages then wait for its end. The topic deletes old
messages; a message deleted before it was read is not answered. Places are offsets.
"""

import heapq
import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from stream_dp.engine.ports import Question
from stream_dp.kafka.client.clients import (
    KafkaSettings,
    connect,
    damaged,
    disconnect,
    library,
    speaking,
)
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED, ensure
from stream_dp.kafka.source.batches import batches, consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.source import KafkaOffsets
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.live.envelope import LARGEST_ENVELOPE

RULES = {**STAMPED, **UNCOMPACTED}  # the required configuration of the topic
_DAY_MS = 24 * 3_600_000
_HINTS = {**PLAIN, "max.message.bytes": str(2 * LARGEST_ENVELOPE), "retention.ms": str(7 * _DAY_MS)}
_WRONG = "must stamp messages on arrival, and let none remove another;"
_EXPANDED_BYTES = 4 * 2**20
_FETCH_MS = 100
_MOST, _MOST_BYTES = 500, 2**20
_log = logging.getLogger(__name__)


class KafkaQuestions:
    """The `Questions` port over one topic; it joins no group and commits nothing."""

    def __init__(self, settings: KafkaSettings, pipeline: str) -> None:
        self._settings = settings
        self._topic = f"{pipeline}.queries"
        self._clients: list[Any] = []
        self._waiting: Iterator[Question] = iter(())
        self._next = 0

    async def open(self) -> None:
        await ensure(self._settings, self._topic, RULES, _HINTS, wrong=_WRONG)
        self._unpacker = Unpacker(marks=False, limit=_EXPANDED_BYTES)
        self._reader = consumer(self._settings, wait=True, fetch_wait_ms=_FETCH_MS)
        self._offsets = KafkaOffsets(self._settings, self._topic)
        try:
            for client in (self._reader, self._offsets):
                self._clients.append(client)
                await connect(self._settings, client)
        except BaseException:
            await self.close()
            raise

    async def seek(self, place: int) -> None:
        """Continue at this place; if it is deleted or -1 (none), at the first existing record."""
        with speaking(self._settings, f"topic {self._topic!r}"):
            begin = (await self._offsets.begins([0]))[0]
            end = (await self._offsets.ends([0]))[0]
        if place > end:
            _log.warning("%s was made anew: its messages are read from the first on", self._topic)
        self._waiting = iter(())
        self._next = place if begin <= place <= end else begin
        self._reader.assign([self._place])
        self._reader.seek(self._place, self._next)

    async def read(self) -> Sequence[Question]:
        """Wait for the next messages and return some hundreds (and about a megabyte) at most, ordered by place."""
        messages: list[Question] = []
        size = 0
        with speaking(self._settings, f"topic {self._topic!r}"):
            while not messages:
                for message in self._waiting:
                    messages.append(message)
                    size += len(message.value)
                    if len(messages) >= _MOST or size >= _MOST_BYTES:
                        break
                else:
                    self._waiting = iter(()) if messages else await self._fetched()
        self._next = messages[-1].place + 1
        return messages

    async def close(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            await disconnect(client)

    @property
    def _place(self) -> Any:
        return library().TopicPartition(self._topic, 0)

    async def _fetched(self) -> Iterator[Question]:
        """Return the messages of one fetch; if the next place is deleted, continue at the first existing record."""
        try:
            fetched = await self._reader.getmany(self._place, timeout_ms=_FETCH_MS)
        except library(".errors").OffsetOutOfRangeError:
            await self.seek(self._next)
            return iter(())
        messages = (  # lazily: unpacking all batches at once might take gigabytes
            self._questions(batch)
            for batch in batches(fetched.get(self._place, ()))
            if batch.kind in (Kind.DATA, Kind.FOREIGN, Kind.DAMAGED)
        )
        return (message for message in chain.from_iterable(messages) if message.place >= self._next)

    def _questions(self, batch: RecordBatch) -> Iterator[Question]:
        """Return the messages of a batch; they are empty if the broker did not stamp the batch."""
        if batch.kind is Kind.DAMAGED:
            raise damaged(self._topic, 0)
        if not batch.appended:
            return (Question(at, b"", batch.stamp) for at in range(batch.base, batch.next))
        unpacked = self._unpacker.unpack(batch)
        read = (
            Question(at, value if len(value) <= LARGEST_ENVELOPE else b"", batch.stamp)
            for at, value in zip(unpacked.offsets, unpacked.values, strict=True)
        )
        lost = (
            Question(at, b"", batch.stamp)
            for span in unpacked.refused
            for at in range(span.first, span.last + 1)
        )
        return heapq.merge(read, lost, key=attrgetter("place"))
