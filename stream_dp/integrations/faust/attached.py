"""A pipeline attached to a Faust app, and its parts for an app that only reads or feeds.

Rules: the lease, not Faust, ensures that only one engine runs. Faust delivers at least once, so records of agents are
compared with the head of their partition. No signal handler is set, because the worker has its own. An error of the
engine or of the feeding ends the app.

Feeding: the records that an app makes of one partition of an origin are written at most once despite repeats. Fed
records and the head that covers them are one transaction, of a producer whose transactional id names pipeline, topic
and partition. So a writer that opens fences every other writer of the partition, ends their open transactions, and then
reads a head that no other writer can move and that exactly matches the fed records. After any error the writer is
opened again and its records are compared with the head again: the head shows whether the transaction counted. A
record's partition in the source is a function of the record alone.
"""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec
from faust import App, EventT, Stream
from faust.types import TP
from mode import Service

from stream_dp.engine.ports import Placement, by_content
from stream_dp.errors import FailClosed, Outage, UnknownFormat, UsageError
from stream_dp.integrations.faust.asking import FaustQueries
from stream_dp.integrations.faust.hosted_lanes import HostedLanes, lanes
from stream_dp.integrations.faust.release_stream import ReleaseStream, require_alone, stop_app
from stream_dp.kafka.client.clients import (
    KEPT,
    KafkaSettings,
    backing_off,
    connect,
    disconnect,
    library,
    passing,
    refused,
)
from stream_dp.kafka.client.topics import TopicEyes, ensure
from stream_dp.kafka.log.reader import reading
from stream_dp.operate.keys import token_for
from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.settings import settings_for, settled, written_to
from stream_dp.operate.run.wiring import PRODUCT, Setup
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.cells import Sent, sent_with, value_alone
from stream_dp.records.endpoints import KafkaJournalSpec, KafkaSourceSpec

HEAD_VERSION = 1
_HeadContent: TypeAlias = tuple[str, int, tuple[tuple[int, int], ...]]
HOLES = 1000
"""The most holes kept in a head; each transaction marker leaves one, which is never filled."""
_RULES = {
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": KEPT["unclean.leader.election.enable"],
}
_HINTS = {"segment.bytes": str(2**20), "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
_FENCED = ("ProducerFenced", "InvalidProducerEpoch")


@dataclass(frozen=True, slots=True)
class OriginHead:
    """`next` is the first unknown offset; `holes` are the ranges of offsets before it that were jumped over.

    A record that arrives in a hole was never fed, so it is fresh. In any order each record is fresh once, as long as
    at most `HOLES` holes are open; a partition that is read in order has holes only at offsets without a record.
    Offsets are private, so the repr shows none. `origin` is the topic's id, unlike that of a later topic of the name.
    """

    origin: str
    next: int = field(default=0, repr=False)
    holes: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    def take(self, offset: int) -> tuple[bool, "OriginHead"]:
        """Return whether the record at this offset is fresh, and the head that includes it."""
        if offset >= self.next:
            jumped = ((self.next, offset - 1),) if offset > self.next else ()
            return True, OriginHead(self.origin, offset + 1, (*self.holes, *jumped)[-HOLES:])
        for at, (first, last) in enumerate(self.holes):
            if first <= offset <= last:
                parts = ((first, offset - 1), (offset + 1, last))
                left = (part for part in parts if part[0] <= part[1])
                holes = (*self.holes[:at], *left, *self.holes[at + 1 :])
                return True, OriginHead(self.origin, self.next, holes[-HOLES:])
        return False, self

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode((HEAD_VERSION, self.origin, self.next, self.holes))


class Made(NamedTuple):
    """The result for the record at `offset`; None if nothing is to be counted."""

    offset: int
    payload: bytes | None

    def __repr__(self) -> str:
        return "<Made>"


class Target(NamedTuple):
    """The source of `pipeline`: the topic that its engine reads, and the functions that place records in it and give
    them their keys and headers.
    """

    settings: KafkaSettings
    pipeline: str
    topic: str
    place: Placement = by_content
    sent: Sent = value_alone

    @property
    def heads(self) -> str:
        """The topic of heads, which is private because heads are exact counts."""
        return f"{self.pipeline}.private.origins"


class OriginWriter:
    """Feeds the results of a partition of the topic `origin`; `ours` returns whether this worker still owns it."""

    def __init__(
        self, target: Target, origin: str, partition: int, ours: Callable[[], bool]
    ) -> None:
        self._target = target
        self._origin, self._partition = origin, partition
        self._name = f"{target.pipeline}.origin.{origin}.{partition}"
        self._ours = ours
        self._producer: Any = None
        self._head = OriginHead("")
        self._places: tuple[int, ...] = ()
        self._turn = asyncio.Lock()

    async def feed(self, made: Sequence[Made]) -> bool:
        """Feed the fresh records, durable on return; False: another worker owns the partition and feeds them.

        Raises:
            FailClosed: the origin was deleted and made again, or its head is damaged.
            UsageError: no partitioner says in which of the source's partitions records belong.
            WorldError: the brokers do not answer for a long while, or deny access.
        """
        return await self._patiently(lambda: self._fed(made))

    async def open(self) -> bool:
        """Fence every other writer of the partition, and read its head; a second call does nothing."""
        return await self._patiently(self._opened)

    async def close(self) -> None:
        """Close the connection; the next writer decides the transaction in flight."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await disconnect(producer)

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work, and open again after passing errors; return False if another worker owns the partition."""
        errors, settings = library(".errors"), self._target.settings
        waits, waited = backing_off(), 0.0
        async with self._turn:
            while self._ours():
                try:
                    await self._opened()
                    await work()
                except (errors.KafkaError, errors.IllegalOperation, OSError, TimeoutError) as error:
                    about = f"what is fed into topic {self._target.topic!r}"
                    cause = refused(settings, about, error)
                    again = passing(error) or any(name in type(error).__name__ for name in _FENCED)
                except Outage as error:
                    cause, again = error, True
                else:
                    return True
                await self.close()
                wait = next(waits)
                waited += wait
                if not again or waited > settings.retry_s:
                    raise cause from None
                await asyncio.sleep(wait)
        return False

    async def _opened(self) -> None:
        if self._producer is not None:
            return
        target = self._target
        await ensure(target.settings, target.heads, _RULES, _HINTS)
        identity = await self._identity()
        producer = library().AIOKafkaProducer(
            **target.settings.client(),
            transactional_id=self._name,
            transaction_timeout_ms=target.settings.transaction_timeout_ms,
            linger_ms=5,
        )
        await connect(target.settings, producer)
        try:
            self._places = tuple(sorted(await producer.partitions_for(target.topic)))
            target.place((), self._places)
            self._head = await self._recorded(identity)
        except BaseException:
            await disconnect(producer)
            raise
        self._producer = producer

    async def _identity(self) -> str:
        """Return the origin's topic id; empty if it is not in this cluster."""
        eyes = TopicEyes(self._target.settings, self._origin)
        try:
            await eyes.start()
            topic = await eyes.look()
        finally:
            await eyes.stop()
        return "" if topic is None else topic.id

    async def _recorded(self, identity: str) -> OriginHead:
        """Return the head of the partition; no other writer can move it now."""
        what = f"topic {self._target.heads!r}: the head of {self._origin!r}"
        head = OriginHead(identity)
        async with reading(self._target.settings, self._target.heads) as log:
            decided, end = await log.ends()
            if decided < end:
                raise Outage(f"{what}: another writer has a transaction that is still open")
            async with aclosing(log.records(0, end)) as groups:
                async for group in groups:
                    for record in group:
                        if record.key == self._name.encode():
                            head = decoded_head(record.value, what)
        if identity and head.origin and head.origin != identity:
            raise FailClosed(
                f"topic {self._origin!r} was deleted and created again: the engine would take its "
                "new records for records that were already fed. Give the new topic another name"
            )
        return head

    async def _fed(self, made: Sequence[Made]) -> None:
        head, payloads = self._head, list[bytes]()
        for offset, payload in made:
            fresh, head = head.take(offset)
            if fresh and payload is not None:
                payloads.append(payload)
        if head is self._head:
            return
        target, producer = self._target, self._producer
        async with producer.transaction():
            placed = target.place(payloads, self._places)
            sent = [
                await producer.send(
                    target.topic, payload, key=key, headers=headers, partition=partition
                )
                for payload, partition in zip(payloads, placed, strict=True)
                for key, headers in (target.sent(payload),)
            ]
            name = self._name.encode()
            sent.append(await producer.send(target.heads, head.encoded(), key=name, partition=0))
            await asyncio.gather(*sent)
        self._head = head


def decoded_head(stored: bytes, what: str) -> OriginHead:
    """Return a stored head, which `what` names in errors; raise FailClosed or UnknownFormat if it is none."""
    try:
        version, *content = msgspec.msgpack.decode(stored, type=list[Any])
        if version != HEAD_VERSION:
            raise UnknownFormat(what, "another form of heads", f"form {HEAD_VERSION}")
        return OriginHead(*msgspec.convert(content, _HeadContent))
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError):
        raise FailClosed(f"{what} is no head of an origin; bring it back as it was") from None


Content: TypeAlias = Mapping[str, Any] | bytes | None
Enrich: TypeAlias = Callable[[Any], Content | Awaitable[Content]]
_Waiting: TypeAlias = tuple[EventT[Any], bytes | None]

_MOST = 2000
_GATHER_S = 0.1  # records of this time share a transaction, which is costly
_DEAD = b""


def refuse_reordered(stream: Stream[Any]) -> None:
    """Raise UsageError for a stream whose records do not come from their topic in its order.

    After grouping, or in another topic, repeats have new offsets. The writers of an agent that runs several times
    fence each other.
    """
    require_alone(stream, "from_agent")
    if stream.get_root_stream() is not stream.get_active_stream():
        raise UsageError(
            "from_agent: the stream was grouped or sent through another topic, so its records "
            "come again at other offsets. Feed the engine from the agent that reads the topic "
            "itself"
        )


async def payload_of(enrich: Enrich, value: Any) -> bytes | None:
    """Return the record for a value: JSON, unchanged bytes, or None for a value that must not count.

    If `enrich` or JSON fails, the record is empty: a dead letter for the engine.
    """
    try:
        made = enrich(value)
        content = await made if inspect.isawaitable(made) else made
        if content is None or isinstance(content, bytes):
            return content
        return msgspec.json.encode(content)
    except Exception:  # noqa: BLE001 - one bad record must not stop others; the text may hold data
        return _DEAD


class AgentSource:
    """Feeds the records of one agent of this worker into the source of a pipeline, each exactly once.

    A record is acknowledged to Faust only when its result is durable. Records that arrive within a tenth of a
    second, or while a transaction runs, share one transaction.
    """

    def __init__(self, app: App, target: Target, enrich: Enrich) -> None:
        self._app, self._target, self._enrich = app, target, enrich
        self._writers: dict[TP, OriginWriter] = {}
        self._closing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(_MOST)

    async def feed(self, stream: Stream[Any]) -> None:
        feeding: asyncio.Task[None] | None = None
        try:
            refuse_reordered(stream)
            feeding = asyncio.create_task(self._feeding(stream))
            async for event in stream.noack().events():
                await self._waiting.put((event, await payload_of(self._enrich, event.value)))
        except UsageError as error:
            await stop_app(self._app, error)
            raise
        finally:
            self._closing = asyncio.create_task(self._close(feeding))
            await asyncio.shield(self._closing)  # Faust cancels an agent more than once

    async def _close(self, feeding: "asyncio.Task[None] | None") -> None:
        if feeding is not None:
            feeding.cancel()
            await asyncio.wait({feeding})
        await asyncio.gather(*(writer.close() for writer in self._writers.values()))

    async def _feeding(self, stream: Stream[Any]) -> None:
        try:
            while True:
                waiting = [await self._waiting.get()]
                await asyncio.sleep(_GATHER_S)
                while not self._waiting.empty():
                    waiting.append(self._waiting.get_nowait())
                await self._fed(stream, waiting)
        except Exception as error:  # noqa: BLE001 - nothing more is fed, so the app must not go on
            cause = error
        await stop_app(self._app, cause)

    async def _fed(self, stream: Stream[Any], waiting: list[_Waiting]) -> None:
        """Feed these records, partitions in parallel, then acknowledge the durable records."""
        parts = defaultdict[TP, list[_Waiting]](list)
        for event, payload in waiting:
            parts[event.message.tp].append((event, payload))
        await self._open_all({tp.topic for tp in parts})
        done = await asyncio.gather(*(
            self._writer(tp).feed([Made(event.message.offset, payload) for event, payload in part])
            for tp, part in parts.items()
        ))  # fmt: skip
        for durable, part in zip(done, parts.values(), strict=True):
            for event, _ in part if durable else ():
                await stream.ack(event)

    async def _open_all(self, topics: set[str]) -> None:
        """Open all partitions of this worker, which ends transactions that killed workers left open."""
        fresh = [
            tp for tp in self._app.consumer.assignment()
            if tp.topic in topics and tp not in self._writers
        ]  # fmt: skip
        await asyncio.gather(*(self._writer(tp).open() for tp in fresh))

    def _writer(self, tp: TP) -> OriginWriter:
        if tp not in self._writers:
            self._writers[tp] = OriginWriter(
                self._target, tp.topic, tp.partition, lambda: tp in self._app.consumer.assignment()
            )
        return self._writers[tp]


class Attached:
    """A pipeline whose engine runs in an app; `queries` sends it messages from any worker."""

    def __init__(
        self, app: App, path: Path, key_file: Path | None, spec: PipelineSpec, queries: FaustQueries
    ) -> None:
        self._path, self._key_file = path, key_file
        self._app, self._spec, self.queries = app, spec, queries

    def releases(self, seen: MutableMapping[str, Any] | None = None) -> ReleaseStream:
        """Return the releases for an agent; `seen`: see `ReleaseStream`."""
        return ReleaseStream(self._app, _settings(self._spec), self._spec.name, seen)

    def lanes(self) -> HostedLanes:
        """Return lanes of the source for an agent to read: see `lanes`."""
        return lanes(self._app, self._path, key_file=self._key_file)

    def from_agent(self, stream: Stream[Any], enrich: Enrich) -> Awaitable[None]:
        """Feed the results of `enrich` for an agent's stream into the pipeline's source, each exactly once.

        `enrich` returns a mapping (written as JSON), bytes that stay unchanged, or None for a value that must not
        count. It must depend on its value alone; otherwise one event changes how others count.
        """
        return _agent_source(self._app, self._spec, enrich).feed(stream)


def attach(
    app: App,
    pipeline: str | Path,
    *,
    key_file: str | Path | None = None,
    token_file: str | Path | None = None,
    analyst: str = "",
    accept_new_guarantee: str = "",
    check: bool = True,
    setup: Setup = PRODUCT,
) -> Attached:
    """Run the engine of a pipeline as a service of this app, on its leader; later leaders stand by.

    `key_file` is the operator's key (default: `STREAM_DP_KEY_FILE`). `token_file` holds `analyst`'s token for
    `queries` (default: the operator's). The other arguments are those of `Pipeline.run`. Privacy claim: the plan's,
    as with `stream-dp run --standby`: the same engine, journal and topics.

    Raises:
        UsageError: the pipeline is not valid or has no Kafka journal, or there is no key.
    """
    path, key = Path(pipeline), None if key_file is None else Path(key_file)
    spec = _on_kafka(path)
    token = token_for(spec, None, Path(token_file)) if token_file else token_for(spec, key, None)
    queries = FaustQueries(_settings(spec), spec.name, token, analyst)
    options = RunOptions(key_file=key, accepted=accept_new_guarantee, check=check, standby=True)
    named = {
        "app": app,
        "engine": staticmethod(partial(run_pipeline, path, options, setup)),
        "close": staticmethod(queries.close),
    }
    app.service(type("StreamDPEngine", (EngineService,), named))
    return Attached(app, path, key, spec, queries)


def releases(
    app: App, pipeline: str | Path, seen: MutableMapping[str, Any] | None = None
) -> ReleaseStream:
    """Return the releases of a pipeline whose engine runs elsewhere, for an agent of this app."""
    spec = _on_kafka(Path(pipeline))
    return ReleaseStream(app, _settings(spec), spec.name, seen)


async def from_agent(app: App, pipeline: str | Path, stream: Stream[Any], enrich: Enrich) -> None:
    """Feed a pipeline whose engine runs elsewhere: see `Attached.from_agent`."""
    await _agent_source(app, _on_kafka(Path(pipeline)), enrich).feed(stream)


def _agent_source(app: App, spec: PipelineSpec, enrich: Enrich) -> AgentSource:
    topic = written_to(spec).topic
    how = placement_of(spec), sent_with(spec.fields)
    return AgentSource(app, Target(_settings(spec), spec.name, topic, *how), enrich)


def _settings(spec: PipelineSpec) -> KafkaSettings:
    return settings_for(settled(spec.source, KafkaSourceSpec))


def _on_kafka(path: Path) -> PipelineSpec:
    spec = load(path)
    if not isinstance(spec.journal, KafkaJournalSpec):
        raise UsageError(
            f"{spec.name}: in a Faust app the journal must be in Kafka (journal: {{kind: "
            "kafka}}), so that any worker can take over the engine"
        )
    return spec


_LOOK_S = 0.25


class EngineService(Service):
    """One worker's engine, or its standby, which takes over once no engine runs.

    The engine starts on the app's leader and stays with that worker, also if a rebalance elects another leader.
    """

    engine: Callable[..., Awaitable[Run]]
    close: Callable[[], Awaitable[None]]
    app: ClassVar[App]
    running: Run | None = None
    _work: "asyncio.Task[None] | None" = None

    async def on_stop(self) -> None:
        """End the engine after the commit in flight, then close the app's other connections."""
        if self._work is not None:
            if self.running is None:
                self._work.cancel()  # nothing is in flight
            else:
                self.running.stop()
            await asyncio.wait({self._work})
        await self.close()

    async def on_start(self) -> None:
        self._work = asyncio.create_task(self._until_stopped())

    async def _until_stopped(self) -> None:
        try:
            while not self.app.is_leader():
                await self.sleep(_LOOK_S)
                if self.should_stop:
                    return
            await self.engine(ending=self._ending)
        except Exception as error:  # noqa: BLE001 - whatever it is, the app must not go on without its engine
            cause = error
        else:
            return
        await stop_app(self, cause)

    @asynccontextmanager
    async def _ending(self, run: Run) -> AsyncIterator[None]:
        self.running = run
        if self.should_stop:
            run.stop()
        try:
            yield
        finally:
            self.running = None
