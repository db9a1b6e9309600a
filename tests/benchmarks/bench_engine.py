"""The whole engine against a bare consumer on one topic: events per second and their ratio, pair by pair.

Flight-like records, broker append stamps, 1 s wall ticks, the Kafka journal and sink. The bare consumer does
`getmany` and msgspec decoding and nothing else. Both are timed from their first read to their last record (the
engine: to the durable, published commit of the last tick), by the wall clock and by the CPU time of this process.
`--conditions N` adds N counts with a condition of their own, `--batch N` writes N records a record batch.
`--processes N` compares an engine whose topic is read by N processes with one that reads it alone: what the busiest
process and all of them take of CPU time, and how much faster they are where each has a core of its own.
Run: python tests/benchmarks/bench_engine.py [--records N] [--pairs N] [--processes N]
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.engine.engine import Engine
from stream_dp.engine.lanes import Go
from stream_dp.engine.ports import Audience, Batch, Beginning, Ports, Source
from stream_dp.journal.commit import Commit, Release
from stream_dp.journal.keys import Sealer
from stream_dp.noise import NoiseStream
from stream_dp.operate.run.lane_processes import LaneKeys, LaneProcesses, PipedLane
from stream_dp.operate.run.wiring import open_ports
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.spec import PipelineSpec

TOPIC = "flights"
PARTITIONS = 4
DESTINATIONS = [f"D{i:02d}" for i in range(100)]
AIRLINES = [f"A{i}" for i in range(16)]


class Flight(msgspec.Struct):
    time: str
    airline: str
    destination: str
    delay: int | None


class Speed(NamedTuple):
    """Records per second of wall time, and of CPU time."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, records: int, began: tuple[float, float], ended: tuple[float, float]) -> "Speed":
        return cls(*(records / (to - at) for at, to in zip(began, ended, strict=True)))


def moment() -> tuple[float, float]:
    """The wall clock and the CPU time of this process, in seconds."""
    return time.perf_counter(), time.process_time()


async def produce(bootstrap: str, records: int, size: int) -> tuple[int, int]:
    """Fill the topic; return the first and last second of its append stamps (ms)."""
    choose = random.Random(1)
    weights = [1 / (i + 1) for i in range(len(DESTINATIONS))]
    pool = [
        json.dumps(
            {
                "time": "2013-01-01T10:00:00Z",
                "airline": choose.choice(AIRLINES),
                "destination": choose.choices(DESTINATIONS, weights)[0],
                "delay": choose.randint(-10, 180),
            }
        ).encode()
        for _ in range(10_000)
    ]
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=512 * 1024, acks=1)
    await producer.start()
    begin = int(time.time() * 1000)
    for start in range(0, records, size):
        batch = producer.create_batch()
        for i in range(start, min(records, start + size)):
            batch.append(key=None, value=pool[i % len(pool)], timestamp=None)
        batch.close()
        await producer.send_batch(batch, TOPIC, partition=(start // size) % PARTITIONS)
    await producer.stop()
    return begin - begin % 1000, int(time.time() * 1000)


async def bare(bootstrap: str, records: int) -> Speed:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
    await consumer.seek_to_beginning()
    decode = msgspec.json.Decoder(Flight).decode
    seen, began = 0, moment()
    while seen < records:
        for fetched in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
            seen += len([decode(record.value) for record in fetched])
    speed = Speed.of(seen, began, moment())
    await consumer.stop()
    return speed


class Timed:
    def __init__(self, source: Source) -> None:
        self._source = source
        self.began: tuple[float, float] | None = None

    async def read(self) -> Sequence[Batch]:
        self.began = self.began or moment()
        return await self._source.read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class Shift(LaneProcesses):
    """Lanes whose CPU time is known: from where all begin to read, to the end of the last tick."""

    began: dict[int, float] | None = None
    took: Mapping[int, float] = MappingProxyType({})

    async def enlist(self, lane: int, lanes: int, beginning: Beginning) -> PipedLane:
        channel = await super().enlist(lane, lanes, beginning)
        send = channel.send

        def sent(order: Any) -> None:
            if isinstance(order, Go):
                self.began = self.began or self._now()
            send(order)

        channel.send = sent  # type: ignore[method-assign]
        return channel

    def end(self) -> None:
        began = self.began or {}
        self.took = {pid: now - began.get(pid, 0) for pid, now in self._now().items()}

    def _now(self) -> dict[int, float]:
        """The CPU seconds of each process, and of this one."""
        times = {process.pid: cpu_of(process.pid) for process in self._processes}
        return times | {os.getpid(): cpu_of(os.getpid())}


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def shared(
    bootstrap: str, records: int, stamps: tuple[int, int], name: str, marks: Path, processes: int
) -> tuple[float, float]:
    """The CPU seconds of the busiest process, and of all, for a topic read by so many."""
    spec = specification(bootstrap, stamps[0], name, 0)
    sealer = Sealer(os.urandom(32), spec.name)
    ports = open_ports(spec, sealer, marks=marks)
    keys = LaneKeys(sealer.user_key(), sealer.mark_key())
    crew = Shift(processes, spec, keys)
    last, seen = (stamps[1] - stamps[0]) // 1000, 0
    append = ports.journal.append

    async def noted(commit: Commit, sealed: bytes) -> None:
        nonlocal seen
        await append(commit, sealed)
        seen += commit.records
        if commit.ticks and commit.ticks[-1] >= last:
            this.stop()

    def published(release: Release) -> None:
        if release.tick >= last and not crew.took:
            crew.end()

    ports.journal.append = noted  # type: ignore[method-assign]
    plan = build(spec).run_config(stamps[0])
    router = OpenRouter(spec, plan.origin)
    only = replace(ports, questions=None, answers=None, crew=crew)
    this = Engine(plan, router, only, NoiseStream, Audience(published))
    await this.run()
    if seen != records:
        raise SystemExit(f"the engine counted {seen} of {records} records")
    return max(crew.took.values()), sum(crew.took.values())


async def compare_shared(
    kafka: str, records: int, stamps: tuple[int, int], folder: Path, pairs: int, processes: int
) -> None:
    gains = []
    for pair in range(pairs):
        alone = await engine(kafka, records, stamps, f"alone{pair}", folder, 0)
        busiest, every = await shared(kafka, records, stamps, f"lanes{pair}", folder, processes)
        one = records / alone.cpu
        gains.append(one / max(busiest, every / processes))
        rates = [1e6 * seconds / records for seconds in (one, busiest, every)]
        print(
            f"CPU s/M: alone {rates[0]:.2f}  busiest of {processes} and the engine {rates[1]:.2f}  all {rates[2]:.2f}"
            f"  faster on {processes} cores {gains[-1]:.2f}"
        )
    print(f"median of {pairs}: {statistics.median(gains):.2f} times")


async def engine(
    bootstrap: str, records: int, stamps: tuple[int, int], name: str, marks: Path, conditions: int
) -> Speed:
    spec = specification(bootstrap, stamps[0], name, conditions)
    ports = open_ports(spec, Sealer(os.urandom(32), spec.name), marks=marks)
    timed = Timed(ports.source)
    last = (stamps[1] - stamps[0]) // 1000
    seen, ended = 0, (0.0, 0.0)
    append = ports.journal.append

    async def noted(commit: Commit, sealed: bytes) -> None:
        nonlocal seen
        await append(commit, sealed)
        seen += commit.records
        if commit.ticks and commit.ticks[-1] >= last:
            this.stop()

    def published(release: Release) -> None:
        nonlocal ended
        if release.tick >= last:
            ended = ended if ended[0] else moment()

    ports.journal.append = noted  # type: ignore[method-assign]
    built = build(spec)
    plan = built.run_config(stamps[0])
    this = Engine(
        plan,
        Router(spec, plan.origin),
        Ports(cast("Source", timed), ports.journal, ports.sink, ports.clock, ports.sealer),
        NoiseStream,
        Audience(published),
    )
    await this.run()
    if seen != records:
        raise SystemExit(f"the engine counted {seen} of {records} records")
    assert timed.began is not None
    return Speed.of(records, timed.began, ended)


def specification(bootstrap: str, start: int, name: str, conditions: int) -> PipelineSpec:
    """The flights series on a wall clock of 1 s."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start // 1000))
    series: list[dict[str, Any]] = [
        {"name": "total", "statistic": "count", "epsilon": "0.2"},
        {
            "name": "by_destination",
            "statistic": "histogram",
            "by": "destination",
            "method": "hss",
            "expected_events": 3_000_000,
            "epsilon": "1",
        },
        {
            "name": "late",
            "statistic": "alerts",
            "by": "airline",
            "where": [{"field": "delay", "at_least": "60"}],
            "threshold": 100,
            "epsilon": "0.3",
        },
    ]
    series += [
        {
            "name": f"late_{at}",
            "statistic": "count",
            "where": [{"field": "delay", "at_least": str(at)}],
            "epsilon": "0.01",
        }
        for at in range(conditions)
    ]
    return PipelineSpec.model_validate(
        {
            "version": 1,
            "name": name,
            "source": {"kind": "kafka", "topic": TOPIC, "bootstrap": bootstrap},
            "schema": {
                "airline": {"type": "category", "domain": AIRLINES},
                "destination": {"type": "category", "domain": DESTINATIONS},
                "delay": {"type": "integer", "nullable": True},
            },
            "privacy": {"epsilon": "4"},
            "clock": {"kind": "wall", "step": "1s", "delay": "500ms", "start": moment},
            "series": series,
        }
    )


async def compare(records: int, pairs: int, conditions: int, size: int, processes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalKafka(Path(folder)) as kafka:
            stamping = {"message.timestamp.type": "LogAppendTime"}
            await create_topic(kafka.bootstrap, TOPIC, PARTITIONS, stamping)
            stamps = await produce(kafka.bootstrap, records, size)
            if processes > 1:
                await compare_shared(
                    kafka.bootstrap, records, stamps, Path(folder), pairs, processes
                )
                return
            ratios: list[Speed] = []
            for pair in range(pairs):
                alone = await bare(kafka.bootstrap, records)
                whole = await engine(
                    kafka.bootstrap, records, stamps, f"bench{pair}", Path(folder), conditions
                )
                ratio = Speed(whole.wall / alone.wall, whole.cpu / alone.cpu)
                ratios.append(ratio)
                rates = f"bare {alone.wall:,.0f}/s  engine {whole.wall:,.0f}/s"
                print(f"{rates}  ratio {ratio.wall:.2f}  by CPU {ratio.cpu:.2f}")
            walls, cpus = zip(*ratios, strict=True)
            print(
                f"median ratio of {pairs}: {statistics.median(walls):.2f}, by CPU {statistics.median(cpus):.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--conditions", type=int, default=0)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    numbers = arguments.records, arguments.pairs, arguments.conditions, arguments.batch
    asyncio.run(compare(*numbers, arguments.processes))


if __name__ == "__main__":
    main()
