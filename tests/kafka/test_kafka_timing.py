"""When a live tick passes: at the same time with and without an event, and before its publication is due."""

import asyncio
import time
from collections.abc import Sequence
from statistics import median

from aiokafka import AIOKafkaProducer
from kafka.kafka_worlds import CLOCKS

from stream_dp.broker import create_topic
from stream_dp.files.system_clock import SystemClock
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.source import KafkaSource, StampTicks
from stream_dp.testing.kafka import fresh_topic_name

STEP, SETTLE, HOLD = 300, 150, 2_000  # HOLD is far beyond SETTLE: for machines that are slow
# It is compared with medians: a machine that stands still for seconds makes some ticks late.
TICKS = 12
AFTER_END = (5, 60, 120, 180, 240, 290)  # ms after a tick's end, before and after its settling


async def passing(source: KafkaSource, origin: int, ticks: int) -> dict[tuple[int, int], int]:
    """How long after its end each tick passed, by partition and tick; marks that skip count for all."""
    took: dict[tuple[int, int], int] = {}
    marked: dict[int, int] = {0: -1, 1: -1}
    while min(marked.values()) < ticks - 1:
        for batch in await source.read():
            if batch.mark is None:
                continue
            now, at = SystemClock().now(), batch.partition
            for tick in range(marked[at] + 1, batch.mark + 1):
                took[at, tick] = now - (origin + (tick + 1) * STEP)
            marked[at] = max(marked[at], batch.mark)
    return took


async def events(kafka: str, topic: str, origin: int, ticks: Sequence[int]) -> None:
    """One event to partition 0 some time after the end of each of these ticks."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        for number, tick in enumerate(ticks):
            due = origin + (tick + 1) * STEP + AFTER_END[number % len(AFTER_END)]
            await asyncio.sleep(max(0.0, due / 1000 - time.time()))
            await producer.send_and_wait(topic, b"x", partition=0)
    finally:
        await producer.stop()


async def test_a_tick_passes_after_it_settled_and_before_its_publication(kafka: str) -> None:
    """Silent or not: the hold decides when a tick is published, never an event."""
    topic = fresh_topic_name("timing")
    await create_topic(kafka, topic, 2, {"message.timestamp.type": "LogAppendTime"})
    source = KafkaSource(
        KafkaSettings(kafka), topic, SystemClock(), StampTicks(STEP, SETTLE, CLOCKS)
    )
    origin = (SystemClock().now() // STEP + 2) * STEP
    try:
        await source.open(origin)
        await source.seek({})
        writer = asyncio.create_task(events(kafka, topic, origin, range(1, TICKS - 1)))
        async with asyncio.timeout(60):
            took = await passing(source, origin, TICKS)
            await writer
    finally:
        await source.close()
    assert len(took) >= 2 * TICKS
    busy = [late for (at, tick), late in took.items() if at == 0]
    silent = [late for (at, tick), late in took.items() if at == 1]
    assert min(busy) >= SETTLE  # broker and engine share a clock here
    assert min(silent) >= SETTLE
    assert median(busy) < HOLD
    assert median(silent) < HOLD
