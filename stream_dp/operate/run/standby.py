"""Presence of an engine, for which standbys wait; and a standby's wait until no engine is present.

Rules: an engine announces its presence before it runs, else a standby that starts at the same time would fence it.
If the announcement takes too long, the engine runs all the same. Only a pipeline with its journal in Kafka has
presence.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from stream_dp.errors import StreamDPError, UsageError
from stream_dp.kafka.client.clients import backing_off
from stream_dp.kafka.log.presence import Presence
from stream_dp.operate.run.settings import settings_for
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import KafkaJournalSpec, KafkaSourceSpec

_LONGEST_WAIT_S = 5.0
_JOINING_S = 5.0  # brokers wait 3 s for others by default before a group begins
_LEAVING_S = 1.0  # hanging brokers must not delay the end; the membership expires soon anyway


def presence_of(spec: PipelineSpec) -> Presence | None:
    """Return the presence group of this pipeline's engines; None if it has none."""
    if isinstance(spec.journal, KafkaJournalSpec) and isinstance(spec.source, KafkaSourceSpec):
        return Presence(settings_for(spec.source), spec.name)
    return None


@asynccontextmanager
async def standing_by(
    presence: Presence | None, stopped: asyncio.Event, waits: Callable[[], None] | None
) -> AsyncIterator[bool]:
    """Be present while the context is open; yield whether to run.

    A standby passes `waits`, which is called first; its context is entered once no other engine is present. If
    `stopped` is set before, the context yields False.

    Raises:
        UsageError: a standby of a pipeline without a Kafka journal.
        WorldError: a standby that has no right to look.
    """
    if presence is None:
        if waits is not None:
            raise UsageError("--standby: only a pipeline with a Kafka journal has a standby")
        yield True
        return
    if waits is not None:
        waits()
        if not await _permitted(presence, stopped):
            await presence.leave()
            yield False
            return
    being, stop = asyncio.create_task(_be_there(presence)), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({being, stop}, timeout=_JOINING_S, return_when=asyncio.FIRST_COMPLETED)
        yield True
    finally:
        stop.cancel()
        being.cancel()
        await asyncio.wait({being, asyncio.create_task(presence.leave())}, timeout=_LEAVING_S)


async def _permitted(presence: Presence, stopped: asyncio.Event) -> bool:
    """Wait until no other engine is present; return False if the run is told to stop before."""
    waiting = asyncio.create_task(presence.alone())
    stop = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return waiting.done() and not stopped.is_set()
    finally:
        for task in (waiting, stop):
            task.cancel()
        await asyncio.wait({waiting, stop})


async def _be_there(presence: Presence) -> None:
    """Join, and retry on errors: presence only informs standbys, so a failure is harmless."""
    waits = backing_off(_LONGEST_WAIT_S)
    while True:
        with suppress(StreamDPError):
            return await presence.join()
        await asyncio.sleep(next(waits))
