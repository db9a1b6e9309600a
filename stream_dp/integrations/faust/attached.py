"""A pipeline attached to a Faust app, and its parts for an app that only reads or feeds.

Rules: the lease, not Faust, ensures that only one engine runs. Faust delivers at least once, so records of agents are
compared with the head of their partition (`origin_writer`). No signal handler is set, because the worker has its own.
An error of the engine or of the feeding ends the app.
"""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import msgspec
from faust import App, EventT, Stream
from faust.types import TP
from mode import Service

from stream_dp.errors import UsageError
from stream_dp.integrations.faust.asking import FaustQueries
from stream_dp.integrations.faust.origin_writer import Made, OriginWriter, Target
from stream_dp.integrations.faust.release_stream import ReleaseStream, stop_app
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.keys import token_for
from stream_dp.operate.run.run_pipeline import RunOptions, run_pipeline
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.settings import settings_for, settled, written_to
from stream_dp.operate.run.wiring import PRODUCT, Setup
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_homes import placement_of
from stream_dp.pipeline.yaml import load
from stream_dp.records.cells import sent_with
from stream_dp.records.endpoints import KafkaJournalSpec, KafkaSourceSpec

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
    if stream.concurrency_index is not None:
        raise UsageError(
            "from_agent: the agent must run once in each worker: take `concurrency` away"
        )
    if stream.get_root_stream() is not stream.get_active_stream():
        raise UsageError(
            "from_agent: the stream was grouped or sent through another topic, which repeats records at new places; "
            "feed it from the agent that reads the topic itself"
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

    def __init__(self, app: App, spec: PipelineSpec, queries: FaustQueries) -> None:
        self._app, self._spec, self.queries = app, spec, queries

    def releases(self, seen: MutableMapping[str, Any] | None = None) -> ReleaseStream:
        """Return the releases for an agent; `seen`: see `ReleaseStream`."""
        return ReleaseStream(self._app, _settings(self._spec), self._spec.name, seen)

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
    return Attached(app, spec, queries)


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
            f"{spec.name}: in a Faust app the journal must lie in Kafka (journal: {{kind: kafka}}), so that any worker "
            "can take the engine over"
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
