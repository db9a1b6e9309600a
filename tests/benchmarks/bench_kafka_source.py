"""How much `KafkaSource.read` costs on top of the bare client, both with a msgspec decoder; and how fast a pipeline of
four scalars catches up on a topic that it was not there to read, with its journal in Kafka and in SQLite.

Run: python tests/benchmarks/bench_kafka_source.py [--catch-up] [BOOTSTRAP]; without an address it starts a local Kafka.
With --catch-up it leaves out the source.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.core.time import TickGrid, moment_text
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.operate.run.running import Run
from stream_dp.operate.run.wiring import PRODUCT, open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

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


MISSED, SHORT_MS = 2000, 10
"""Ticks to catch up on, of so many ms, so that their records have stamps of their own."""
_SCALARS = [
    {"name": "all", "statistic": "count", "epsilon": 1},
    {"name": "large", "statistic": "count", "epsilon": 1, "where": [{"field": "amount", "at_least": 5}]},
    {"name": "small", "statistic": "count", "epsilon": 1, "where": [{"field": "amount", "at_most": 2}]},
    {"name": "spent", "statistic": "sum", "of": "amount", "clamp": [0, 10], "epsilon": 1},
]  # fmt: skip


async def miss(bootstrap: str, topic: str) -> int:
    """Write three records in each of so many ticks; return when the first one began."""
    await create_topic(bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    origin = SystemClock().now() // SHORT_MS * SHORT_MS
    for tick in range(MISSED):
        await asyncio.sleep((origin + tick * SHORT_MS - SystemClock().now()) / 1000)
        for at in range(3):
            await producer.send(topic, b'{"amount":%d}' % ((tick + at) % 11))
    await producer.stop()
    await asyncio.sleep(0.5)
    return origin


async def catch_up(bootstrap: str, topic: str, origin: int, kind: str) -> str:
    """Return the ticks a second that became public, and the CPU of this process, from when the engine ran."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        document: dict[str, Any] = {
            "version": 1,
            "name": f"{topic}-{kind}",
            "source": {"kind": "kafka", "topic": topic, "bootstrap": bootstrap},
            "schema": {"amount": {"type": "integer"}},
            "privacy": {"epsilon": 4},
            "clock": {
                "kind": "wall", "step": f"{SHORT_MS}ms", "delay": "100ms",
                "start": moment_text(origin), "horizon": MISSED,
            },
            "series": _SCALARS,
        }  # fmt: skip
        if kind == "sqlite":
            document["journal"] = {"kind": "sqlite", "path": "journal"}
            document["releases"] = {"path": "releases.jsonl"}
        (folder / "pipeline.yaml").write_text(json.dumps(document))
        spec = load(folder / "pipeline.yaml")
        ports = open_ports(spec, Sealer(os.urandom(32), spec.name), marks=folder / "marks")
        run = Run(build(spec), ports, PRODUCT, keep=1)
        running = asyncio.create_task(run.until_end())
        await asyncio.wait(
            {running, asyncio.create_task(run.ready.wait())}, return_when="FIRST_COMPLETED"
        )
        began, cpu = time.perf_counter(), time.process_time()
        await running
        took, used = time.perf_counter() - began, time.process_time() - cpu
        return f"{kind:8}{run.ticks / took:12,.0f} ticks/s   {used / run.ticks * 1000:6.2f} ms of CPU a tick"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catch-up", action="store_true")
    parser.add_argument("bootstrap", nargs="?")
    chosen = parser.parse_args()

    async def measured(bootstrap: str) -> None:
        if not chosen.catch_up:
            await measure(bootstrap)
        topic = f"missed-{time.time_ns()}"
        origin = await miss(bootstrap, topic)
        for kind in ("kafka", "sqlite"):
            print(await catch_up(bootstrap, topic, origin, kind), flush=True)

    if chosen.bootstrap:
        await measured(chosen.bootstrap)
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = LocalKafka(Path(folder))
        await broker.start()
        try:
            await measured(broker.bootstrap)
        finally:
            await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
