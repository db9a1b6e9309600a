"""Kafka as a source keeps the port's contract, with append stamps and with the marks of a replay: with transactions
across each other and the ends of ticks, without room to hold them, and with the client library's own reader.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from faults.kafka_transactions import decided
from kafka.kafka_worlds import CLOCKS, STAMPED, tick_marks

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


@asynccontextmanager
async def writers(kafka: str, number: int) -> AsyncIterator[list[AIOKafkaProducer]]:
    async with AsyncExitStack() as stack:
        made = [
            AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=fresh_topic_name("writer"))
            for _ in range(number)
        ]
        yield [await stack.enter_async_context(one) for one in made]


async def test_append_stamps(kafka: str, way: str) -> None:
    """One partition is busy, with transactions: one lies across all ticks, one is aborted, short ones lie between.
    One partition is silent after its first record, one from the first.
    """
    topic = fresh_topic_name("events")
    await create_topic(kafka, topic, partitions=4, config=STAMPED)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, writers(kafka, 3) as opened:
        slow, never, quick = opened
        early = await producer.send_and_wait(topic, b"before the origin", partition=0)
        origin = early.timestamp + 1
        await producer.send_and_wait(topic, b"a single record", partition=2)
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


async def test_marks_of_a_replay(kafka: str) -> None:
    """Marks lie among records of open transactions, and within transactions; one that is aborted is none. One
    partition holds marks alone.
    """
    topic = fresh_topic_name("replay")
    signed = tick_marks(topic)
    await create_topic(kafka, topic, partitions=2)
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer, writers(kafka, 2) as opened:
        slow, never = opened
        for each in opened:
            await each.begin_transaction()
        for tick in range(LAST + 1):
            mark, other = ([(TICK_HEADER, signed.sign(at, tick))] for at in (0, 1))
            ahead = [(TICK_HEADER, signed.sign(0, LAST + 5))]
            for number in range(3):
                await slow.send_and_wait(topic, b"slow %d.%d" % (tick, number), partition=0)
                await producer.send_and_wait(topic, b"free %d.%d" % (tick, number), partition=0)
            await never.send_and_wait(topic, b"never counted", partition=0)
            await never.send_and_wait(topic, b"", partition=0, headers=ahead)
            await producer.send_and_wait(topic, b"", partition=1, headers=other)
            if tick == 1:
                await slow.send_and_wait(topic, b"", partition=0, headers=mark)
                await slow.send_and_wait(topic, b"behind the mark", partition=0)
                await slow.commit_transaction()
                await slow.begin_transaction()
            else:
                await producer.send_and_wait(topic, b"", partition=0, headers=mark)
        await slow.commit_transaction()
        await never.abort_transaction()
    await decided(kafka)
    await check_all(kafka, topic, ReplayTicks(signed))
