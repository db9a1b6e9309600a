"""The soak: an engine with a standby over a cluster, everything that can happen to them at random, and a checker.

Rules: it runs for STREAM_DP_SOAK_SECONDS (1,800) on STREAM_DP_SOAK_NODES (3) brokers from STREAM_DP_SOAK_SEED on, with
STREAM_DP_SOAK_PROCESSES (1) that read the topic, or with STREAM_DP_SOAK_WORKERS (0) that do, while series come and go.
It prints its figures as JSON, also to the file STREAM_DP_SOAK_FIGURES if that is named. The test is synchronous, for a
broker ends with the thread that started it. What is done to brokers is undone before the next thing is done to them.
"""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TypeVar

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions
from faults.kafka_evidence import consumer
from faults.killing import lanes_of
from free_ports import free_port
from kafka.cluster import Cluster, cluster
from kafka.hostile_batches import HOSTILE
from kafka.hostile_mix import CATEGORIES
from kafka.hostile_records import BAD_VALUES
from kafka.kafka_worlds import administering
from kafka.log_worlds import LivePipeline
from kafka.raw_batches import CODECS, RawBatch, plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Refused, Stored, Wire
from kafka.test_soak_verdict import LIVE, definition, verdict
from oracles.kafka_log import Grid
from unit.server.attackers import DEAF, SLOW, attacking

from stream_dp.broker.topics import create_topic
from stream_dp.client.api import Client, connect
from stream_dp.errors import UsageError, WorldError
from stream_dp.journal.keys import Sealer
from stream_dp.operate.audit.journal_access import archive_journal

PRODUCERS = 6
Found = TypeVar("Found")
FLOOD_BATCHES, IN_A_BATCH = 10, 5_000
_ANSWER_SECONDS = 5.0
_TIMEOUTS_MS = (2_000, 20_000, 600_000)
_DEAR = (" MB ", "4,000,000")
_LONGEST_JUNK = 100


class Leaders:
    """Connections to the leaders of a topic's partitions, found anew when one fails."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._seeds = bootstrap.split(",")
        self._topic = topic
        self._wires: dict[str, Wire] = {}
        self._leaders: dict[int, str] = {}

    def partitions(self) -> list[int]:
        self._leaders = self.ask(lambda wire: wire.leaders(self._topic))
        return sorted(self._leaders)

    def produce(self, topic: str, partition: int, batch: bytes, name: str | None = None) -> Stored:
        """Send to the leader of a partition.

        Raises:
            OSError, Refused: it has none, or does not answer.
        """
        if partition not in self._leaders:
            self.partitions()
        address = self._leaders.get(partition)
        if address is None:
            raise Refused(f"partition {partition} has no leader", 5)
        try:
            stored = self.wire(address).produce(topic, partition, batch, name)
        except OSError:
            self.forget(address)
            raise
        if stored.error:
            self._leaders.clear()
        return stored

    def wire(self, address: str) -> Wire:
        if address not in self._wires:
            self._wires[address] = Wire(address, _ANSWER_SECONDS, leader_seconds=0)
        return self._wires[address]

    def forget(self, address: str) -> None:
        """Close the connection to an address, and look for leaders anew."""
        self._leaders.clear()
        if (wire := self._wires.pop(address, None)) is not None:
            wire.close()

    def ask(self, question: Callable[[Wire], Found]) -> Found:
        """Ask the first node that answers.

        Raises:
            OSError: none does.
        """
        for address in self._seeds:
            try:
                return question(self.wire(address))
            except OSError:
                self.forget(address)
        raise OSError("no broker answers")

    def close(self) -> None:
        for address in list(self._wires):
            self.forget(address)


class SoakWriter(threading.Thread):
    """Writes until `stop`; `deeds` counts what was done, `failures` what was not answered with a success."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.deeds: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._topic = topic
        self._chance = random.Random(seed)
        self._leaders = Leaders(bootstrap, topic)
        self._over = threading.Event()
        self._open: dict[int, RawTransactions] = {}
        self._hostile = [
            one.encoded()
            for one in HOSTILE
            if one.accepted and not any(word in one.name for word in _DEAR)
        ]
        junk = cycle(one for one in BAD_VALUES if len(one or b"") < _LONGEST_JUNK)
        self._junk = [
            plain(list(islice(junk, IN_A_BATCH)), codec).encoded()
            for codec in (0, *CODECS.values())
        ]

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        deeds: dict[str, tuple[float, Callable[[], None]]] = {
            "good": (30, lambda: self._send(self._batch().encoded())),
            "bad values": (
                10,
                lambda: self._send(plain(self._chance.choices(BAD_VALUES, k=10)).encoded()),
            ),
            "hostile batch": (15, lambda: self._send(self._chance.choice(self._hostile))),
            "flood": (0.1, self._flood),
            "within a transaction": (20, self._within),
            "end of a transaction": (12, self._end),
        }
        weights = [weight for weight, _ in deeds.values()]
        while not self._over.is_set():
            (name,) = self._chance.choices(list(deeds), weights)
            try:
                deeds[name][1]()
                self.deeds[name] += 1
            except (OSError, Refused):
                self.failures[name] += 1
                self._over.wait(0.2)
            self._over.wait(self._chance.uniform(0, 0.05))
        self._leaders.close()

    def _send(self, batch: bytes) -> None:
        partition = self._chance.choice(self._partitions())
        stored = self._leaders.produce(self._topic, partition, batch)
        if stored.error:
            raise Refused("a batch", stored.error)

    def _partitions(self) -> list[int]:
        if not (partitions := self._leaders.partitions()):
            raise Refused("no partition has a leader", 5)
        return partitions

    def _batch(self) -> RawBatch:
        codec = self._chance.choice((0, *CODECS.values()))
        kinds = self._chance.choices(CATEGORIES, k=self._chance.choice((1, 5, 40)))
        return plain([json.dumps({"kind": kind}).encode() for kind in kinds], codec)

    def _flood(self) -> None:
        for _ in range(FLOOD_BATCHES):
            self._send(self._chance.choice(self._junk))

    def _within(self) -> None:
        number = self._chance.randrange(PRODUCERS)
        if number not in self._open:
            self._open[number] = self._transactions(f"{self._topic}-{number}")
        partition = self._chance.choice(self._partitions())
        try:
            stored = self._open[number].send(self._topic, partition, self._batch())
        except (OSError, Refused):
            del self._open[number]
            raise
        if stored.error:
            del self._open[number]
            raise Refused("a batch of a transaction", stored.error)

    def _transactions(self, name: str) -> RawTransactions:
        address = self._leaders.ask(lambda wire: wire.coordinator(name))
        timeout = self._chance.choice(_TIMEOUTS_MS)
        try:
            wire = self._leaders.wire(address)
            return RawTransactions(wire, name, timeout, self._leaders.produce)
        except OSError:
            self._leaders.forget(address)
            raise

    def _end(self) -> None:
        if not self._open:
            return
        number = self._chance.choice(sorted(self._open))
        try:
            self._open[number].end(commit=self._chance.random() < 0.7)
        except (OSError, Refused):
            del self._open[number]
            raise
        if self._chance.random() < 0.2:
            with suppress(KeyError):
                del self._open[number]


_COMMAND = (
    "from stream_dp.engine import engine; engine.SNAPSHOT_TICKS = 30\n"  # a checkpoint each, to prune to
    "from stream_dp.engine.lanes import workers; workers.EVERY = 60\n"
    "from stream_dp.__main__ import start; start()"
)
KEEP = "60s"
_ENDING_S = 60.0
_WAITS, _RUNS = "Standing by", "The page is at"


@dataclass(slots=True)
class Engine:
    """A process and what it says on stderr."""

    process: "subprocess.Popen[bytes]"
    errors: Path

    def said(self) -> str:
        return self.errors.read_text(errors="replace")

    @property
    def waits(self) -> bool:
        said = self.said()
        return said.rfind(_WAITS) > said.rfind(_RUNS)


class Engines:
    """As many as `number` of one pipeline; those beyond the first stand by."""

    def __init__(self, pipeline: LivePipeline, number: int = 2) -> None:
        self.pipeline = pipeline
        self._number = number
        self._running: list[Engine] = []
        self._errors: list[Path] = []
        self.kills = 0
        self.unplanned: list[str] = []

    @property
    def shut_out(self) -> int:
        """How often one found that another had taken over, and stood by again."""
        return sum(
            max(0, file.read_text(errors="replace").count(_WAITS) - 1) for file in self._errors
        )

    def keep(self) -> None:
        for engine in list(self._running):
            if engine.process.poll() is not None:
                self._running.remove(engine)
                self.unplanned.append(f"exit {engine.process.returncode}: {engine.said()[-2000:]}")
        while len(self._running) < self._number:
            self._running.append(self._started())

    def sleep(self, seconds: float) -> None:
        """Stop the one at work for so long, so that its place may be taken; then let it go on."""
        self.keep()
        engine = self._one(active=True)
        engine.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        engine.process.send_signal(signal.SIGCONT)

    def lane(self, chance: random.Random) -> int | None:
        """A process that reads a lane for the one at work."""
        self.keep()
        lanes = lanes_of(self._one(active=True).process.pid)
        return chance.choice(lanes) if lanes else None

    def _one(self, *, active: bool) -> Engine:
        return next((one for one in self._running if one.waits != active), self._running[0])

    def kill(self, *, active: bool) -> None:
        """Kill -9 the one at work, or the one that stands by."""
        self.keep()
        engine = self._one(active=active)
        engine.process.kill()
        engine.process.wait()
        self._running.remove(engine)
        self.kills += 1

    def ports(self) -> list[int]:
        said = [
            re.search(r"The page is at http://[^:]+:(\d+)", one.said()) for one in self._running
        ]
        return [int(found[1]) for found in said if found]

    def end(self) -> None:
        for engine in reversed(self._running):
            engine.process.send_signal(signal.SIGTERM)
        for engine in self._running:
            try:
                code: int | None = engine.process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                self.unplanned.append(f"at the end, exit {code}: {engine.said()[-2000:]}")
        self.close()

    def close(self) -> None:
        for engine in self._running:
            engine.process.kill()
            engine.process.wait()
            self._running.clear()

    def _started(self) -> Engine:
        folder = self.pipeline.folder
        key, port = str(folder / "operator.key"), free_port()
        own = {"STREAM_DP_HOME": str(folder / "state"), "STREAM_DP_KEY_FILE": key}
        options = [
            "run",
            str(folder / "pipeline.yaml"),
            "--serve",
            "--port",
            str(port),
            "--standby",
        ]
        errors = folder / f"engine-{len(self._errors)}.stderr"
        self._errors.append(errors)
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, *options],
                env={**os.environ, **own},
                stdout=subprocess.DEVNULL,
                stderr=file,
            )
        return Engine(process, errors)


_WORKER = "from stream_dp.__main__ import start; start()"


class Workers:
    """So many workers of a pipeline; which have ended otherwise than by a kill is noted."""

    def __init__(self, pipeline: LivePipeline, number: int) -> None:
        self._pipeline, self._number = pipeline, number
        self._running: list[Engine] = []
        self._started = 0
        self.kills = 0
        self.unplanned: list[str] = []

    def keep(self) -> None:
        for worker in list(self._running):
            if (code := worker.process.poll()) is not None:
                self._running.remove(worker)
                self.unplanned.append(f"a worker, exit {code}: {worker.said()[-2000:]}")
        while len(self._running) < self._number:
            folder = self._pipeline.folder
            key, errors = str(folder / "operator.key"), folder / f"worker-{self._started}.stderr"
            self._started += 1
            own = {"STREAM_DP_HOME": str(folder / "state"), "STREAM_DP_KEY_FILE": key}
            with errors.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", _WORKER, "worker", str(folder / "pipeline.yaml")],
                    env={**os.environ, **own},
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                )
            self._running.append(Engine(process, errors))

    def kill(self, chance: random.Random) -> None:
        self.keep()
        worker = chance.choice(self._running)
        worker.process.kill()
        worker.process.wait()
        self._running.remove(worker)
        self.kills += 1

    def sleep(self, chance: random.Random) -> None:
        """Stop one, so that others take its lanes, for as long as they need or not; then it wakes as a zombie."""
        self.keep()
        process = chance.choice(self._running).process
        process.send_signal(signal.SIGSTOP)
        time.sleep(chance.choice((1, 5, 30)))
        process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for worker in self._running:
            worker.process.send_signal(signal.SIGTERM)
        for worker in self._running:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(_ENDING_S)
            if worker.process.poll() != 0:
                said = worker.said()[-2000:]
                self.unplanned.append(f"a worker at the end, {worker.process.poll()}: {said}")
        self.close()

    def close(self) -> None:
        for worker in self._running:
            worker.process.kill()
            worker.process.wait()
        self._running.clear()


SECONDS = float(os.environ.get("STREAM_DP_SOAK_SECONDS", "1800"))
NODES = int(os.environ.get("STREAM_DP_SOAK_NODES", "3"))
PROCESSES = int(os.environ.get("STREAM_DP_SOAK_PROCESSES", "1"))
WORKERS = int(os.environ.get("STREAM_DP_SOAK_WORKERS", "0"))
SEED = int(os.environ.get("STREAM_DP_SOAK_SEED", "1"))
STEP, DELAY, HORIZON = 1_000, 2_000, 100_000
CLIENTS, MOST_PARTITIONS, LANES = 1_200, 8, 2
NAME, TOPIC = "soak", "soak.events"
CATCHING_UP_S = 300.0
SESSION_S = 8.0  # longer than that of a broker: another leads afterwards


class Faults:
    """What may happen, each for some seconds; `done` counts."""

    def __init__(
        self, brokers: Cluster, engines: Engines, workers: Workers, chance: random.Random
    ) -> None:
        self._brokers = brokers
        self._engines = engines
        self._workers = workers
        self._chance = chance
        self._live: list[str] = []
        self._named = 0
        self._partitions = 2
        self.done: Counter[str] = Counter()
        self._all: dict[str, tuple[float, Callable[[], None]]] = {
            "engine killed": (6, lambda: engines.kill(active=True)),
            "standby killed": (2, lambda: engines.kill(active=False)),
            "engine asleep": (2, lambda: engines.sleep(chance.choice((1, 5, 30)))),
            "lane killed": (4 * (PROCESSES > 1), self._lane_killed),
            "lane asleep": (2 * (PROCESSES > 1), self._lane_asleep),
            "worker killed": (6 * (WORKERS > 0), lambda: workers.kill(chance)),
            "worker asleep": (4 * (WORKERS > 0), lambda: workers.sleep(chance)),
            "series": (12 * (WORKERS > 0), self._series),
            "broker killed": (3, self._broker_killed),
            "broker paused": (3, self._broker_paused),
            "broker restarted": (2, self._broker_restarted),
            "all brokers killed": (1, brokers.restart),
            "partition added": (1.5, self._partition_added),
            "half-open connections": (2, self._half_open),
            "calm": (3, lambda: time.sleep(5)),
        }

    def one(self) -> None:
        weights = [weight for weight, _ in self._all.values()]
        (name,) = self._chance.choices(list(self._all), weights)
        self._all[name][1]()
        self.done[name] += 1
        self.keep()
        time.sleep(self._chance.uniform(0.5, 6))
        self.keep()

    def keep(self) -> None:
        self._engines.keep()
        self._workers.keep()

    def _series(self) -> None:
        """Let a few series come or go, one behind the other, at whatever cuts."""
        token = Sealer(
            (self._engines.pipeline.folder / "operator.key").read_bytes(), NAME
        ).query_token()
        for _ in range(self._chance.randint(1, 4)):
            for port in self._engines.ports()[:1]:
                try:
                    client = connect(f"http://127.0.0.1:{port}", token=token, timeout=10)
                    self._one_series(client)
                except (WorldError, UsageError):
                    self.done["no answer about a series"] += 1

    def _one_series(self, client: Client) -> None:
        if self._live and self._chance.random() < 0.45:
            client.halt(self._live.pop(self._chance.randrange(len(self._live))))
            self.done["series halted"] += 1
        else:
            self._named += 1
            kinds = LIVE[self._chance.choice(list(LIVE))]
            client.create(definition(name := f"live_{self._named}", kinds))
            self._live.append(name)
            self.done["series created"] += 1

    def _lane_killed(self) -> None:
        if lane := self._engines.lane(self._chance):
            with suppress(ProcessLookupError):
                os.kill(lane, signal.SIGKILL)

    def _lane_asleep(self) -> None:
        if lane := self._engines.lane(self._chance):
            with suppress(ProcessLookupError):
                os.kill(lane, signal.SIGSTOP)
                time.sleep(self._chance.choice((1, 5, 20)))
                os.kill(lane, signal.SIGCONT)

    def _node(self) -> int:
        return self._chance.randrange(self._brokers.size)

    def _broker_killed(self) -> None:
        if self._brokers.size == 1:
            self._brokers.restart()
            return
        node = self._node()
        self._brokers.kill(node)
        time.sleep(self._chance.choice((0.0, SESSION_S)))
        self._brokers.start(node)

    def _broker_paused(self) -> None:
        node = self._node()
        self._brokers.halt(node)
        time.sleep(self._chance.choice((1, 5, 20)))
        self._brokers.resume(node)

    def _broker_restarted(self) -> None:
        node = self._node()
        self._brokers.end(node)
        self._brokers.start(node)

    def _partition_added(self) -> None:
        if self._partitions < MOST_PARTITIONS:
            self._partitions += 1
            asyncio.run(added(self._brokers.bootstrap, self._partitions))

    def _half_open(self) -> None:
        for port in self._engines.ports()[:1]:
            try:
                with attacking(port, (*SLOW, *DEAF), CLIENTS):
                    time.sleep(self._chance.choice((2, 15)))
            except OSError:  # the engine is not there now
                continue


async def added(bootstrap: str, partitions: int) -> None:
    async with administering(bootstrap) as admin:
        await admin.create_partitions({TOPIC: NewPartitions(partitions)})


async def published(bootstrap: str, tick: int) -> bool:
    at = TopicPartition(f"{NAME}.releases", 0)
    async with consumer(bootstrap, "read_committed") as reader:
        reader.assign([at])
        await reader.seek_to_beginning(at)
        end = time.monotonic() + CATCHING_UP_S
        while time.monotonic() < end:
            for one in (await reader.getmany(timeout_ms=500)).get(at, []):
                if json.loads(one.value)["tick"] >= tick:
                    return True
    return False


def archived(pipeline: LivePipeline, archive: Path) -> bool:
    """Add to the archive what the journal holds beyond it; return whether the brokers let it."""
    key = pipeline.folder / "operator.key"
    try:
        asyncio.run(archive_journal(pipeline.folder / "pipeline.yaml", archive, key, print))
    except WorldError:
        return False
    except UsageError:
        if archive.exists():
            raise
        return False  # there is no journal yet
    return True


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_soak(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with cluster(tmp_path / "kafka", NODES) as brokers:
        bootstrap = brokers.bootstrap
        asyncio.run(create_topic(bootstrap, TOPIC, 2, {"message.timestamp.type": "LogAppendTime"}))
        grid = Grid(int(time.time() * 1000) // STEP * STEP + 5 * STEP, STEP, DELAY, HORIZON)
        pipeline = LivePipeline(
            NAME,
            TOPIC,
            bootstrap,
            tmp_path / "engine",
            grid,
            KEEP,
            PROCESSES,
            LANES if WORKERS else 0,
        ).written()
        archive, archives = tmp_path / "soak.archive", 0
        engines, writer = Engines(pipeline), SoakWriter(bootstrap, TOPIC, SEED)
        workers = Workers(pipeline, WORKERS)
        faults = Faults(brokers, engines, workers, chance)
        try:
            faults.keep()
            writer.start()
            end = grid.origin / 1000 + SECONDS
            while time.time() < end:
                faults.one()
                archives += archived(pipeline, archive)
            writer.stop()
            faults.keep()
            caught_up = asyncio.run(published(bootstrap, grid.tick(int(time.time() * 1000)) + 1))
            faults.keep()
            engines.end()
            workers.end()
            assert archived(pipeline, archive)
        finally:
            engines.close()
            workers.close()
        made, wrong = asyncio.run(verdict(pipeline, archive))
    figures = {
        "seconds": SECONDS, "nodes": NODES, "processes": PROCESSES, "workers": WORKERS, "seed": SEED,
        "caught up": caught_up, "archived": archives,
        "happened": dict(faults.done), "written": dict(writer.deeds), "not written": dict(writer.failures),
        "kills": engines.kills, "shut out and standing by again": engines.shut_out,
        "workers killed": workers.kills, "unplanned exits": len(engines.unplanned + workers.unplanned), **made,
    }  # fmt: skip
    print(json.dumps(figures))
    if file := os.environ.get("STREAM_DP_SOAK_FIGURES"):
        Path(file).write_text(json.dumps(figures, indent=1))
    assert engines.unplanned == workers.unplanned == []
    assert caught_up
    assert 0 < made["pruned"] < made["commits"]
    assert wrong == []
