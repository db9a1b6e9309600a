"""The lease of a pipeline, which is one transactional producer; and the presence of its engines.

Rules: starting fences every other engine of the pipeline, and writes the mark of its holder to `NAME.private.lease`.
The fencing producer writes the mark in a transaction, so a fenced engine cannot write one. An engine that held the
lease in this process takes it again only while that mark is its own: an engine that lost its brokers continues, and an
engine that was replaced stops, whatever it noticed first. A transaction is awaited to its end, never cancelled; the
future of every record in it is awaited, because a refused record does not stop a commit. After any error the lease is
dead: the next start decides whether the transaction counts, never this one.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from stream_dp.engine.phases import LEASE, LeasePhase, Lifecycle
from stream_dp.errors import FailClosed, Outage, StreamDPError, TakenOver, WorldError
from stream_dp.kafka.client.clients import (
    KEPT,
    RECORD_BYTES,
    KafkaSettings,
    backing_off,
    connect,
    disconnect,
    library,
    passing,
    patiently,
    refused,
    speaking,
)
from stream_dp.kafka.client.topics import administering, ensure
from stream_dp.kafka.log.reader import reading
from stream_dp.noise import fresh_seed

SESSION_S = 6.0  # the shortest session that brokers allow by default
_LOOK_S = 0.5
_NEVER_MS = 2**31 - 1
BATCH_BYTES = 512 * 1024
_T = TypeVar("_T")
_MARK, _NOTE = "stream-dp-holder", "stream-dp-note"
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")
_TOO_LARGE = ("MessageSizeTooLargeError", "RecordListTooLargeError")


class Presence:
    """A living engine is a member of the group `NAME.lease`, which `join` enters and `leave` leaves.

    Safety never depends on presence; the lease is for safety. Presence only shows when no engine is there, so that a
    standby may try. A process that dies leaves the group when its session ends, `SESSION_S` later. The group commits
    nothing. An error of the brokers is not an answer: a standby goes on waiting.
    """

    def __init__(self, settings: KafkaSettings, pipeline: str) -> None:
        self._settings = settings
        self._topic = f"{pipeline}.private.lease"
        self._group = f"{pipeline}.lease"
        self._member: Any = None

    async def join(self) -> None:
        """Join the group and make what that needs; a second call does nothing."""
        if self._member is not None:
            return
        settings = self._settings
        await ensure(settings, self._topic, KEPT)
        joined = asyncio.Event()

        class Listener(library(".abc").ConsumerRebalanceListener):  # type: ignore[misc]  # of no known type
            def on_partitions_revoked(self, revoked: Any) -> None: ...
            def on_partitions_assigned(self, assigned: Any) -> None:
                joined.set()

        member = library().AIOKafkaConsumer(
            group_id=self._group,
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=_NEVER_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            **settings.client(),
        )
        member.subscribe([self._topic], listener=Listener())
        try:
            with speaking(settings, f"group {self._group!r}"):
                await connect(settings, member)
                async with asyncio.timeout(settings.patience_s):
                    await joined.wait()
        except BaseException:
            await disconnect(member)
            raise
        self._member = member

    async def members(self) -> int:
        """Return the present number of members, including this one."""
        about = f"group {self._group!r}"
        async with administering(self._settings, about) as admin:

            async def asked() -> int:
                (answer,) = await admin.describe_consumer_groups([self._group])
                ((code, _, _, _, _, members, *_),) = answer.groups
                if code:
                    raise library(".errors").for_code(code)
                return len(members)

            return await patiently(self._settings, about, asked)

    async def alone(self) -> None:
        """Join once nobody else is there; if several wait, only one returns. A silent broker is waited for."""
        waits = backing_off()
        while True:
            try:
                if await self.members() == 0:
                    await self.join()
                    if await self.members() == 1:
                        return
                    await self.leave()
                    await asyncio.sleep(fresh_seed()[0] / 128)  # not all at once
                waits = backing_off()
                await asyncio.sleep(_LOOK_S)
            except Outage:
                await asyncio.sleep(next(waits))

    async def leave(self) -> None:
        """Leave the group; may be called again."""
        member, self._member = self._member, None
        if member is not None:
            await disconnect(member)


class Outgoing(NamedTuple):
    """A record for partition 0 of one of the pipeline's own topics."""

    topic: str
    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(slots=True)
class Holder:
    """The holder of a lease: one run of a pipeline with all its attempts; `held`: it has held the lease."""

    name: str = field(default_factory=lambda: fresh_seed()[:8].hex())
    held: bool = False


class KafkaLease:
    """The lease of a pipeline; the journal and the sink of one engine share it.

    `holder` is the same for all leases that one run takes, one after the other.
    """

    def __init__(
        self, settings: KafkaSettings, pipeline: str, holder: Holder | None = None
    ) -> None:
        self.settings, self.pipeline = settings, pipeline
        self._holder = holder or Holder()
        self._topic = f"{pipeline}.private.lease"
        self._lifecycle = Lifecycle(LEASE)
        self._producer: Any = None
        self._why: StreamDPError | None = None
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None
        self._late: asyncio.Task[Any] | None = None

    @property
    def phase(self) -> LeasePhase:
        return self._lifecycle.phase

    async def start(self) -> None:
        """Take the lease: fence every other engine of this pipeline; a second call does nothing.

        Raises `WorldError`, or `FailClosed` if the lease was lost before or another engine has taken over since.
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
    ) -> list[int]:
        """Commit the records and the group's offsets in one transaction; durable on return. Return the records' places.

        Raises `FailClosed` (another engine took over, or the transaction failed; nothing more is accepted) or
        `WorldError` (no answer in time; the next start shows the outcome).
        """
        return await self._awaited(
            lambda held: self._transaction(held, records, offsets or {}, group)
        )

    async def end_hanging(self, topic: str, *, commit: bool) -> None:
        """End a former run's hanging transaction in one of the pipeline's topics, by an empty transaction.

        That works because partitions know a producer by its id, and every life of this pipeline has the same id.
        """
        await self._awaited(lambda held: _empty(held, topic, commit))

    async def _awaited(self, work: Callable[[Any], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of `work`, which ends a transaction of the producer; after any error the lease is lost."""
        async with self._lock:
            task = asyncio.create_task(work(self._held()))
            self._running = task
            try:
                done, _ = await asyncio.wait({task}, timeout=self._limit_s)
            except asyncio.CancelledError:
                why = f"pipeline {self.pipeline!r}: its last commit was interrupted"
                self._lose(FailClosed(why))
                raise
            if not done:
                self._late, self._running = task, None
                self._lose(refused(self.settings, "a transaction", TimeoutError()))
            elif (error := task.exception()) is not None:
                self._lose(refused(self.settings, "a transaction", error))
                self._why = await self._verdict(error)
            self._held()
            return task.result()

    def noted(self, what: str) -> Outgoing:
        """Return a record that notes in the lease's topic for ever that `what` happened."""
        return Outgoing(self._topic, self._holder.name.encode(), headers=((_NOTE, what.encode()),))

    async def close(self) -> None:
        """Wait for a running transaction, then release the lease; may be called again."""
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
        """The longest wait in seconds: the coordinator's timeout, and 10 s because it checks only so often."""
        return self.settings.transaction_timeout_ms / 1000 + 10

    async def _fence(self) -> Any:
        """Start the transactional producer, which fences all others of this pipeline, and write the mark."""
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
        """Return whether the last mark is not this run's; marks of aborted transactions count too."""
        async with reading(self.settings, self._topic, "read_uncommitted") as log:
            last = await log.last()
        return last is not None and last.value != self._holder.name.encode()

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"another engine has taken over pipeline {self.pipeline!r}; this one stops, nothing was published by it "
            "since"
        )

    def _held(self) -> Any:
        """Return the producer while the lease is held; otherwise raise the reason why it is not."""
        if self._why is not None:
            raise type(self._why)(str(self._why))
        if not self._lifecycle.at(LeasePhase.HELD):
            raise FailClosed(f"pipeline {self.pipeline!r}: the lease is not started")
        return self._producer

    def _lose(self, why: StreamDPError) -> None:
        """Accept nothing more; the next start decides whether the transaction counts."""
        self._why = why
        if not self._lifecycle.at(LeasePhase.CLOSED):
            self._lifecycle.move(LeasePhase.LOST)

    async def _transaction(
        self, producer: Any, records: Sequence[Outgoing], offsets: Mapping[Any, int], group: str
    ) -> list[int]:
        sent: list[asyncio.Future[Any]] = []
        try:
            await producer.begin_transaction()
            for topic, value, key, stamp, headers in records:
                sent.append(await producer.send(topic, value, key, 0, stamp, list(headers)))
            places = [written.offset for written in await asyncio.gather(*sent)]
            if offsets:
                await producer.send_offsets_to_transaction(dict(offsets), group)
            await producer.commit_transaction()
        except Exception as error:  # noqa: BLE001 - a fenced producer raises assertions too
            ended = [future for future in sent if future.done() and not future.cancelled()]
            failed = [future.exception() for future in ended]
            fenced = [cause for cause in failed if cause and type(cause).__name__ in _FENCED]
            raise (fenced or [error])[0] from None  # that it was fenced says most
        return places

    async def _verdict(self, error: BaseException) -> StreamDPError:
        """Return the error that a failed transaction means; a fenced producer gives unspecific errors.

        A producer whose transaction took too long is fenced too; the mark shows who holds the lease.
        """
        errors = library(".errors")
        while type(error) is errors.KafkaError and error.__cause__ is not None:
            error = error.__cause__  # the library's sender makes the class of an error general
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
        # assertions: of its state machine, if others ended the transaction
        if not isinstance(error, errors.KafkaError | errors.IllegalOperation | AssertionError):
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


async def _empty(producer: Any, topic: str, commit: bool) -> None:
    await producer.begin_transaction()
    partition = library().TopicPartition(topic, 0)
    producer._txn_manager.maybe_add_partition_to_txn(partition)  # noqa: SLF001 - the first record would do it
    await (producer.commit_transaction() if commit else producer.abort_transaction())


async def _abandon(producer: Any) -> None:
    """Close the producer without ending its transaction; its `stop` would wait for records to be delivered."""
    producer._closed = True  # noqa: SLF001 - else its destructor warns
    task = producer._sender.sender_task  # noqa: SLF001 - `stop` flushes, for ever without a broker
    for _ in range(3):
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
    queued = producer._message_accumulator._batches.values()  # noqa: SLF001 - see below
    outcomes = [batch._drain_waiter for batches in queued for batch in batches]  # noqa: SLF001
    outcomes.append(producer._txn_manager.wait_for_transaction_end())  # noqa: SLF001
    for outcome in outcomes:  # else the event loop logs their errors, since nobody awaits them
        if outcome is not None and outcome.done() and not outcome.cancelled():
            outcome.exception()
    with suppress(Exception):
        async with asyncio.timeout(5):
            await producer.client.close()
