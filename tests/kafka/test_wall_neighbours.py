"""Live ticks by append stamp: one record less in a topic, read slowly or not, changes one row by one."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from aiokafka import AIOKafkaProducer
from faults.evidence import opened
from faults.kafka_evidence import records
from kafka.kafka_worlds import CLOCKS

from stream_dp.broker.topics import create_topic
from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Batch, Ports
from stream_dp.files.memory import MemoryJournal, MemorySink, MemoryStore, WrappedSource
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.source import KafkaSource, StampTicks
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.faults import Dawdling
from stream_dp.testing.kafka import fresh_topic_name

STEP, DELAY, TICKS, PARTITIONS = 200, 400, 50, 2
BUSY_TICKS = 18  # what is left is time for a machine that is slow
TOTAL = 600
KEY = bytes(32)
KINDS = ("red", "green", "blue")


class Dropping(WrappedSource):
    """A source without the record at `place` = (partition, offset): the neighbouring input, stamps kept."""

    def __init__(self, source: KafkaSource, place: tuple[int, int]) -> None:
        super().__init__(source)
        self._place = place

    async def read(self) -> Sequence[Batch]:
        return [self._without(batch) for batch in await super().read()]

    def _without(self, batch: Batch) -> Batch:
        kept = [
            (payload, label)
            for payload, label in zip(batch.payloads, batch.labels, strict=True)
            if (batch.partition, label) != self._place
        ]
        payloads, labels = zip(*kept, strict=True) if kept else ((), ())
        return replace(batch, payloads=payloads, labels=labels)


class ByReading(Dropping):
    """Broken: an event belongs to the tick in which it is read, so many reads to a tick."""

    _reads = 0

    async def read(self) -> Sequence[Batch]:
        batches = []
        for batch in await super().read():
            if batch.payloads:
                self._reads += len(batch.payloads)
            tick = min(self._reads // 30, TICKS - 1)
            batches.append(replace(batch, tick=tick if batch.payloads else None, mark=None))
        done = [
            Batch(p, (), (), batches[-1].position, mark=self._last()) for p in range(PARTITIONS)
        ]
        return [*batches, *done]

    def _last(self) -> int:
        return min(self._reads // 30, TICKS) - 1 if self._reads < TOTAL - 1 else TICKS - 1


def specification(topic: str, kafka: str, origin: int) -> PipelineSpec:
    start = np.datetime_as_string(np.datetime64(origin, "ms"), unit="ms") + "Z"
    return PipelineSpec.model_validate(
        {
            "version": 1,
            "name": "live",
            "source": {"kind": "kafka", "topic": topic, "bootstrap": kafka},
            "schema": {"kind": {"type": "category", "domain": list(KINDS)}},
            "privacy": {"epsilon": "2"},
            "clock": {
                "kind": "wall", "step": f"{STEP}ms", "delay": f"{DELAY}ms", "horizon": str(TICKS),
                "start": start,
            },
            "series": [
                {"name": "all", "statistic": "count", "epsilon": "1"},
                {
                    "name": "by_kind", "statistic": "histogram", "by": "kind", "method": "tree",
                    "epsilon": "1",
                },
            ],
        }
    )  # fmt: skip


async def produced(producer: Any, topic: str, origin: int) -> None:
    """Write TOTAL records, spread over the ticks as time goes by."""
    chance = random.Random(6)
    for number in range(TOTAL):
        due = origin + STEP + number * BUSY_TICKS * STEP // TOTAL
        await asyncio.sleep(max(0.0, due / 1000 - time.time()))
        body = json.dumps({"kind": chance.choice((*KINDS, "grey"))}).encode()
        await producer.send(topic, body, partition=chance.randrange(PARTITIONS))
    await producer.flush()


async def rows_of(spec: PipelineSpec, source: Any) -> Any:
    """The rows in the journal after a run of the engine."""
    store = MemoryStore()
    ports = Ports(source, MemoryJournal(store), MemorySink(), SystemClock(), Sealer(KEY, "live"))
    plan = build(spec).run_config(0)
    async with asyncio.timeout(60):
        await Engine(plan, Router(spec, plan.origin), ports, NoiseStream).run()
    commits = opened(store.commits, KEY, "live")
    return np.array([row for commit in commits for row in commit["rows"]])


async def test_one_record_changes_one_row_by_one(kafka: str) -> None:
    topic = fresh_topic_name("wall")
    await create_topic(kafka, topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    origin = int(time.time() * 1000) // STEP * STEP + STEP
    spec = specification(topic, kafka, origin)

    def source() -> KafkaSource:
        return KafkaSource(
            KafkaSettings(kafka), topic, SystemClock(), StampTicks(STEP, DELAY, CLOCKS)
        )

    live = asyncio.create_task(rows_of(spec, source()))
    try:
        await produced(producer, topic, origin)
    finally:
        await producer.stop()
    everything = await live
    written = await records(kafka, topic)
    assert len(written) == TOTAL
    exact = np.zeros(TICKS, dtype=np.int64)
    for record in written:
        exact[(record.timestamp - origin) // STEP] += 1
    assert everything[:, 0].tolist() == exact.tolist()

    for at in (5, TOTAL // 2, TOTAL - 5):
        place = (written[at].partition, written[at].offset)
        slow = await rows_of(spec, Dawdling(Dropping(source(), place), 2))
        difference = everything - slow
        tick = (written[at].timestamp - origin) // STEP
        assert np.flatnonzero(difference.any(axis=1)).tolist() == [tick]
        assert sorted(difference[tick].tolist()) == [0, 0, 0, 1, 1]

    nowhere, early = (0, -1), (written[5].partition, written[5].offset)
    broken = [await rows_of(spec, ByReading(source(), place)) for place in (nowhere, early)]
    assert np.count_nonzero((broken[0] - broken[1]).any(axis=1)) > 2
