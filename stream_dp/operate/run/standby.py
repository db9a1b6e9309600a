"""Being there, so that a standby waits; and standing by until nobody is there.

Rules: an engine says that it is there before it runs, or a standby that starts with it would fence it; where it cannot
say so in time it runs all the same. Only a pipeline whose journal lies in Kafka has a place to be in.
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
_LEAVING_S = 1.0  # brokers that hang must not hold the end; the place is lost soon anyway


def presence_of(spec: PipelineSpec) -> Presence | None:
    """The place of the engines of this pipeline; None where it has none."""
    if isinstance(spec.journal, KafkaJournalSpec) and isinstance(spec.source, KafkaSourceSpec):
        return Presence(settings_for(spec.source), spec.name)
    return None


@asynccontextmanager
async def standing_by(
    presence: Presence | None, stopped: asyncio.Event, waits: Callable[[], None] | None
) -> AsyncIterator[bool]:
    """Be there while the context is open; yield whether to run.

    A standby has `waits`, which is called first; then the context is entered once nobody else is there, or on
    `stopped`, which says not to run.

    Raises:
        UsageError: a standby of a pipeline without a Kafka journal.
        WorldError: a standby that may not look.
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
    """Wait until nobody is there; False if it is told to stop before."""
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
    """Join, and try again where that fails: it is only for those who stand by."""
    waits = backing_off(_LONGEST_WAIT_S)
    while True:
        with suppress(StreamDPError):
            return await presence.join()
        await asyncio.sleep(next(waits))
