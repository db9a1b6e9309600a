"""Feeding a topic from a file at a chosen speed: the work behind `replay` and the demo."""

import asyncio
import time
from collections.abc import Sequence

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_feed import KafkaFeed
from stream_dp.adapters.records import Record

CHUNK_TICKS = 200
CHUNKS_PER_SECOND = 10


async def feed(
    settings: KafkaSettings,
    topic: str,
    ticks: Sequence[Sequence[Record]],
    ticks_per_second: float | None = None,
) -> None:
    """Send what the topic does not hold yet; as fast as it goes, or at `ticks_per_second`."""
    sender = KafkaFeed(settings, topic)
    chunk = CHUNK_TICKS
    if ticks_per_second is not None:
        chunk = max(1, round(ticks_per_second / CHUNKS_PER_SECOND))
    try:
        first = await sender.open()
        started = time.monotonic()
        for begin in range(first, len(ticks), chunk):
            if ticks_per_second is not None:
                due = started + (begin - first) / ticks_per_second
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await sender.send(begin, ticks[begin : begin + chunk])
    finally:
        await sender.close()
