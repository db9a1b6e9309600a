"""From an agent into a pipeline's source: records that an app makes of its events, each exactly once.

Rules: Faust delivers at least once, so every record is compared with its partition's head (origin_writer.py), and
is acknowledged to Faust only when its result is durable. The stream must come from the topic itself. Two kinds are
refused: a stream that was grouped or sent through another topic, because repeats have new offsets there; and an
agent that runs several times, because its writers fence each other. A record on which the app's code fails is fed
as an empty record, which the engine's dead letters count. Records that arrive within a tenth of a second, or while
a transaction runs, share one transaction.
"""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from faust import App, EventT, Stream
from faust.types import TP

from stream_dp.errors import UsageError
from stream_dp.integrations.faust.origin_writer import Made, OriginWriter, Target
from stream_dp.integrations.faust.stopping import stop_app

Content: TypeAlias = Mapping[str, Any] | bytes | None
Enrich: TypeAlias = Callable[[Any], Content | Awaitable[Content]]
_Waiting: TypeAlias = tuple[EventT[Any], bytes | None]

_MOST = 2000
_GATHER_S = 0.1  # records of this time share a transaction, which is costly
_DEAD = b""


def refuse_reordered(stream: Stream[Any]) -> None:
    """Refuse a stream whose records do not come from their topic in its order.

    Raises:
        UsageError: the agent runs several times at once, or the stream was grouped or sent through another topic.
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

    If `enrich` fails, or its result cannot be written as JSON, return an empty record: a dead letter of the engine.
    """
    try:
        made = enrich(value)
        content = await made if inspect.isawaitable(made) else made
        return (
            content
            if content is None or isinstance(content, bytes)
            else msgspec.json.encode(content)
        )
    except Exception:  # noqa: BLE001 - one bad record must not stop others; the text may hold data
        return _DEAD


class AgentSource:
    """Feeds the records of one agent of this worker into the source of a pipeline."""

    def __init__(self, app: App, target: Target, enrich: Enrich) -> None:
        self._app = app
        self._target = target
        self._enrich = enrich
        self._writers: dict[TP, OriginWriter] = {}
        self._closing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(_MOST)

    async def feed(self, stream: Stream[Any]) -> None:
        """Feed the results for the stream's records until the agent is stopped."""
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
        except asyncio.CancelledError:
            raise
        except Exception as found:  # noqa: BLE001 - nothing more is fed, so the app must not go on
            error = found
        await stop_app(self._app, error)

    async def _fed(self, stream: Stream[Any], waiting: list[_Waiting]) -> None:
        """Feed these records, partitions in parallel, then acknowledge the durable ones."""
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
