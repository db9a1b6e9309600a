"""How much `KafkaSource.read` costs on top of the bare client, both with a msgspec decoder.

Run: python tests/benchmarks/bench_kafka_source.py [BOOTSTRAP]; without an address it starts a local Kafka.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.core.time import TickGrid
from stream_dp.files.system_clock import SystemClock
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks

COUNT = 1_000_000
PARTITIONS = 4
ROUNDS = 5
STEP_MS = 1000


class Flight(msgspec.Struct):
    id: int
    origin: str
    destination: str
    delay: int


DECODE = msgspec.json.Decoder(Flight).decode


async def fill(bootstrap: str, topic: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    if not await create_topic(bootstrap, topic, PARTITIONS, config):
        return
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=64 * 1024)
    await producer.start()
    for first in range(0, COUNT, 500):
        batch = producer.create_batch()
        for number in range(first, first + 500):
            flight = Flight(number, "JFK", "ATL", number % 90)
            body = msgspec.json.encode(flight) + b" " * 40
            batch.append(key=None, value=body, timestamp=None)
        batch.close()
        await producer.send_batch(batch, topic, partition=first // 500 % PARTITIONS)
    await producer.stop()


async def bare(bootstrap: str, topic: str) -> float:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    places = [TopicPartition(topic, one) for one in range(PARTITIONS)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    began, seen = time.perf_counter(), 0
    while seen < COUNT:
        for records in (await consumer.getmany(timeout_ms=100, max_records=500)).values():
            seen += len([DECODE(record.value) for record in records])
    took = time.perf_counter() - began
    await consumer.stop()
    return COUNT / took


async def ours(bootstrap: str, topic: str, ticks: ReplayTicks | StampTicks) -> float:
    source = KafkaSource(KafkaSettings(bootstrap), topic, SystemClock(), ticks)
    await source.open(SystemClock().now() // STEP_MS * STEP_MS - 3_600_000)
    await source.seek(dict.fromkeys(range(PARTITIONS), 0))
    began, seen = time.perf_counter(), 0
    while seen < COUNT:
        for batch in await source.read():
            seen += len([DECODE(payload) for payload in batch.payloads])
    took = time.perf_counter() - began
    await source.close()
    return COUNT / took


async def measure(bootstrap: str) -> None:
    topic = f"bench-{time.time_ns()}"
    marks = TickMarks(bytes(32), topic, TickGrid(0, STEP_MS))
    await fill(bootstrap, topic)
    runs: dict[str, Callable[[], Awaitable[float]]] = {
        "bare": lambda: bare(bootstrap, topic),
        "replay": lambda: ours(bootstrap, topic, ReplayTicks(marks)),
        "stamps": lambda: ours(bootstrap, topic, StampTicks(STEP_MS, 100, "bench.private.clock")),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            found[name].append(await run())
    base = statistics.median(found["bare"])
    for name, rates in found.items():
        rate = statistics.median(rates)
        print(f"{name:8}{rate:12,.0f} events/s  {rate / base:6.1%} of bare")


async def main() -> None:
    if len(sys.argv) > 1:
        await measure(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(Path(folder))
        await broker.start()
        try:
            await measure(broker.bootstrap)
        finally:
            await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
