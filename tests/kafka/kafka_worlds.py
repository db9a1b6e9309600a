"""Topics, records and engines' parts for the tests of the adapters, and what readers see of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from faults.cases import Case
from faults.kafka_transactions import decided

from stream_dp.broker import create_topic
from stream_dp.core.time import TickGrid
from stream_dp.journal.commit import Release
from stream_dp.journal.keys import Sealer
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TickMarks
from stream_dp.kafka.client.topics import config, existing
from stream_dp.kafka.log.journal import KafkaJournal
from stream_dp.kafka.log.lease import KafkaLease, _abandon
from stream_dp.kafka.log.public import KafkaSink
from stream_dp.testing.port_checks import sample_release

STEP = 400
SETTLE = 600  # a broker that stands still for longer makes records late
CLOCKS = "tests.private.clock"  # one for all sources of these tests
ENDLESS = 1_000.0  # seconds of patience: what waits for them does not end within the time of a test
STAMPED = {"message.timestamp.type": "LogAppendTime"}
AT_ONCE = "from stream_dp.operate.run import run_pipeline\nrun_pipeline._JOINING_S = 0.1\n"
"""Lets an engine begin without waiting until brokers give up the place of the one that was killed, some seconds."""
Close = Callable[[], Awaitable[None]]


class WallClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, moment: int) -> None:
        await asyncio.sleep(max(0, moment - self.now()) / 1000)


@asynccontextmanager
async def administering(kafka: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def tick_marks(
    topic: str, key: bytes = bytes(32), origin: int = 0, step: int = STEP, horizon: int = 1_000
) -> TickMarks:
    return TickMarks(Sealer(key, "any").mark_key(), topic, TickGrid(origin, step, horizon))


def marks_of(case: Case) -> TickMarks:
    """The marks of the topic that a case reads."""
    want = case.expected
    return tick_marks(f"{want.pipeline}.events", case.key, want.origin, want.step, want.horizon)


async def create(kafka: str, topic: str, partitions: int = 1, **config: str) -> str:
    """Create a topic, of which the brokers know from now on: they answer before all of them do."""
    configs = {key.replace("_", "."): value for key, value in config.items()}
    assert await create_topic(kafka, topic, partitions, configs)
    return topic


async def grow(kafka: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic, and wait until the brokers lead them."""
    async with administering(kafka) as admin:
        await admin.create_partitions({topic: NewPartitions(partitions)})
        led: list[Any] = []
        async with asyncio.timeout(60):
            while len(led) < partitions:  # the brokers tell nobody when they are done
                led = [one for one in await existing(admin, topic) or () if one["leader"] >= 0]
                await asyncio.sleep(0.02)


async def alter(kafka: str, topic: str, settings: Mapping[str, str]) -> None:
    """Give a topic these settings and no others, and wait until the brokers tell them."""
    async with administering(kafka) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))
        (answer,) = await admin.alter_configs([resource])
        assert [code for code, *_ in answer.resources] == [0], answer
        async with asyncio.timeout(60):
            while not settings.items() <= (await config(admin, topic)).items():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def deleted(admin: Any, topic: str) -> None:
    """Delete a topic and wait until it is gone: the brokers tell nobody when they are done."""
    await admin.delete_topics([topic])
    async with asyncio.timeout(60):
        while topic in {one["topic"] for one in await admin.describe_topics()}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def visible(
    kafka: str, topic: str, isolation: str = "read_committed", partition: int = 0
) -> list[Any]:
    """All records of a partition that a reader sees, with all that was committed before."""
    await decided(kafka)
    at = TopicPartition(topic, partition)
    reader = AIOKafkaConsumer(
        bootstrap_servers=kafka, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await reader.start()
    try:
        reader.assign([at])
        reader.seek(at, 0)
        end = (await reader.end_offsets([at]))[at]
        found: list[Any] = []
        while await reader.position(at) < end:
            found += (await reader.getmany(timeout_ms=100)).get(at, [])
        return found
    finally:
        await reader.stop()


@dataclass
class Parts:
    """Parts of engines of one pipeline, which are closed at the end of the test."""

    settings: KafkaSettings
    name: str
    closing: list[Close]

    @property
    def kafka(self) -> str:
        return self.settings.bootstrap

    def topic(self, which: str) -> str:
        return f"{self.name}.{which}"

    async def journal(self, settings: KafkaSettings | None = None) -> KafkaJournal:
        made = KafkaJournal(KafkaLease(settings or self.settings, self.name), self.topic("events"))
        self.closing.append(made.close)
        await made.open()
        return made

    async def sink(self, lease: KafkaLease | None = None) -> KafkaSink:
        """The sink of a new engine, or of the one that holds the lease, open."""
        made = KafkaSink(lease or KafkaLease(self.settings, self.name))
        self.closing.append(made.close)
        await made.open()
        return made


def release(sequence: int, tick: int = 0) -> Release:
    end = datetime.fromtimestamp(1_000 + tick, UTC).isoformat()
    return sample_release(sequence, "by_day", tick, end=end)


async def half_a_transaction(lease: KafkaLease, topic: str, value: bytes = b"half") -> None:
    """What a kill between send and commit leaves."""
    producer = lease._producer
    await producer.begin_transaction()
    await (await producer.send(topic, value, b"k", 0))
    await _abandon(producer)


@asynccontextmanager
async def writing(kafka: str) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()
