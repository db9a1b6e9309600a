"""Junk without end: ten million records at full speed, and 12,000 a second under ticks of a minute, good ones between.

Rules: batches are raw, so that sending costs little; no two neighbours are refused for one reason, which is the worst
for dead letters. What must come out is known from the brokers' answers: each says the stamp of its batch. The engine is
a process of its own; its resident memory is looked at while it runs.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from faults.kafka_evidence import consumer, journal_blobs
from kafka.hostile_records import BAD_VALUES
from kafka.log_worlds import COLUMNS, KINDS, LivePipeline
from kafka.raw_batches import CODECS, plain
from kafka.raw_wire import Wire
from oracles.kafka_log import Grid

from stream_dp.broker.topics import create_topic
from stream_dp.testing.kafka import fresh_topic_name

PARTITIONS, IN_A_BATCH, GOOD_SHARE = 4, 10_000, 0.001
MILLIONS = int(os.environ.get("STREAM_DP_FLOOD_MILLIONS", "10"))
MINUTES = int(os.environ.get("STREAM_DP_FLOOD_MINUTES", "3"))
A_SECOND = 12_000
GROWTH_MB = 100
"""How much more memory an engine may take under a flood than before it: what one fetch and one batch take unpacked."""
DELAY, WARM_SECONDS, PATIENCE = 2_000, 6.0, 300.0
JUNK = [value for value in BAD_VALUES if value is None or len(value) < 100]


@dataclass
class Flood:
    """Junk batches to be sent, and what has been sent: rows by tick, and dead letters by partition."""

    grid: Grid
    rows: dict[int, Counter[str]] = field(default_factory=dict)
    dead: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = random.Random(10)
        self._batches = [_batch(chance, codec) for codec in (0, *CODECS.values())]

    @property
    def last(self) -> int:
        return max(self.rows)

    def send(self, kafka: str, topic: str, number: int, a_second: float | None = None) -> None:
        """Send this number of records, about, as fast as they are taken or so many a second."""
        began = time.monotonic()
        with Wire(kafka) as wire:
            for at, (batch, good) in zip(
                range(number // IN_A_BATCH), cycle(self._batches), strict=False
            ):
                if a_second is not None:
                    time.sleep(max(0.0, began + at * IN_A_BATCH / a_second - time.monotonic()))
                stored = wire.produce(topic, at % PARTITIONS, batch)
                assert stored.error == 0
                self.rows.setdefault(self.grid.tick(stored.stamp), Counter()).update(good)
                self.dead[at % PARTITIONS] += IN_A_BATCH - good.total()

    def row(self, tick: int) -> tuple[int, ...]:
        counted = self.rows.get(tick, Counter())
        return (counted.total(), *(counted[kind] for kind in COLUMNS))


def _batch(chance: random.Random, codec: int) -> tuple[bytes, Counter[str]]:
    junk, good, values = cycle(JUNK), Counter[str](), list[bytes | None]()
    for _ in range(IN_A_BATCH):
        if chance.random() < GOOD_SHARE:
            kind = chance.choice((*KINDS, "grey"))
            good[kind if kind in KINDS else "other"] += 1
            values.append(json.dumps({"kind": kind}).encode())
        else:
            values.append(next(junk))
    return plain(values, codec).encoded(), good


class Memory:
    """The resident memory of a process in MB, looked at every so often: what it was at first, and the most."""

    def __init__(self, pid: int) -> None:
        self._statm = Path(f"/proc/{pid}/statm")
        self._page = os.sysconf("SC_PAGE_SIZE") / 1e6
        self.first = self.most = self.now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def now(self) -> float:
        """What it is; 0 where the process is over."""
        try:
            return int(self._statm.read_text().split()[1]) * self._page
        except (OSError, IndexError):
            return 0.0

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, self.now())


@contextmanager
def running(pipeline: LivePipeline) -> Iterator["subprocess.Popen[str]"]:
    with pipeline.start() as run:
        try:
            yield run
        finally:
            run.kill()


async def visible(pipeline: LivePipeline, tick: int, run: "subprocess.Popen[str]") -> None:
    """Wait until a tick has been published; fail where the engine ends before."""
    at = TopicPartition(f"{pipeline.name}.releases", 0)
    async with asyncio.timeout(PATIENCE), consumer(pipeline.bootstrap, "read_committed") as reader:
        while True:
            assert run.poll() is None, "the engine ended"
            reader.assign([at])
            await reader.seek_to_beginning(at)
            shown = -1
            while found := await reader.getmany(timeout_ms=500):
                shown = max(json.loads(one.value)["tick"] for one in found[at])
            if shown >= tick:
                return


async def flooded(kafka: str, folder: Path, step: int, number: int, a_second: float | None) -> None:
    """Flood an engine, and compare what it has journalled with what was sent."""
    topic = fresh_topic_name("flood")
    await create_topic(kafka, topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    origin = int((time.time() + WARM_SECONDS) * 1000)
    flood = Flood(Grid(origin, step, DELAY, 100_000))
    pipeline = LivePipeline(fresh_topic_name("flood"), topic, kafka, folder, flood.grid).written()
    with running(pipeline) as run:
        await asyncio.sleep(max(0.0, origin / 1000 - time.time()))
        while not await journal_blobs(kafka, f"{pipeline.name}.private.journal"):
            assert run.poll() is None, "the engine ended"  # before it works it takes less memory
        memory = await asyncio.to_thread(Memory, run.pid)
        await asyncio.to_thread(flood.send, kafka, topic, number, a_second)
        await visible(pipeline, flood.last, run)
        memory.end()
        run.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(run.communicate)
        assert run.returncode == 0, errors
    journal = await pipeline.journal()
    assert journal.dead == flood.dead
    assert journal.late == 0
    assert {tick: row for tick, row in journal.rows.items() if any(row)} == {
        tick: flood.row(tick) for tick in flood.rows if any(flood.row(tick))
    }
    assert memory.most - memory.first <= GROWTH_MB
    assert sum(one.total() for one in flood.rows.values()) > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("step", "number", "a_second"),
    [(1_000, MILLIONS * 10**6, None), (60_000, MINUTES * 60 * A_SECOND, A_SECOND)],
    ids=["at full speed", "for minutes"],
)
async def test_junk_without_end(
    kafka: str, tmp_path: Path, step: int, number: int, a_second: float | None
) -> None:
    await flooded(kafka, tmp_path, step, number, a_second)


async def test_junk_for_a_while(kafka: str, tmp_path: Path) -> None:
    await flooded(kafka, tmp_path, 500, 200_000, None)
