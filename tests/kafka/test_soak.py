"""The soak: an engine with a standby over a cluster, everything that can happen to them at random, and a checker.

Rules: it runs for STREAM_DP_SOAK_SECONDS (1,800) on STREAM_DP_SOAK_NODES (3) brokers from STREAM_DP_SOAK_SEED on, and
prints its figures as JSON, also to the file STREAM_DP_SOAK_FIGURES if that is named. The test is synchronous, for a
broker ends with the thread that started it. What is done to brokers is undone before the next thing is done to them.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions
from faults.kafka_evidence import consumer
from kafka.cluster import Cluster, cluster
from kafka.kafka_worlds import administering
from kafka.log_worlds import LivePipeline
from kafka.soak_engines import Engines
from kafka.soak_writer import SoakWriter
from kafka.test_soak_verdict import verdict
from oracles.kafka_log import Grid
from unit.server.attackers import DEAF, SLOW, attacking

from stream_dp.broker.topics import create_topic

SECONDS = float(os.environ.get("STREAM_DP_SOAK_SECONDS", "1800"))
NODES = int(os.environ.get("STREAM_DP_SOAK_NODES", "3"))
SEED = int(os.environ.get("STREAM_DP_SOAK_SEED", "1"))
STEP, DELAY, HORIZON = 1_000, 2_000, 100_000
CLIENTS, MOST_PARTITIONS = 1_200, 8
NAME, TOPIC = "soak", "soak.events"
CATCHING_UP_S = 300.0
SESSION_S = 8.0  # longer than that of a broker: another leads afterwards


class Faults:
    """What may happen, each for some seconds; `done` counts."""

    def __init__(self, brokers: Cluster, engines: Engines, chance: random.Random) -> None:
        self._brokers = brokers
        self._engines = engines
        self._chance = chance
        self._partitions = 2
        self.done: Counter[str] = Counter()
        self._all: dict[str, tuple[float, Callable[[], None]]] = {
            "engine killed": (6, lambda: engines.kill(active=True)),
            "standby killed": (2, lambda: engines.kill(active=False)),
            "engine asleep": (2, lambda: engines.sleep(chance.choice((1, 5, 30)))),
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
        self._engines.keep()
        time.sleep(self._chance.uniform(0.5, 6))
        self._engines.keep()

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


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_soak(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with cluster(tmp_path / "kafka", NODES) as brokers:
        bootstrap = brokers.bootstrap
        asyncio.run(create_topic(bootstrap, TOPIC, 2, {"message.timestamp.type": "LogAppendTime"}))
        grid = Grid(int(time.time() * 1000) // STEP * STEP + 5 * STEP, STEP, DELAY, HORIZON)
        pipeline = LivePipeline(NAME, TOPIC, bootstrap, tmp_path / "engine", grid).written()
        engines, writer = Engines(pipeline), SoakWriter(bootstrap, TOPIC, SEED)
        faults = Faults(brokers, engines, chance)
        try:
            engines.keep()
            writer.start()
            end = grid.origin / 1000 + SECONDS
            while time.time() < end:
                faults.one()
            writer.stop()
            engines.keep()
            caught_up = asyncio.run(published(bootstrap, grid.tick(int(time.time() * 1000)) + 1))
            engines.keep()
            engines.end()
        finally:
            engines.close()
        made, wrong = asyncio.run(verdict(pipeline))
    figures = {
        "seconds": SECONDS, "nodes": NODES, "seed": SEED, "caught up": caught_up,
        "happened": dict(faults.done), "written": dict(writer.deeds), "not written": dict(writer.failures),
        "kills": engines.kills, "shut out and standing by again": engines.shut_out,
        "unplanned exits": len(engines.unplanned), **made,
    }  # fmt: skip
    print(json.dumps(figures))
    if file := os.environ.get("STREAM_DP_SOAK_FIGURES"):
        Path(file).write_text(json.dumps(figures, indent=1))
    assert engines.unplanned == []
    assert caught_up
    assert wrong == []
