"""The public topics of a pipeline: the exact bytes that the journal already holds, in one partition.

Rules: each `publish` is one transaction, so readers see releases that belong together at once, and the number of
transaction markers depends on what is published, never on the load (`PublicBlocks`: many ticks are published at once
where public facts say so). Records have no headers. A visible body is never written again in any version. The lease is
the journal's. A record's timestamp is the end of a tick, as in its body. No idempotent producer, as fast as it would
append single ticks: brokers forget its epoch a day after the newest stamp of its records, which may be of last year,
and then take what a fenced engine appends.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Generic

from stream_dp.journal.answer_body import answer_head
from stream_dp.journal.commit import Answer, Release
from stream_dp.journal.public_sequence import ANSWERS, RELEASES, P, PublicSequence
from stream_dp.journal.release import read_head
from stream_dp.kafka.client.clients import KEPT, RECORD_BYTES, KafkaSettings
from stream_dp.kafka.client.topics import ensure, warnings
from stream_dp.kafka.log.journal import settle_public
from stream_dp.kafka.log.lease import KafkaLease, Outgoing
from stream_dp.kafka.log.reader import reading

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
