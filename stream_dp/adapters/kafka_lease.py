"""The lease of a pipeline, which is one transactional producer; and a reader of one partition of ours.

Rules: starting fences every other engine of the pipeline. A transaction is awaited to its end, never
cancelled; the future of every record in it is awaited, because a refused record does not stop a commit. After
any error the lease is dead: what became of the transaction is decided by the next start, never here. The
reader sees committed records only. This file knows no sealed commit and no release.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from stream_dp.adapters.kafka_client import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    refused,
    speaking,
)
from stream_dp.errors import FailClosed, StreamDPError
from stream_dp.runtime.phases import LEASE, LeasePhase, Lifecycle

BATCH_BYTES = 512 * 1024
RECORD_BYTES = 8 * 1024 * 1024
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")
_TOO_LARGE = ("MessageSizeTooLargeError", "RecordListTooLargeError")
_ROWS = 500
_POLL_MS = 100


class Outgoing(NamedTuple):
    """A record for partition 0 of a topic of ours."""

    topic: str
    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class KafkaLease:
    """The lease of a pipeline; the journal and the sink of one engine share it."""

    def __init__(self, settings: KafkaSettings, pipeline: str) -> None:
        self.settings = settings
        self.pipeline = pipeline
        self._lifecycle = Lifecycle(LEASE)
        self._producer: Any = None
        self._why: StreamDPError | None = None
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._late: asyncio.Task[None] | None = None

    @property
    def phase(self) -> LeasePhase:
        """What is known of the lease."""
        return self._lifecycle.phase

    async def start(self) -> None:
        """Take the lease: fence every other engine of this pipeline; a second call does nothing.

        Raises:
            WorldError: no broker answers. FailClosed: the lease was lost before.
        """
        async with self._lock:
            if not self._lifecycle.at(LeasePhase.NONE):
                self._held()
                return
            self._lifecycle.move(LeasePhase.FENCING)
            try:
                producer = await self._fence()
            except BaseException:
                if self._lifecycle.at(LeasePhase.FENCING):
                    self._lifecycle.move(LeasePhase.NONE)
                raise
            if not self._lifecycle.at(LeasePhase.FENCING):  # closed meanwhile
                await disconnect(producer)
                self._held()
            self._producer = producer
            self._lifecycle.move(LeasePhase.HELD)

    async def transact(
        self, records: Sequence[Outgoing], offsets: Mapping[Any, int] | None = None, group: str = ""
    ) -> None:
        """Commit the records and the group's offsets in one transaction; durable on return.

        Raises:
            FailClosed: another engine took over, or the transaction failed; nothing more is accepted.
            WorldError: no answer in time; the outcome shows at the next start.
        """
        async with self._lock:
            work = self._transaction(self._held(), records, offsets or {}, group)
            task = self._running = asyncio.create_task(work)
            try:
                done, _ = await asyncio.wait({task}, timeout=self._limit_s)
            except asyncio.CancelledError:
                self._lose(
                    FailClosed(f"pipeline {self.pipeline!r}: its last commit was interrupted")
                )
                raise
            if not done:
                self._late, self._running = task, None
                self._lose(refused(self.settings, "a transaction", TimeoutError()))
            elif (error := task.exception()) is not None:
                self._lose(self._verdict(error))
            self._held()

    async def close(self) -> None:
        """Let a running transaction end, then give the lease back; may be called again."""
        if self._running is not None and not self._running.done():
            await asyncio.wait({self._running}, timeout=self._limit_s)
        producer, self._producer = self._producer, None
        clean = self._lifecycle.at(LeasePhase.HELD)
        if not self._lifecycle.at(LeasePhase.CLOSED):
            self._lifecycle.move(LeasePhase.CLOSED)
        self._why = self._why or FailClosed(f"pipeline {self.pipeline!r}: the lease is closed")
        if producer is None:
            return
        if clean:
            await disconnect(producer)
        await _abandon(producer)
        if self._late is not None:
            self._late.cancel()
            await asyncio.wait({self._late}, timeout=1)

    @property
    def _limit_s(self) -> float:
        """The coordinator aborts after its timeout, and looks every ten seconds."""
        return self.settings.transaction_timeout_ms / 1000 + 10

    async def _fence(self) -> Any:
        """Start the transactional producer, which shuts every other one of this pipeline out."""
        settings = self.settings
        producer = library().AIOKafkaProducer(
            transactional_id=f"{self.pipeline}.shard-0",
            transaction_timeout_ms=settings.transaction_timeout_ms,
            max_batch_size=BATCH_BYTES,
            max_request_size=RECORD_BYTES,
            **settings.client(),
        )
        with speaking(settings, f"the lease of pipeline {self.pipeline!r}"):
            await connect(settings, producer)
        return producer

    def _held(self) -> Any:
        """The producer, while the lease is held; else why it is not."""
        if self._why is not None:
            raise type(self._why)(str(self._why))
        if not self._lifecycle.at(LeasePhase.HELD):
            raise FailClosed(f"pipeline {self.pipeline!r}: the lease is not started")
        return self._producer

    def _lose(self, why: StreamDPError) -> None:
        """Accept nothing more; the next start decides what became of the transaction."""
        self._why = why
        if not self._lifecycle.at(LeasePhase.CLOSED):
            self._lifecycle.move(LeasePhase.LOST)

    async def _transaction(
        self, producer: Any, records: Sequence[Outgoing], offsets: Mapping[Any, int], group: str
    ) -> None:
        sent: list[asyncio.Future[Any]] = []
        try:
            await producer.begin_transaction()
            for topic, value, key, stamp, headers in records:
                future = await producer.send(topic, value, key, 0, stamp, list(headers))
                sent.append(future)
            await asyncio.gather(*sent)
            if offsets:
                await producer.send_offsets_to_transaction(dict(offsets), group)
            await producer.commit_transaction()
        except Exception as error:  # noqa: BLE001 - assertions too, once it is fenced
            raise _first_cause(error, sent) from None

    def _verdict(self, error: BaseException) -> StreamDPError:
        """The library gives unspecific errors once it is fenced, assertions among them."""
        error = _unwrapped(error)
        name, pipeline = type(error).__name__, self.pipeline
        if isinstance(error, StreamDPError):
            return error
        if name in _FENCED:
            return FailClosed(
                f"another engine has taken over pipeline {pipeline!r}, or this one was halted for "
                "longer than its transaction timeout; this one stops, nothing was published by it since"
            )
        if name in _TOO_LARGE:
            return FailClosed(
                f"pipeline {pipeline!r}: a record is larger than its topic takes; raise "
                "max.message.bytes of the pipeline's topics, then start again"
            )
        if _is_the_worlds(error):
            return refused(self.settings, f"pipeline {pipeline!r}", error)
        if "Authorization" in name:
            return refused(self.settings, f"pipeline {pipeline!r}", error)
        return FailClosed(
            f"pipeline {pipeline!r}: a transaction failed ({name}); the journal decides at the next "
            "start whether it counts: start again"
        )


def _unwrapped(error: BaseException) -> BaseException:
    """The cause of an error that the library's sender gave the name of them all, where it kept it."""
    while type(error) is library(".errors").KafkaError and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_the_worlds(error: BaseException) -> bool:
    """Nameless is what is left when brokers go away while the sender looks for another."""
    nameless = type(error) is library(".errors").KafkaError
    return nameless or isinstance(error, OSError) or getattr(error, "retriable", False)


def _first_cause(error: Exception, sent: Sequence[asyncio.Future[Any]]) -> BaseException:
    """Of all that failed together, the error that says we were fenced."""
    outcomes = [one.exception() for one in sent if one.done() and not one.cancelled()]
    return next((one for one in outcomes if type(one).__name__ in _FENCED), error)  # type: ignore[return-value]


async def _abandon(producer: Any) -> None:
    """Cut the producer off without ending its transaction; `stop` would wait for records to arrive."""
    producer._closed = True  # noqa: SLF001 - or it complains when it is collected
    task = producer._sender.sender_task  # noqa: SLF001 - `stop` flushes first, for ever without a broker
    for _ in range(3):
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
    queued = producer._message_accumulator._batches.values()  # noqa: SLF001 - see below
    outcomes = [batch._drain_waiter for batches in queued for batch in batches]  # noqa: SLF001
    outcomes.append(producer._txn_manager.wait_for_transaction_end())  # noqa: SLF001
    for outcome in outcomes:  # nobody waits for them, and the event loop would log their errors
        if outcome is not None and outcome.done() and not outcome.cancelled():
            outcome.exception()
    with suppress(Exception):
        async with asyncio.timeout(5):
            await producer.client.close()


class PartitionLog:
    """Committed records of a topic with one partition."""

    def __init__(self, settings: KafkaSettings, topic: str, committed: Any, raw: Any) -> None:
        self._settings = settings
        self._topic = topic
        self._committed = committed
        self._raw = raw
        self._partition = library().TopicPartition(topic, 0)

    async def bounds(self) -> tuple[int, int]:
        """Return where the log begins and ends, once no transaction is open on it.

        Raises:
            FailClosed: a transaction of someone else stays open.
        """
        one = [self._partition]
        deadline = time.monotonic() + self._settings.patience_s
        raw = (await self._raw.end_offsets(one))[self._partition]
        while True:
            end = (await self._committed.end_offsets(one))[self._partition]
            if end >= raw:
                begin = (await self._raw.beginning_offsets(one))[self._partition]
                return int(begin), int(end)
            if time.monotonic() > deadline:
                raise FailClosed(
                    f"topic {self._topic!r}: a transaction of another program is open on it; only "
                    "this pipeline may write there: take that right away (ACL), then start again"
                )
            await asyncio.sleep(0.02)

    async def records(self, begin: int, end: int) -> AsyncIterator[list[Any]]:
        """The visible records from `begin` up to `end`, in groups."""
        self._committed.seek(self._partition, begin)
        seen = time.monotonic()
        while await self._committed.position(self._partition) < end:
            fetched = await self._committed.getmany(timeout_ms=_POLL_MS, max_records=_ROWS)
            found = [one for one in fetched.get(self._partition, ()) if one.offset < end]
            if found:
                yield found
                seen = time.monotonic()
            elif time.monotonic() - seen > self._settings.patience_s:
                raise refused(self._settings, f"topic {self._topic!r}", TimeoutError())

    async def last(self) -> Any | None:
        """The last visible record; the log may end with markers and aborted records."""
        begin, end = await self.bounds()
        window, start = 8, end
        while start > begin:
            start = max(begin, end - window)
            found = [one[-1] async for one in self.records(start, end)]
            if found:
                return found[-1]
            window *= 16
        return None


@asynccontextmanager
async def reading(settings: KafkaSettings, topic: str) -> AsyncIterator[PartitionLog]:
    """Open the log of a topic of ours."""
    clients = [
        library().AIOKafkaConsumer(
            isolation_level=level,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=RECORD_BYTES,
            fetch_max_wait_ms=_POLL_MS,
            **settings.client(),
        )
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        with speaking(settings, f"topic {topic!r}"):
            for client in clients:
                await connect(settings, client)
            clients[0].assign([library().TopicPartition(topic, 0)])
            clients[0].seek(library().TopicPartition(topic, 0), 0)
            yield PartitionLog(settings, topic, *clients)
    finally:
        for client in clients:
            await disconnect(client)
