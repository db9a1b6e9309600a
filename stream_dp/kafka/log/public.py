"""The topics that readers and analysts share with an engine: releases and answers, and `PIPELINE.queries`.

Releases and answers are the exact bytes that the journal already holds, in one partition. Rules: each `publish` is one
transaction, so readers see releases that belong together at once, and the number of transaction markers depends on what
is published, never on the load (`PublicBlocks`: many ticks are published at once where public facts say so). Records
have no headers. A visible body is never written again in any version. The lease is the journal's. A record's timestamp
is the end of a tick, as in its body. No idempotent producer, as fast as it would append single ticks: brokers forget
its epoch a day after the newest stamp of its records, which may be of last year, and then take what a fenced engine
appends.

Queries are messages that analysts write and the engine only reads. Rules: brokers stamp messages on arrival; a sender's
own time is ignored. Whole, committed record batches are read, and no record stops the reader: an unreadable or too
large record, or a tombstone, is an empty message at its place. A writer may open a transaction if the brokers allow
that; later messages then wait for its end. The topic deletes old messages; a message deleted before it was read is not
answered. Places are offsets.
"""

import heapq
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Generic

from stream_dp.engine.ports import Question
from stream_dp.journal.answer_body import answer_head
from stream_dp.journal.commit import Answer, Release
from stream_dp.journal.public_sequence import ANSWERS, RELEASES, P, PublicSequence
from stream_dp.journal.release import read_head
from stream_dp.kafka.client.clients import (
    KEPT,
    RECORD_BYTES,
    KafkaSettings,
    connect,
    damaged,
    disconnect,
    library,
    speaking,
)
from stream_dp.kafka.client.topics import PLAIN, STAMPED, UNCOMPACTED, ensure, warnings
from stream_dp.kafka.log.journal import settle_public
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.reader import reading
from stream_dp.kafka.source.batches import batches, consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.source import KafkaOffsets
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.live.envelope import LARGEST_ENVELOPE

_RULES = {**KEPT, "message.timestamp.type": "CreateTime"}
_HINTS = {"max.message.bytes": str(RECORD_BYTES)}


async def ensure_public(settings: KafkaSettings, topic: str) -> str:
    return await ensure(settings, topic, _RULES, _HINTS)


class PublicTopic(ABC, Generic[P]):
    """The topic of a public sequence, `PIPELINE.` and its name; a subclass makes its records."""

    def __init__(self, lease: KafkaLease, sequence: PublicSequence[P]) -> None:
        self._lease, self._sequence = lease, sequence
        self._topic = f"{lease.pipeline}.{sequence.name}"
        self._last: bytes | None = None
        self._known = False
        self.warnings: tuple[str, ...] = ()

    @abstractmethod
    def _record(self, entry: P) -> Outgoing:
        """Return the record that publishes an entry."""

    async def open(self) -> None:
        """Take the lease unless the journal has, then create or check the topic."""
        await self._lease.start()
        advice = await ensure_public(self._lease.settings, self._topic)
        self.warnings = warnings({self._topic: advice})
        await settle_public(self._lease, self._topic)

    async def last(self) -> bytes | None:
        async with reading(self._lease.settings, self._topic) as log:
            record = await log.last()
        self._last, self._known = None if record is None else record.value, True
        return self._last

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """Yield all visible bodies after the number `beyond`, oldest first; reads few of the bodies before."""
        async with reading(self._lease.settings, self._topic) as log:
            (begin, end), begun = await log.bounds(), False
            if beyond >= 0:
                begin = await log.start_of(begin, end, lambda body: self._after(body, beyond))
            async for records in log.records(begin, end):
                for record in records:
                    begun = begun or self._after(record.value, beyond)
                    if begun:
                        yield record.value

    async def publish(self, durable: Sequence[P]) -> None:
        last = self._last if self._known else await self.last()
        fresh = self._sequence.not_yet_visible(durable, last, f"topic {self._topic!r}")
        if fresh:
            await self._lease.transact([self._record(entry) for entry in fresh])
            self._last = fresh[-1].body

    def _after(self, body: bytes, beyond: int) -> bool:
        return self._sequence.after(body, beyond, f"topic {self._topic!r}")

    async def close(self) -> None:
        await self._lease.close()


class KafkaAnswers(PublicTopic[Answer]):
    """The `Answers` port over `PIPELINE.answers`; the key is the message's id, if it has one."""

    def __init__(self, lease: KafkaLease) -> None:
        super().__init__(lease, ANSWERS)

    def _record(self, entry: Answer) -> Outgoing:
        end = answer_head(entry.body, f"topic {self._topic!r}: what is to be published").end_ms
        key = None if entry.id is None else entry.id.encode()
        return Outgoing(self._topic, entry.body, key, end)


class KafkaSink(PublicTopic[Release]):
    """The `Sink` port over `PIPELINE.releases`; the key is the series."""

    def __init__(self, lease: KafkaLease) -> None:
        super().__init__(lease, RELEASES)

    def _record(self, entry: Release) -> Outgoing:
        end = read_head(entry.body, f"topic {self._topic!r}: what is to be published").end_ms
        return Outgoing(self._topic, entry.body, entry.series.encode(), end)


QUERY_RULES = {**STAMPED, **UNCOMPACTED}  # the required configuration of the topic
_DAY_MS = 24 * 3_600_000
QUERY_HINTS = {
    **PLAIN,
    "max.message.bytes": str(2 * LARGEST_ENVELOPE),
    "retention.ms": str(7 * _DAY_MS),
}
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
        await ensure(self._settings, self._topic, QUERY_RULES, QUERY_HINTS, wrong=_WRONG)
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
