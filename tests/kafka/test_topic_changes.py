"""Partitions that are added and topics that are made anew, under a running engine and while it is off."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faults.evidence import opened
from kafka.kafka_worlds import (
    CLOCKS,
    Close,
    administering,
    create,
    deleted,
    grow,
    tick_marks,
    writing,
)
from kafka.log_worlds import KEY, LivePipeline, engine_in_memory
from oracles.kafka_log import Grid

from stream_dp.engine.engine import Engine
from stream_dp.errors import FailClosed
from stream_dp.files.memory import MemorySink, MemoryStore
from stream_dp.files.system_clock import SystemClock
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.testing.kafka import fresh_topic_name

STEP, DELAY = 250, 1_000
EVENTS = 1_000
STAMPED = {"message_timestamp_type": "LogAppendTime"}
VALUE = b'{"kind": "red"}'


@dataclass
class World:
    """A pipeline on a topic that it counts by arrival, with a journal that outlives its engines."""

    kafka: str
    topic: str
    store: MemoryStore = field(default_factory=MemoryStore)
    sink: MemorySink = field(default_factory=MemorySink)
    origin: int = field(default_factory=lambda: int(time.time() * 1000) // STEP * STEP)
    stamps: list[int] = field(default_factory=list)
    processes: int = 1

    def engine(self) -> Engine:
        """A new engine; the journal decides where it goes on."""
        grid = Grid(self.origin, STEP, 2 * DELAY, 100_000)
        pipeline = LivePipeline(
            "changes", self.topic, self.kafka, Path(), grid, processes=self.processes
        )
        return engine_in_memory(pipeline, self.store, self.sink)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[Any]"]:
        """An engine, stopped at the end if it has not ended by itself."""
        task = asyncio.create_task(self.engine().run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def commits(self) -> list[dict[str, Any]]:
        return opened(self.store.commits, KEY, "changes")

    @property
    def ticks(self) -> int:
        return sum(len(one["ticks"]) for one in self.commits)

    async def committed(self, ticks: int, task: "asyncio.Task[Any]") -> None:
        async with asyncio.timeout(120):
            while self.ticks < ticks and not task.done():  # noqa: ASYNC110 - a journal tells nobody
                await asyncio.sleep(0.05)
        if task.done():
            await task

    async def counted(self, task: "asyncio.Task[Any]") -> None:
        """Wait until the ticks of all events are committed, or for the engine's end."""
        await self.committed((max(self.stamps) - self.origin) // STEP + 1, task)

    async def send(self, partition: int, number: int) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.kafka)
        await producer.start()
        try:
            sent = [
                await producer.send(self.topic, VALUE, partition=partition) for _ in range(number)
            ]
            self.stamps += [one.timestamp for one in await asyncio.gather(*sent)]
        finally:
            await producer.stop()

    def check(self, admitted: list[list[int]]) -> None:
        """Every event is in its tick, and partitions were admitted in these commits."""
        rows = [row[0] for one in self.commits for row in one["rows"]]
        exact = [0] * len(rows)
        for stamp in self.stamps:
            exact[(stamp - self.origin) // STEP] += 1
        assert rows == exact
        assert sum(one["late"] for one in self.commits) == 0
        assert [list(one["admitted"]) for one in self.commits if one.get("admitted")] == admitted


async def made(kafka: str, processes: int = 1) -> World:
    topic = await create(kafka, fresh_topic_name("changes"), 1, **STAMPED)
    return World(kafka, topic, processes=processes)


async def test_events_of_an_added_partition_are_all_in_their_ticks(kafka: str) -> None:
    """Added while the engine runs, which is restarted later on."""
    world = await made(kafka)
    async with world.running() as task:
        await world.committed(3, task)
        await world.send(0, 10)
        await grow(kafka, world.topic, 2)
        for _ in range(5):
            await world.send(1, EVENTS // 5)
            await world.send(0, 3)
        await world.counted(task)
    async with world.running() as task:
        await world.send(1, 7)
        await world.counted(task)
    world.check([[1]])


@pytest.mark.parametrize("processes", [1, 2])
async def test_events_of_a_partition_that_was_added_while_nobody_looked(
    kafka: str, processes: int
) -> None:
    """The engine was off; others come while it reads on, alone or by two lanes."""
    world = await made(kafka, processes)
    async with world.running() as task:
        await world.send(0, 10)
        await world.committed(3, task)
    await grow(kafka, world.topic, 2)
    await world.send(1, EVENTS)
    async with world.running() as task:
        await world.send(1, 5)
        await world.committed(world.ticks + 5, task)
        await grow(kafka, world.topic, 4)
        await world.send(3, 5)
        await world.counted(task)
    world.check([[1], [2, 3]])


async def test_a_topic_made_anew_is_refused_at_a_start(kafka: str) -> None:
    """It holds more records than were read, so that every position still lies in it."""
    world = await made(kafka)
    async with world.running() as task:
        await world.send(0, 10)
        await world.committed(5, task)
    kept = list(world.store.commits)
    async with administering(kafka) as admin:
        await deleted(admin, world.topic)
    await create(kafka, world.topic, 1, **STAMPED)
    await world.send(0, EVENTS)
    async with asyncio.timeout(60):
        with pytest.raises(FailClosed, match="created again"):
            await world.engine().run()
    assert world.store.commits == kept


@pytest.mark.parametrize("replay", [False, True])
async def test_a_topic_made_anew_is_refused_while_it_is_read(
    kafka: str, closing: list[Close], replay: bool
) -> None:
    """Nothing was read of the old one: behind its first record, the client itself would notice an empty new one."""
    topic = fresh_topic_name("changes")
    await create(kafka, topic, 1, **STAMPED)
    ticks = ReplayTicks(tick_marks(topic)) if replay else StampTicks(STEP, STEP, CLOCKS)
    source = KafkaSource(KafkaSettings(kafka), topic, SystemClock(), ticks)
    closing.append(source.close)
    await source.open(int(time.time() * 1000) - STEP)
    await source.seek({})

    async def send(number: int) -> None:
        async with writing(kafka) as producer:
            for at in range(number):
                await producer.send_and_wait(topic, b"%d" % at)
            mark = [(TICK_HEADER, tick_marks(topic).sign(0, number))]
            await producer.send_and_wait(topic, b"", headers=mark)

    async with administering(kafka) as admin:
        await deleted(admin, topic)
    await create(kafka, topic, 1, **STAMPED)
    await send(50)

    async def follow() -> None:
        while True:
            for one in await source.read():
                assert not replay or one.mark is None

    async with asyncio.timeout(60):
        with pytest.raises(FailClosed, match="made anew"):
            await follow()


async def test_a_partition_added_to_a_replay_is_refused_before_its_tick(
    kafka: str, closing: list[Close]
) -> None:
    topic = await create(kafka, fresh_topic_name("changes"))
    signed = tick_marks(topic)
    source = KafkaSource(KafkaSettings(kafka), topic, SystemClock(), ReplayTicks(signed))
    closing.append(source.close)
    assert not source.grows
    await source.open(0)
    await source.seek({})
    async with writing(kafka) as producer:
        await producer.send_and_wait(topic, b"", headers=[(TICK_HEADER, signed.sign(0, 0))])
        assert [one.mark for one in await source.read()] == [0]
        await grow(kafka, topic, 2)
        await producer.send_and_wait(
            topic, b"", headers=[(TICK_HEADER, signed.sign(0, 1))], partition=0
        )
    async with asyncio.timeout(60):
        with pytest.raises(FailClosed, match="partitions were added"):
            await source.read()
