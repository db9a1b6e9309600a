"""Pairs of streams on a real broker: topics that are written alike but for one hostile event, each read by an engine.

Rules: stamps are the broker's, so what is compared is ticks. Batches go to all topics in turn, at the beginning of a
tick that is long; where one of them got another tick all the same (a machine that was very slow), it is done again.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.evidence import opened
from kafka.hostile_batches import HOSTILE
from kafka.hostile_records import GOOD
from kafka.kafka_worlds import CLOCKS
from kafka.log_worlds import Journalled, LivePipeline, log_of, says
from kafka.raw_batches import plain
from kafka.raw_producer import RawTransactions
from kafka.raw_wire import Wire
from oracles.kafka_log import Grid

from stream_dp.broker.topics import create_topic
from stream_dp.engine.engine import Engine
from stream_dp.engine.ports import Ports
from stream_dp.files.memory import MemoryJournal, MemorySink, MemoryStore
from stream_dp.files.system_clock import SystemClock
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.source import KafkaSource, StampTicks
from stream_dp.noise import NoiseStream
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.testing.kafka import fresh_topic_name

STEP, DELAY, TICKS, ATTEMPTS = 2_500, 1_000, 6, 4
KEY = bytes(32)
EVENT_AT, ENDED_AT, LAST_AT = 1, 3, 4
Add = Callable[[Wire, str], None]


def _batch(name: str) -> Add:
    (encoded,) = (each.encoded() for each in HOSTILE if each.name == name)

    def add(wire: Wire, topic: str) -> None:
        assert wire.produce(topic, 0, encoded).error == 0

    return add


class Transaction:
    """An event in a transaction that ends some ticks later, or never."""

    def __init__(self, wire: Wire, commit: bool | None) -> None:
        self._producer = RawTransactions(wire, fresh_topic_name("twin"), 600_000)
        self._commit = commit

    def add(self, _: Wire, topic: str) -> None:
        assert self._producer.send(topic, 0, plain([GOOD])).error == 0

    def end(self) -> None:
        if self._commit is not None:
            self._producer.end(commit=self._commit)


COUNTED, DEAD, LATE, NOTHING = (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)
BATCHES = {
    "header key not UTF-8": COUNTED,
    "4,000,000 empty headers in gzip": COUNTED,
    "gzip, trailing bytes": (2, 0, 0),
    "a header of 64 MB in gzip": DEAD,
    "value: null": DEAD,
    "value: 100,000 brackets": DEAD,
}
TRANSACTIONS = {"committed late": True, "aborted": False, "open for ever": None}
EFFECTS = {
    "nothing": NOTHING, **BATCHES,
    "committed late": LATE, "aborted": NOTHING, "open for ever": NOTHING,
}  # fmt: skip


def write(kafka: str, topics: dict[str, str], hostile: dict[str, Add], grid: Grid) -> None:
    """The same batches into all topics, at the beginning of each tick, and the event of each."""
    chance = random.Random(3)
    with Wire(kafka) as wire:
        within = {name: Transaction(wire, commit) for name, commit in TRANSACTIONS.items()}
        adding = hostile | {name: one.add for name, one in within.items()}
        for tick in range(LAST_AT):
            time.sleep(max(0.0, (grid.origin + tick * STEP) / 1000 + 0.05 - time.time()))
            kinds = chance.choices(("red", "green", "grey"), k=chance.randint(2, 6))
            batch = plain([json.dumps({"kind": kind}).encode() for kind in kinds]).encoded()
            for topic in topics.values():
                assert wire.produce(topic, 0, batch).error == 0
            for name, add in adding.items():
                if tick == EVENT_AT:
                    add(wire, topics[name])
            if tick == ENDED_AT:
                for one in within.values():
                    one.end()


async def outcome(kafka: str, topic: str, grid: Grid) -> tuple[Journalled, list[tuple[int, str]]]:
    """What an engine journals and publishes of a topic, in order."""
    shown = LivePipeline("twin", topic, kafka, Path(), grid).document()
    spec = PipelineSpec.model_validate(shown)
    clock, store, sink = SystemClock(), MemoryStore(), MemorySink()
    source = KafkaSource(KafkaSettings(kafka), topic, clock, StampTicks(STEP, DELAY // 2, CLOCKS))
    ports = Ports(source, MemoryJournal(store), sink, clock, Sealer(KEY, "twin"))
    plan = build(spec).run_config(0)
    await Engine(plan, Router(spec, plan.origin), ports, NoiseStream).run()
    published = [json.loads(body) for body in sink.bodies]
    return (
        Journalled.of(opened(store.commits, KEY, "twin")),
        [(one["tick"], one["series"]) for one in published],
    )


def as_meant(kafka: str, name: str, topic: str, grid: Grid) -> bool:
    """Whether every batch of a topic lies in the tick that it was meant for."""
    found = Counter(
        grid.tick(frame.stamp) for frame in log_of(kafka, topic)[0] if not frame.control
    )
    meant = Counter(range(LAST_AT))
    meant[EVENT_AT] += name != "nothing"
    return found == meant


async def test_one_hostile_event_changes_one_row_by_one_on_a_real_broker(kafka: str) -> None:
    hostile = await asyncio.to_thread(lambda: {name: _batch(name) for name in BATCHES})
    for _ in range(ATTEMPTS):
        topics = {name: fresh_topic_name("twin") for name in EFFECTS}
        for topic in topics.values():
            await create_topic(kafka, topic, 1, {"message.timestamp.type": "LogAppendTime"})
        grid = Grid(int(time.time() * 1000) + 1_500, STEP, DELAY, TICKS)
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            reading = {
                name: tasks.create_task(outcome(kafka, topic, grid))
                for name, topic in topics.items()
            }
            await asyncio.to_thread(write, kafka, topics, hostile, grid)
        if all([await asyncio.to_thread(as_meant, kafka, *one, grid) for one in topics.items()]):
            break
    else:
        pytest.fail("this machine is too slow for ticks of that length")
    plainly, order = reading["nothing"].result()
    for name, (more, dead, late) in EFFECTS.items():
        journal, published = reading[name].result()
        added = {
            tick: row[0] - plainly.rows[tick][0]
            for tick, row in journal.rows.items()
            if row != plainly.rows[tick]
        }
        assert added == ({EVENT_AT: more} if more else {}), name
        assert (journal.dead.total(), journal.late) == (dead, late), name
        assert published == order, name
        log = await asyncio.to_thread(says, kafka, topics[name], grid)
        assert (log.dead_letters, log.late) == (dead, late), name
