"""The lease of a pipeline, which is one transactional producer.

Rules: starting fences every other engine of the pipeline, and leaves the mark of its holder in `NAME.private.lease`, in
a transaction of the fence, so that a fenced one cannot leave any. Who held the lease in this process takes it again
only while that mark is its own: an engine that lost its brokers goes on, one that was replaced stops, whatever it
noticed first. A transaction is awaited to its end, never cancelled; the future of every record in it is awaited,
because a refused record does not stop a commit. After any error the lease is dead: what became of the transaction is
decided by the next start, never here. This file knows no sealed commit and no release.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream_dp.engine.phases import LEASE, LeasePhase, Lifecycle
from stream_dp.errors import FailClosed, Outage, StreamDPError, TakenOver, WorldError
from stream_dp.kafka.client.clients import (
    KEPT,
    RECORD_BYTES,
    KafkaSettings,
    connect,
    disconnect,
    library,
    passing,
    refused,
    speaking,
)
from stream_dp.kafka.client.topics import ensure
from stream_dp.kafka.log.reader import reading
from stream_dp.noise import fresh_seed

BATCH_BYTES = 512 * 1024
_MARK, _NOTE = "stream-dp-holder", "stream-dp-note"
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")
_TOO_LARGE = ("MessageSizeTooLargeError", "RecordListTooLargeError")


class Outgoing(NamedTuple):
    """A record for partition 0 of a topic of ours."""

    topic: str
    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class Holder:
    """Who holds a lease: one run of a pipeline, through all its attempts; `held` once it has held it."""

    name: str = field(default_factory=lambda: fresh_seed()[:8].hex())
    held: bool = False


class KafkaLease:
    """The lease of a pipeline; the journal and the sink of one engine share it.

    `holder` is the same one for every lease that one run takes, after the other.
    """

    def __init__(
        self, settings: KafkaSettings, pipeline: str, holder: Holder | None = None
    ) -> None:
        self.settings = settings
        self.pipeline = pipeline
        self._holder = holder or Holder()
        self._topic = f"{pipeline}.private.lease"
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
            WorldError: no broker answers.
            FailClosed: the lease was lost before; or another engine has taken over since this run held it.
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
        await self._awaited(lambda held: self._transaction(held, records, offsets or {}, group))

    async def end_hanging(self, topic: str, *, commit: bool) -> None:
        """End the transaction of a former life that hangs in a topic of ours, by an empty one.

        The partition knows producers by their id, and every life of this pipeline has the same one.

        Raises:
            FailClosed: as `transact`.
            WorldError: as `transact`.
        """
        await self._awaited(lambda held: _empty(held, topic, commit))

    async def _awaited(self, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Do what ends a transaction of the producer; after any error the lease is lost."""
        async with self._lock:
            task = self._running = asyncio.create_task(work(self._held()))
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
                self._lose(refused(self.settings, "a transaction", error))
                self._why = await self._verdict(error)
            self._held()

    def noted(self, what: str) -> Outgoing:
        """A record for a transaction, by which the lease's topic tells for good that `what` happened."""
        return Outgoing(self._topic, self._holder.name.encode(), headers=((_NOTE, what.encode()),))

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
        """Start the transactional producer, which shuts every other one of this pipeline out, and leave the mark.

        Raises:
            FailClosed: another engine holds the lease that this run held before; it was left alone.
        """
        settings = self.settings
        if self._holder.held and await self._other_holder():
            raise self._taken_over()
        producer = library().AIOKafkaProducer(
            transactional_id=f"{self.pipeline}.shard-0",
            transaction_timeout_ms=settings.transaction_timeout_ms,
            max_batch_size=BATCH_BYTES,
            max_request_size=RECORD_BYTES,
            **settings.client(),
        )
        with speaking(settings, f"the lease of pipeline {self.pipeline!r}"):
            await connect(settings, producer)
        try:
            await self._mark(producer)
        except BaseException:
            await _abandon(producer)
            raise
        self._holder.held = True
        return producer

    async def _mark(self, producer: Any) -> None:
        """Say in the lease's topic who holds it now."""
        await ensure(self.settings, self._topic, KEPT)
        mark = Outgoing(self._topic, self._holder.name.encode(), headers=((_MARK, b"1"),))
        try:
            async with asyncio.timeout(self._limit_s):
                await self._transaction(producer, [mark], {}, "")
        except TimeoutError as error:
            raise refused(self.settings, f"topic {self._topic!r}", error) from None
        except Exception as error:  # noqa: BLE001 - of the library, whatever it is
            raise await self._verdict(error) from None

    async def _other_holder(self) -> bool:
        """Say whether the last mark is not this run's; also one whose transaction came to nothing counts."""
        async with reading(self.settings, self._topic, "read_uncommitted") as log:
            last = await log.last()
        return last is not None and last.value != self._holder.name.encode()

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"another engine has taken over pipeline {self.pipeline!r}; this one stops, nothing was published by it "
            "since"
        )

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

    async def _verdict(self, error: BaseException) -> StreamDPError:
        """What an error of a transaction means; the library gives unspecific ones once it is fenced.

        Fenced is a producer whose transaction took too long, too: the mark tells who holds the lease.
        """
        error = _unwrapped(error)
        name, pipeline = type(error).__name__, self.pipeline
        if isinstance(error, StreamDPError):
            return error
        if name in _TOO_LARGE:
            return FailClosed(
                f"pipeline {pipeline!r}: a record is larger than its topic takes; raise "
                "max.message.bytes of the pipeline's topics, then start again"
            )
        if "Authorization" in name or passing(error):
            return refused(self.settings, f"pipeline {pipeline!r}", error)
        if not _of_the_library(error):
            return FailClosed(
                f"pipeline {pipeline!r}: a transaction failed ({name}); the journal decides at the next "
                "start whether it counts: start again"
            )
        try:
            other = await self._other_holder()
        except WorldError as unknown:
            return unknown
        if other:
            return self._taken_over()
        return Outage(
            f"pipeline {pipeline!r}: the brokers ended a transaction ({name}), as they do when it takes longer than "
            f"{self.settings.transaction_timeout_ms / 1000:g} s: brokers or network are slow; the journal decides "
            "whether it counts"
        )


def _of_the_library(error: BaseException) -> bool:
    """Whether the library raises this where a transaction was ended by others, by its state machine also."""
    errors = library(".errors")
    return isinstance(error, errors.KafkaError | errors.IllegalOperation | AssertionError)


def _unwrapped(error: BaseException) -> BaseException:
    """The cause of an error that the library's sender gave the name of them all, where it kept it."""
    while type(error) is library(".errors").KafkaError and error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_cause(error: Exception, sent: Sequence[asyncio.Future[Any]]) -> BaseException:
    """Of all that failed together, the error that says we were fenced."""
    outcomes = [one.exception() for one in sent if one.done() and not one.cancelled()]
    return next((one for one in outcomes if type(one).__name__ in _FENCED), error)  # type: ignore[return-value]


async def _empty(producer: Any, topic: str, commit: bool) -> None:
    """A transaction that has the partition and no record in it."""
    await producer.begin_transaction()
    partition = library().TopicPartition(topic, 0)
    producer._txn_manager.maybe_add_partition_to_txn(partition)  # noqa: SLF001 - else records do it
    await (producer.commit_transaction() if commit else producer.abort_transaction())


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
