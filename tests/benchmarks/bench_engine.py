"""The whole engine against a bare consumer on one topic: events per second and their ratio, pair by pair.

Flight-like records, broker append stamps, 1 s wall ticks, the Kafka journal and sink. The bare consumer does
`getmany` and msgspec decoding and nothing else. Both are timed from their first read to their last record (the
engine: to the durable, published commit of the last tick), by the wall clock and by the CPU time of this process.
`--users N` protects so many users, each with 5 events in 10 s; without it single events.
`--conditions N` adds N counts with a condition of their own, `--batch N` writes N records a record batch.
`--processes N` and `--workers N` print a table of one run instead: the engine alone, with so many processes and with so
many workers (from the first row that comes), beside what only reads and decodes, and beside Flink SQL that counts the
same three series (start-up and the cost of an empty topic taken off). confluent-kafka is taken from `.venv-peers`
(`make bench-peers`), Flink from `.venv-flink` (`make flink`); the table says what is missing.
`--numbers 1` adds a sum by airline and quantiles, `--distinct 1` the number of customers. `--shapes 1` prints a table
of one process by what it counts, over records with a customer.
`--seconds N` measures instead how soon `run --processes 2 --serve` answers its page and closes ticks, for N seconds
each: while both lanes are busy with what was in the topic already, and idle. A tick is closed once the last lane has
told the engine. It settles 250 ms behind its end and is due 250 ms later; what it takes to be public is counted from
both. With `--workers 2` it is workers who read.
Run: PYTHONPATH=tests python tests/benchmarks/bench_engine.py [--records N] [--pairs N] [--processes N] [--workers N]
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from faults.cases import Case, make_key
from faults.checker import Expected
from faults.killing import lanes_of
from free_ports import free_port
from kafka import test_workers

from stream_dp.broker import LocalKafka, create_topic
from stream_dp.broker.jars import cache_dir, parse_jars, resolve_jars
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

ROOT = Path(__file__).parents[2]
PEERS, FLINKS = (ROOT / name / "bin" / "python" for name in (".venv-peers", ".venv-flink"))
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
    seconds: int = 0
    shapes: int = 0
    numbers: int = 0
    distinct: int = 0


class Flight(msgspec.Struct):
    time: str
    airline: str
    destination: str
    delay: int | None


class Cost(NamedTuple):
    """Seconds of wall time, and of CPU time: of the busiest process, and of all."""

    wall: float
    busiest: float
    every: float

    @classmethod
    def of(cls, began: tuple[float, float], ended: tuple[float, float]) -> "Cost":
        (wall, cpu), (wall_before, cpu_before) = ended, began
        return cls(wall - wall_before, cpu - cpu_before, cpu - cpu_before)


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


async def bare(bootstrap: str, records: int) -> Cost:
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
    cost = Cost.of(began, moment())
    await consumer.stop()
    return cost


CONFLUENT = """
import sys, time, msgspec
from confluent_kafka import Consumer, TopicPartition
Flight = msgspec.defstruct(
    "Flight", [("time", str), ("airline", str), ("destination", str), ("delay", int | None)]
)
decode = msgspec.json.Decoder(Flight).decode
bootstrap, topic, partitions, records = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False,
    "fetch.max.bytes": 64 << 20, "max.partition.fetch.bytes": 16 << 20, "fetch.wait.max.ms": 10,
    "queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1 << 20, "check.crcs": True,
})
seen, began = 0, (time.perf_counter(), time.process_time())
consumer.assign([TopicPartition(topic, place, 0) for place in range(partitions)])
while seen < records:
    seen += len([decode(message.value()) for message in consumer.consume(10_000, 0.2)])
print(time.perf_counter() - began[0], time.process_time() - began[1])
"""


async def confluent(bootstrap: str, records: int) -> Cost:
    """The same by librdkafka: large fetches, ten thousand records at once."""
    wall, cpu = map(
        float, (await said_by(PEERS, CONFLUENT, bootstrap, TOPIC, PARTITIONS, records)).split()
    )
    return Cost(wall, cpu, cpu)


async def said_by(python: Path, *arguments: Any) -> str:
    ran = await asyncio.create_subprocess_exec(
        python, "-c", *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await ran.communicate()
    if ran.returncode:
        raise SystemExit(f"{python} ended with {ran.returncode}")
    return said.decode()


FLINK_JARS = """
org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2 sha256:5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616
org.apache.flink:flink-connector-base:2.3.0 sha256:ac3e942255320837988a69c5b83dcc68758e2703f70626f9b2cd7e81ff9c32b5
"""  # noqa: E501 - a sum
FLINK = """
import sys
from pyflink.table import EnvironmentSettings, TableEnvironment
bootstrap, topic, folder, jars = sys.argv[1:]
table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for key, value in {
    "pipeline.jars": jars, "parallelism.default": "2", "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "20000",
}.items():
    table.get_config().set(key, value)
columns = "airline STRING, destination STRING, delay INT, stamp TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL"
for name, begin in (("nothing", "latest-offset"), ("flights", "earliest-offset")):
    table.execute_sql(
        f"CREATE TABLE {name} ({columns}, WATERMARK FOR stamp AS stamp - INTERVAL '0.25' SECOND) WITH ("
        f"'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}', "
        f"'properties.group.id' = 'bench', 'scan.startup.mode' = '{begin}', "
        "'scan.bounded.mode' = 'latest-offset', 'format' = 'json', 'json.ignore-parse-errors' = 'true')"
    )
def count(events):
    into = f"{folder}/{events}"
    table.execute_sql(
        f"CREATE TABLE total_{events} (begins TIMESTAMP(3), n BIGINT) WITH "
        f"('connector' = 'filesystem', 'path' = '{into}', 'format' = 'csv')"
    )
    table.execute_sql(
        f"CREATE TABLE by_{events} (begins TIMESTAMP(3), k STRING, n BIGINT) WITH ('connector' = 'blackhole')"
    )
    ticks = f"TABLE(TUMBLE(TABLE {events}, DESCRIPTOR(stamp), INTERVAL '1' SECOND))"
    by = "GROUP BY window_start, window_end"
    job = table.create_statement_set()
    job.add_insert_sql(
        f"INSERT INTO total_{events} SELECT CAST(window_start AS TIMESTAMP(3)), COUNT(*) FROM {ticks} {by}"
    )
    for key, where in (("destination", ""), ("airline", "WHERE delay >= 60")):
        job.add_insert_sql(
            f"INSERT INTO by_{events} SELECT CAST(window_start AS TIMESTAMP(3)), {key}, COUNT(*) FROM {ticks} "
            f"{where} {by}, {key}"
        )
    job.execute().wait()
count("nothing")
for events in ("nothing_more", "flights"):
    print("ready", flush=True)
    input()
    if events == "nothing_more":
        table.execute_sql("CREATE TABLE nothing_more LIKE nothing")
    count(events)
    print("done", flush=True)
input()
"""


async def flink_sql(bootstrap: str, records: int, folder: Path) -> Cost:
    """Flink SQL counts the same three series by tick, in two slots; what an empty topic costs is taken off."""
    jars = resolve_jars(folder=cache_dir() / "flink-2.3.0", jars=parse_jars(FLINK_JARS))
    into, told = folder / f"flink{time.time_ns()}", ";".join(jar.as_uri() for jar in jars)
    run = await asyncio.create_subprocess_exec(
        FLINKS, "-c", FLINK, bootstrap, TOPIC, str(into), told, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    say, hear = run.stdin, run.stdout
    assert say is not None
    assert hear is not None

    async def heard(word: str) -> tuple[float, float]:
        while (line := await hear.readline()).strip() != word.encode():
            if not line:
                raise SystemExit("Flink SQL ended")
        return time.perf_counter(), sum(map(cpu_of, in_session(run.pid)))

    costs = []
    try:
        for _ in range(2):
            began = await heard("ready")
            say.write(b"\n")
            costs.append(Cost.of(began, await heard("done")))
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        await run.wait()
    seen = sum(
        int(line.split(",")[1])
        for path in (into / "flights").rglob("*") if path.is_file()
        for line in path.read_text().splitlines()
    )  # fmt: skip
    if seen != records:
        raise SystemExit(f"Flink SQL counted {seen} of {records} records")
    empty, full = costs
    return Cost(*(more - less for more, less in zip(full, empty, strict=True)))


def in_session(leader: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return found


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
    begins = 0.0
    cost: Cost | None = None

    async def enlist(self, lane: int, lanes: int, beginning: Beginning) -> PipedLane:
        channel = await super().enlist(lane, lanes, beginning)
        send = channel.send

        def sent(order: Any) -> None:
            if isinstance(order, Go):
                self.begins = self.begins or time.perf_counter()
                self.began = self.began or self._now()
            send(order)

        channel.send = sent  # type: ignore[method-assign]
        return channel

    def end(self) -> None:
        began = self.began or {}
        took = [now - began.get(pid, 0) for pid, now in self._now().items()]
        self.cost = self.cost or Cost(time.perf_counter() - self.begins, max(took), sum(took))

    def _now(self) -> dict[int, float]:
        """The CPU seconds of each process, and of this one."""
        times = {process.pid: cpu_of(process.pid) for process in self._processes}
        return times | {os.getpid(): cpu_of(os.getpid())}


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Reader(NamedTuple):
    """What reads the topic, in the table, and why it is left out (empty: it is not). `threads` of one process work."""

    name: str
    read: Callable[[int], Awaitable[Cost]]
    missing: str = ""
    threads: bool = False


def readers(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> list[Reader]:
    one = load._replace(processes=1, workers=0)
    several = load._replace(processes=max(2, load.processes), workers=0)
    workers = load._replace(workers=load.workers or 2)
    java = "" if shutil.which("java") else "no java on the path"
    return [
        Reader("aiokafka reads and decodes", lambda _: bare(kafka, load.records)),
        Reader(
            "confluent-kafka, tuned, reads and decodes", lambda _: confluent(kafka, load.records),
            "" if PEERS.exists() else "no .venv-peers; `make bench-peers` makes it",
        ),
        Reader("engine, one process", lambda at: engine(kafka, one, stamps, f"one{at}", folder)),
        Reader(
            f"engine, --processes {several.processes}",
            lambda at: engine_in_lanes(kafka, several, stamps, f"lanes{at}", folder),
        ),
        Reader(
            f"engine and {workers.workers} workers",
            lambda at: engine_of_workers(kafka, workers, stamps, f"workers{at}", folder),
        ),
        Reader(
            "Flink SQL counts, without noise", lambda _: flink_sql(kafka, load.records, folder),
            java if FLINKS.exists() else "no .venv-flink; `make flink` makes it", threads=True,
        ),
    ]  # fmt: skip


async def tabulate(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    listed = readers(kafka, load, stamps, folder)
    for each in (each for each in listed if each.missing):
        print(f"left out: {each.name}: {each.missing}")
    there = [each for each in listed if not each.missing]
    costs = [[await each.read(at) for each in there] for at in range(load.pairs)]
    million = 1e6 / load.records
    print(f"medians of {load.pairs}, {load.records:,} records on {os.cpu_count()} processors")
    print(
        "| | records/s | CPU s/M, all | of the busiest process | records/s if each has a processor |"
    )
    print("|---|---|---|---|---|")
    for at, each in enumerate(there):
        mine = Cost(
            *map(statistics.median, zip(*(costs_of[at] for costs_of in costs), strict=True))
        )
        print(
            f"| {each.name} | {load.records / mine.wall:,.0f} | {mine.every * million:.2f} | "
            + (
                "- | - |"
                if each.threads
                else f"{mine.busiest * million:.2f} | {load.records / mine.busiest:,.0f} |"
            )
        )


async def engine_in_lanes(
    kafka: str, load: Load, stamps: tuple[int, int], name: str, marks: Path
) -> Cost:
    spec = specification(kafka, stamps[0], name, load)
    sealer = Sealer(os.urandom(32), spec.name)
    crew = Shift(load.processes, spec, LaneKeys(sealer.user_key(), sealer.mark_key()))
    await counted(load, open_ports(spec, sealer, marks=marks), spec, stamps, crew.end, crew)
    assert crew.cost is not None
    return crew.cost


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
) -> Cost:
    """From the first row to the last tick."""
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
    took = [now - at for at, now in zip(began, cpu, strict=True)]
    return Cost(wall - heard.began, max(took), sum(took))


async def engine(
    bootstrap: str, load: Load, stamps: tuple[int, int], name: str, marks: Path
) -> Cost:
    spec = specification(bootstrap, stamps[0], name, load)
    ports = open_ports(spec, Sealer(os.urandom(32), spec.name), marks=marks)
    timed, over = Timed(ports.source), list[tuple[float, float]]()
    timed_ports = replace(ports, source=cast("Source", timed))
    await counted(load, timed_ports, spec, stamps, lambda: over.append(moment()))
    assert timed.began is not None
    return Cost.of(timed.began, over[0])


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
    return PipelineSpec.model_validate(described(bootstrap, start, name, load))


def described(bootstrap: str, start: int, name: str, load: Load) -> dict[str, Any]:
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
    if load.numbers:
        paid = {"of": "delay", "clamp": ["-60", "180"], "epsilon": "0.3"}
        series += [
            {"name": "minutes", "statistic": "sum", "by": "airline", **paid},
            {"name": "spread", "statistic": "quantiles", "at": ["0.5", "0.9"], "every": "10s", **paid},
        ]  # fmt: skip
    if load.distinct:
        told = {"name": "people", "statistic": "distinct", "of": "customer"}
        series.append({**told, "every": "10s", "epsilon": "0.2"})
    caps: dict[str, Any] = {}
    keyed: dict[str, Any] = {"workers": {"lanes": PARTITIONS}} if load.workers else {}
    if load.users:
        caps = {"unit": "user", "user": "customer", "max_events": "5", "per": "10s"}
        keyed |= {"keyed_by": "customer"}
    return {
        "version": 1,
        "name": name,
        "source": {"kind": "kafka", "topic": TOPIC, "bootstrap": bootstrap, **keyed},
        "schema": {
            "airline": {"type": "category", "domain": AIRLINES},
            "destination": {"type": "category", "domain": DESTINATIONS},
            "delay": {"type": "integer", "nullable": True},
            **({"customer": {"type": "text"}} if load.users or load.distinct else {}),
        },
        "privacy": {"epsilon": "4", **caps},
        "clock": {"kind": "wall", "step": "1s", "delay": "500ms", "start": moment},
        "series": series,
    }


async def compare(load: Load) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalKafka(Path(folder)) as kafka:
            stamping = {"message.timestamp.type": "LogAppendTime"}
            await create_topic(kafka.bootstrap, TOPIC, PARTITIONS, stamping)
            stamps = await produce(
                kafka.bootstrap, load._replace(users=load.users or 200_000 * min(1, load.shapes))
            )
            if load.shapes:
                return await by_shape(kafka.bootstrap, load, stamps, Path(folder))
            if load.seconds:
                return await responsive(kafka.bootstrap, load, stamps, Path(folder))
            if load.workers or load.processes > 1:
                return await tabulate(kafka.bootstrap, load, stamps, Path(folder))
            return await compare_bare(kafka.bootstrap, load, stamps, Path(folder))


CLOSING = """
import time
from stream_dp.engine.engine import Engine
from stream_dp.engine.lanes.processes import LaneReader
from stream_dp.engine.lanes.workers import RowsReader
told, show = {}, Engine._show
def noting(closed):
    def noted(reader, limit):
        ticks = closed(reader, limit)
        told.update(dict.fromkeys([each.tick for each in ticks], (time.perf_counter(), time.time())))
        return ticks
    return noted
def shown(engine, release):
    show(engine, release)
    if release.tick in told and release.series == "total":
        at, stamp = told.pop(release.tick)
        print("public", release.tick, time.perf_counter() - at, stamp, flush=True)
for reader in (LaneReader, RowsReader):
    reader._closed = noting(reader._closed)
Engine._show = shown
"""


SHAPES: dict[str, dict[str, int]] = {
    "a count, a histogram of 100, alerts of 16": {},
    "and 10 counts with a condition each": {"conditions": 10},
    "and 100 of them": {"conditions": 100},
    "and a sum by 16 keys and quantiles": {"numbers": 1},
    "and distinct customers of 10 s": {"distinct": 1},
    "people: 5 events in 10 s each": {"users": 200_000},
    "people, and distinct customers": {"users": 200_000, "distinct": 1},
}


async def by_shape(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    took: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for at in range(load.pairs):
        for number, (shape, more) in enumerate(SHAPES.items()):
            own = Load(records=load.records, shapes=1, **more)
            cost = await engine(kafka, own, stamps, f"shape{number}of{at}", folder)
            took[shape].append(cost.every)
    print("| one process counts | CPU s/M | records/s a processor |")
    print("|---|---|---|")
    for shape, seconds in took.items():
        middle = statistics.median(seconds)
        print(f"| {shape} | {1e6 * middle / load.records:.2f} | {load.records / middle:,.0f} |")


class Shown(NamedTuple):
    """A public tick: the seconds since the last lane had told it, when (Unix time) that was, and what the time is."""

    tick: int
    took: float
    told: float
    now: float


async def answers(
    client: httpx.AsyncClient, on: Callable[[], bool], *, once: bool = False
) -> list[float]:
    """How long the page's API took each time, as long as `on` says so; or `once` it answers."""
    took = list[float]()
    while on() and not (once and took):
        began = time.perf_counter()
        with suppress(httpx.TransportError):
            (await client.get("/api/series/total")).raise_for_status()
            took.append(time.perf_counter() - began)
        await asyncio.sleep(0.02)
    return took


async def responsive(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    """Reads what is there, both lanes busy; then the same engine with nothing to do. Of times: median, 99 %, worst."""
    spec, port = described(kafka, stamps[0], "responsive", load), free_port()
    (folder / "pipeline.yaml").write_text(json.dumps(spec))
    make_key(folder)
    case = Case(folder, Expected("responsive", 0, 1000, 1, {}, (), ()), ())
    asked = ("--serve", "--port", str(port), "--yes")
    last, public = (stamps[1] - stamps[0]) // 1000, list[Shown]()

    def heard() -> None:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("public "):
                tick, took, told = line.split()[1:]
                public.append(Shown(int(tick), float(took), float(told), time.perf_counter()))

    def newest() -> int:
        return public[-1].tick if public else -1

    def on(name: str, end: float) -> bool:
        return time.perf_counter() < end and (name == "idle" or newest() < last)

    with ExitStack() as stack:
        workers = [stack.enter_context(test_workers.working(case)).pid for _ in range(load.workers)]
        run = case.start(
            *asked, *(() if workers else ("--processes", "2")), kit=False, patch=CLOSING
        )
        stack.callback(run.communicate)
        stack.callback(run.kill)
        hearing = asyncio.create_task(asyncio.to_thread(heard))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            print(
                "| | processors of the lanes | GET, ms | closed to public, ms | settled to closed, ms | ticks |"
            )
            print("|---|---|---|---|---|---|")
            while not workers and len(lanes_of(run.pid)) < 2:
                if run.poll() is not None:
                    raise SystemExit(run.communicate()[1])
                await asyncio.sleep(0.05)
            await answers(client, lambda: run.poll() is None, once=True)
            for name in ("busy", "idle"):
                while name == "idle" and newest() <= last + 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                lanes = workers or lanes_of(run.pid)
                began, cpu = time.perf_counter(), sum(map(cpu_of, lanes))
                gets = await answers(client, partial(on, name, began + load.seconds))
                now = time.perf_counter()
                used = (sum(map(cpu_of, lanes)) - cpu) / (now - began)
                there = [each for each in public if began < each.now < now]
                ends = [stamps[0] / 1000 + each.tick + 1 for each in there]
                hops = [each.told - end - 0.25 for each, end in zip(there, ends, strict=True)]
                late = [
                    each.told + each.took - max(each.told, end + 0.5)
                    for each, end in zip(there, ends, strict=True)
                ]
                print(
                    f"| {name} | {used:.2f} | {spread(gets)} | {spread(late)} | "
                    f"{spread(hops) if name == 'idle' else '-'} | {len(there)} |"
                )
    hearing.cancel()


def spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    found = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])
    return ", ".join(f"{1000 * each:.1f}" for each in found)


async def compare_bare(kafka: str, load: Load, stamps: tuple[int, int], folder: Path) -> None:
    ratios: list[tuple[float, float]] = []
    for pair in range(load.pairs):
        alone = await bare(kafka, load.records)
        whole = await engine(kafka, load, stamps, f"bench{pair}", folder)
        ratios.append((alone.wall / whole.wall, alone.every / whole.every))
        rates = [load.records / each.wall for each in (alone, whole)]
        print(
            f"bare {rates[0]:,.0f}/s  engine {rates[1]:,.0f}/s, {1e6 * whole.every / load.records:.2f} CPU s/M  "
            f"ratio {ratios[-1][0]:.2f}  by CPU {ratios[-1][1]:.2f}"
        )
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
