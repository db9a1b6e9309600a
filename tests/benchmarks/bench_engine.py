"""The whole engine against a bare consumer on one topic: events per second and their ratio, pair by pair.

Flight-like records, broker append stamps, 1 s wall ticks, the Kafka journal and sink. The bare consumer does
`getmany` and msgspec decoding and nothing else. Both are timed from their first read to their last record (the
engine: to the durable, published commit of the last tick), by the wall clock and by the CPU time of this process.
`--users N` protects so many users, each with 5 events in 10 s; without it single events.
`--conditions N` adds N counts with a condition of their own, `--batch N` writes N records a record batch.
`--processes N` compares an engine whose topic is read by N processes with one that reads it alone: what the busiest
process and all of them take of CPU time, and how much faster they are where each has a core of its own.
`--workers N` compares an engine whose topic N workers read with a bare consumer, one process and `--processes`; from
the first row that comes, when the workers have begun.
Run: python tests/benchmarks/bench_engine.py [--records N] [--pairs N] [--processes N] [--workers N]
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.engine.engine import Engine
from stream_dp.engine.lanes.processes import Go
from stream_dp.engine.ports import Audience, Batch, Beginning, Ports, Source
from stream_dp.journal.commit import Commit, Release
from stream_dp.journal.keys import Sealer
from stream_dp.noise import NoiseStream
from stream_dp.operate.run.lane_processes import LaneKeys, LaneProcesses, PipedLane
from stream_dp.operate.run.wiring import open_ports, working
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guard_of
from stream_dp.pipeline.user_homes import Homes

TOPIC = "flights"
PARTITIONS = 4
DESTINATIONS = [f"D{i:02d}" for i in range(100)]
AIRLINES = [f"A{i}" for i in range(16)]


class Load(NamedTuple):
    """What is read, and how often; `batch` records a record batch."""

    records: int = 3_000_000
    pairs: int = 7
    conditions: int = 0
    batch: int = 4000
    users: int = 0
    processes: int = 1
    workers: int = 0


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


async def produce(bootstrap: str, load: Load) -> tuple[int, int]:
    """Fill the topic; return the first and last second of its append stamps (ms)."""
    choose, records, size = random.Random(1), load.records, load.batch
    weights = [1 / (i + 1) for i in range(len(DESTINATIONS))]

    def flight(user: int) -> bytes:
        told = {
            "time": "2013-01-01T10:00:00Z",
            "airline": choose.choice(AIRLINES),
            "destination": choose.choices(DESTINATIONS, weights)[0],
            "delay": choose.randint(-10, 180),
        }
        return json.dumps(told | ({"customer": f"c{user}"} if load.users else {})).encode()

    everybody = range(load.users or 10_000 * PARTITIONS)
    homes = Homes(range(PARTITIONS), "murmur2").of([b"c%d" % user for user in everybody])
    pools = [[flight(u) for u in everybody if homes[u] == part] for part in range(PARTITIONS)]
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=512 * 1024, acks=1)
    await producer.start()
    begin = int(time.time() * 1000)
    for start in range(0, records, size):
        batch = producer.create_batch()
        partition = (start // size) % PARTITIONS
        pool = pools[partition]
        for i in range(start, min(records, start + size)):
            batch.append(key=None, value=pool[(i // PARTITIONS) % len(pool)], timestamp=None)
        batch.close()
        await producer.send_batch(batch, TOPIC, partition=partition)
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


async def compare_shared(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    gains = []
    for pair in range(load.pairs):
        alone = await engine(kafka, load._replace(processes=1), stamps, f"alone{pair}", folder)
        busiest, every = await engine_in_lanes(kafka, load, stamps, f"lanes{pair}", folder)
        one = load.records / alone.cpu
        gains.append(one / max(busiest, every / load.processes))
        rates = [1e6 * seconds / load.records for seconds in (one, busiest, every)]
        print(
            f"CPU s/M: alone {rates[0]:.2f}  busiest of {load.processes} and the engine {rates[1]:.2f}  "
            f"all {rates[2]:.2f}  faster on {load.processes} cores {gains[-1]:.2f}"
        )
    print(f"median of {load.pairs}: {statistics.median(gains):.2f} times")


async def engine_in_lanes(
    kafka: str, load: Load, stamps: tuple[int, int], name: str, marks: Path
) -> tuple[float, float]:
    """The CPU seconds of the busiest process, and of all."""
    spec = specification(kafka, stamps[0], name, load)
    sealer = Sealer(os.urandom(32), spec.name)
    crew = Shift(load.processes, spec, LaneKeys(sealer.user_key(), sealer.mark_key()))

    def ended() -> None:
        if not crew.took:
            crew.end()

    await counted(load, open_ports(spec, sealer, marks=marks), spec, stamps, ended, crew)
    return max(crew.took.values()), sum(crew.took.values())


async def compare_workers(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    for pair in range(load.pairs):
        consumer = await bare(kafka, load.records)
        alone = await engine(kafka, load._replace(workers=0), stamps, f"alone{pair}", folder)
        several = load._replace(workers=0, processes=max(2, load.processes))
        lanes = await engine_in_lanes(kafka, several, stamps, f"lanes{pair}", folder)
        wall, own, each = await engine_of_workers(kafka, load, stamps, f"workers{pair}", folder)
        every = [
            1e6 * seconds / load.records for seconds in (*lanes, own, max(each), own + sum(each))
        ]
        print(
            f"CPU s/M: bare {1e6 / consumer.cpu:.2f}  alone {1e6 / alone.cpu:.2f}  {several.processes} processes: "
            f"busiest {every[0]:.2f} all {every[1]:.2f}  {load.workers} workers: engine {every[2]:.3f} busiest "
            f"{every[3]:.2f} all {every[4]:.2f}  records/s: bare {consumer.wall:,.0f} alone {alone.wall:,.0f} "
            f"workers {load.records / wall:,.0f}"
        )


class Heard:
    """The rows of workers; it notes when the first one comes."""

    def __init__(self, rows: Any) -> None:
        self._rows, self.began = rows, 0.0

    async def read(self, lanes: Sequence[int]) -> Any:
        found = await self._rows.read(lanes)
        self.began = self.began or (time.perf_counter() if found else 0.0)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


async def engine_of_workers(
    kafka: str, load: Load, stamps: tuple[int, int], name: str, marks: Path
) -> tuple[float, float, list[float]]:
    """The seconds from the first row to the last tick, the CPU seconds of the engine, and those of each worker."""
    spec = specification(kafka, stamps[0], name, load)
    sealer = Sealer(os.urandom(32), spec.name)
    ports, over = open_ports(spec, sealer, marks=marks), list[float]()
    heard: Any = Heard(ports.rows)
    async with working(load.workers, spec, sealer.worker_keys()) as pids:
        await asyncio.sleep(8)  # they import what they need, and wait for the engine
        began = [cpu_of(pid) for pid in (os.getpid(), *pids)]

        def ended() -> None:
            if not over:
                over.append(time.perf_counter())
                over.extend(cpu_of(pid) for pid in (os.getpid(), *pids))

        await counted(load, replace(ports, rows=heard), spec, stamps, ended)
    wall, *cpu = over
    own, *each = (now - at for at, now in zip(began, cpu, strict=True))
    return wall - heard.began, own, each


async def engine(
    bootstrap: str, load: Load, stamps: tuple[int, int], name: str, marks: Path
) -> Speed:
    spec = specification(bootstrap, stamps[0], name, load)
    ports = open_ports(spec, Sealer(os.urandom(32), spec.name), marks=marks)
    timed, over = Timed(ports.source), list[tuple[float, float]]()
    timed_ports = replace(ports, source=cast("Source", timed))
    await counted(load, timed_ports, spec, stamps, lambda: over.append(moment()))
    assert timed.began is not None
    return Speed.of(load.records, timed.began, over[0])


async def counted(
    load: Load,
    ports: Ports,
    spec: PipelineSpec,
    stamps: tuple[int, int],
    ended: Callable[[], None],
    crew: LaneProcesses | None = None,
) -> None:
    """Run an engine until the last tick is committed and published (`ended`); all records must count."""
    last, seen = (stamps[1] - stamps[0]) // 1000, 0
    append = ports.journal.append

    async def noted(commit: Commit, sealed: bytes) -> None:
        nonlocal seen
        await append(commit, sealed)
        seen += commit.records + commit.capped
        if commit.ticks and commit.ticks[-1] >= last:
            this.stop()

    def published(release: Release) -> None:
        if release.tick >= last:
            ended()

    ports.journal.append = noted  # type: ignore[method-assign]
    plan, key = build(spec).run_config(stamps[0]), ports.sealer.user_key()
    only = replace(ports, questions=None, answers=None, crew=crew)
    this = Engine(
        plan, OpenRouter(spec, plan.origin, None, key), only, NoiseStream, Audience(published),
        guard=guard_of(spec, plan.origin, key) if load.users else None,
    )  # fmt: skip
    await this.run()
    if seen != load.records:
        raise SystemExit(f"the engine counted {seen} of {load.records} records")


def specification(bootstrap: str, start: int, name: str, load: Load) -> PipelineSpec:
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
        for at in range(load.conditions)
    ]
    caps: dict[str, Any] = {}
    keyed: dict[str, Any] = {"workers": {"lanes": PARTITIONS}} if load.workers else {}
    if load.users:
        caps = {"unit": "user", "user": "customer", "max_events": "5", "per": "10s"}
        keyed |= {"keyed_by": "customer"}
    return PipelineSpec.model_validate(
        {
            "version": 1,
            "name": name,
            "source": {"kind": "kafka", "topic": TOPIC, "bootstrap": bootstrap, **keyed},
            "schema": {
                "airline": {"type": "category", "domain": AIRLINES},
                "destination": {"type": "category", "domain": DESTINATIONS},
                "delay": {"type": "integer", "nullable": True},
                **({"customer": {"type": "text"}} if load.users else {}),
            },
            "privacy": {"epsilon": "4", **caps},
            "clock": {"kind": "wall", "step": "1s", "delay": "500ms", "start": moment},
            "series": series,
        }
    )


async def compare(load: Load) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalKafka(Path(folder)) as kafka:
            stamping = {"message.timestamp.type": "LogAppendTime"}
            await create_topic(kafka.bootstrap, TOPIC, PARTITIONS, stamping)
            stamps = await produce(kafka.bootstrap, load)
            if load.workers:
                return await compare_workers(kafka.bootstrap, load, stamps, Path(folder))
            if load.processes > 1:
                return await compare_shared(kafka.bootstrap, load, stamps, Path(folder))
            return await compare_bare(kafka.bootstrap, load, stamps, Path(folder))


async def compare_bare(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    ratios: list[Speed] = []
    for pair in range(load.pairs):
        alone = await bare(kafka, load.records)
        whole = await engine(kafka, load, stamps, f"bench{pair}", folder)
        ratio = Speed(whole.wall / alone.wall, whole.cpu / alone.cpu)
        ratios.append(ratio)
        rates = (
            f"bare {alone.wall:,.0f}/s  engine {whole.wall:,.0f}/s, {1e6 / whole.cpu:.2f} CPU s/M"
        )
        print(f"{rates}  ratio {ratio.wall:.2f}  by CPU {ratio.cpu:.2f}")
    walls, cpus = zip(*ratios, strict=True)
    print(
        f"median ratio of {load.pairs}: {statistics.median(walls):.2f}, by CPU {statistics.median(cpus):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in Load()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default)
    asyncio.run(compare(Load(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
