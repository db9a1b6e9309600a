"""Kafka as a source keeps the port's contract, with append stamps and with the marks of a replay.

Also with transactions that lie across each other and across the ends of ticks, where there is no room to hold them, and
where the client library's inside is not what whole batches are read through.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from faults.kafka_transactions import decided
from kafka.kafka_worlds import CLOCKS, tick_marks

from stream_dp.broker import create_topic
from stream_dp.files.system_clock import SystemClock
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.tick_marks import TICK_HEADER
from stream_dp.kafka.source import batches as kafka_batches
from stream_dp.kafka.source import source as kafka_source
from stream_dp.kafka.source import ticks as kafka_ticks
from stream_dp.kafka.source.source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.testing.kafka import fresh_topic_name
from stream_dp.testing.source_checks import SOURCE_CHECKS, SourceCase

STEP, SETTLE, LAST = 100, 50, 3
STAMPED = {"message.timestamp.type": "LogAppendTime"}


class OneByOne(KafkaSource):
    """Takes one record batch at a time from its client, and gives them one by one."""

    async def open(self, origin: int) -> tuple[int, ...]:
        """Open, and ask the client for single records from then on."""
        partitions = await super().open(origin)
        fetch = self._reader.getmany

        async def single(*, timeout_ms: int) -> object:
            return await fetch(timeout_ms=timeout_ms, max_records=1)

        self._reader.getmany = single
        return partitions


async def check_all(
    kafka: str, topic: str, ticks: ReplayTicks | StampTicks, origin: int = 0, *, late: bool = False
) -> None:
    """Every check of the suite, on the topic as it is."""

    def source(kind: type[KafkaSource]) -> KafkaSource:
        return kind(KafkaSettings(kafka), topic, SystemClock(), ticks)

    case = SourceCase(
        make=lambda: source(KafkaSource),
        regrouped=lambda: source(OneByOne),
        origin=origin,
        last=LAST,
        late=late,
    )
    for check in SOURCE_CHECKS:
        await check(case)


@pytest.fixture(params=["whole batches", "no room", "plain"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How records come: in whole batches, of transactions that are fetched again, or as the client unpacks them."""
    if request.param == "plain":
        for where in (kafka_batches, kafka_source):
            monkeypatch.setattr(where, "fitting", lambda: False)
    elif request.param == "no room":
        monkeypatch.setattr(kafka_source, "ROOM_BYTES", 300)
        monkeypatch.setattr(kafka_ticks, "MOST", 2)
    return str(request.param)


async def test_append_stamps(kafka: str) -> None:
    """One partition is busy through all ticks; one is silent after its first record, one from the first."""
    topic = fresh_topic_name("events")
    await create_topic(kafka, topic, partitions=3, config=STAMPED)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        early = await producer.send_and_wait(topic, b"before the origin", partition=0)
        origin = early.timestamp + 1
        await producer.send_and_wait(topic, b"a single record", partition=1)
        stamp, sent = origin, 0
        while stamp <= origin + (LAST + 1) * STEP + SETTLE:
            value = b"record %d" % sent
            stamp = (await producer.send_and_wait(topic, value, partition=0)).timestamp
            sent += 1
    await check_all(kafka, topic, StampTicks(STEP, SETTLE, CLOCKS), origin)


async def test_marks_of_a_replay(kafka: str) -> None:
    """One partition holds records in every tick, one only marks; a transaction that was aborted leaves no trace."""
    topic = fresh_topic_name("replay")
    signed = tick_marks(topic)
    await create_topic(kafka, topic, partitions=2)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, transactional_id=fresh_topic_name("writer")
    ) as producer:
        for tick in range(LAST + 1):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"never committed", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                for number in range(tick + 1):
                    value = b"record %d.%d" % (tick, number)
                    await producer.send_and_wait(topic, value, partition=0)
                for partition in (0, 1):
                    mark = [(TICK_HEADER, signed.sign(partition, tick))]
                    await producer.send_and_wait(topic, b"", partition=partition, headers=mark)
    await decided(kafka)
    await check_all(kafka, topic, ReplayTicks(signed))


@asynccontextmanager
async def writers(kafka: str, number: int) -> AsyncIterator[list[AIOKafkaProducer]]:
    """So many producers of transactions."""
    async with AsyncExitStack() as stack:
        made = [
            AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=fresh_topic_name("writer"))
            for _ in range(number)
        ]
        yield [await stack.enter_async_context(one) for one in made]


async def test_append_stamps_with_transactions(kafka: str, way: str) -> None:
    """One is open across all ticks and committed at the end, one is aborted; short ones lie between their records."""
    topic = fresh_topic_name("events")
    await create_topic(kafka, topic, partitions=2, config=STAMPED)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, writers(kafka, 3) as opened:
        slow, never, quick = opened
        early = await producer.send_and_wait(topic, b"before the origin", partition=0)
        origin = early.timestamp + 1
        stamp, sent = origin, 0
        for each in (slow, never):
            await each.begin_transaction()
        while stamp <= origin + (LAST + 1) * STEP + SETTLE:
            value = b"number %d" % sent
            await slow.send_and_wait(topic, b"slow " + value, partition=0)
            await never.send_and_wait(topic, b"never " + value, partition=sent % 2)
            await quick.begin_transaction()
            await quick.send_and_wait(topic, b"quick " + value, partition=sent % 2)
            await (quick.abort_transaction() if sent % 3 == 1 else quick.commit_transaction())
            stamp = (await producer.send_and_wait(topic, b"free " + value, partition=0)).timestamp
            sent += 1
            if sent == 2:
                await slow.commit_transaction()
                await slow.begin_transaction()
        await slow.commit_transaction()
        await never.abort_transaction()
    await decided(kafka)
    await check_all(kafka, topic, StampTicks(STEP, SETTLE, CLOCKS), origin, late=way != "plain")


async def test_marks_of_a_replay_with_transactions(kafka: str) -> None:
    """Marks lie among records of open transactions, and within transactions; one that is aborted is none."""
    topic = fresh_topic_name("replay")
    signed = tick_marks(topic)
    await create_topic(kafka, topic, partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, writers(kafka, 2) as opened:
        slow, never = opened
        for each in opened:
            await each.begin_transaction()
        for tick in range(LAST + 1):
            mark = [(TICK_HEADER, signed.sign(0, tick))]
            ahead = [(TICK_HEADER, signed.sign(0, LAST + 5))]
            for number in range(3):
                await slow.send_and_wait(topic, b"slow record %d.%d" % (tick, number))
                await producer.send_and_wait(topic, b"free record %d.%d" % (tick, number))
            await never.send_and_wait(topic, b"never counted")
            await never.send_and_wait(topic, b"", headers=ahead)
            if tick == 1:
                await slow.send_and_wait(topic, b"", headers=mark)
                await slow.send_and_wait(topic, b"behind the mark")
                await slow.commit_transaction()
                await slow.begin_transaction()
            else:
                await producer.send_and_wait(topic, b"", headers=mark)
        await slow.commit_transaction()
        await never.abort_transaction()
    await decided(kafka)
    await check_all(kafka, topic, ReplayTicks(signed))
