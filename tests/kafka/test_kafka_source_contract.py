"""Kafka as a source keeps the port's contract, with append stamps and with the marks of a replay."""

from aiokafka import AIOKafkaProducer
from kafka.kafka_worlds import tick_marks

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.adapters.kafka_source import KafkaSource, ReplayTicks, StampTicks
from stream_dp.adapters.system_clock import SystemClock
from stream_dp.adapters.tick_marks import TICK_HEADER
from stream_dp.broker import create_topic
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
    kafka: str, topic: str, ticks: ReplayTicks | StampTicks, origin: int = 0
) -> None:
    """Every check of the suite, on the topic as it is."""

    def source(kind: type[KafkaSource]) -> KafkaSource:
        return kind(KafkaSettings(kafka), topic, SystemClock(), ticks)

    case = SourceCase(
        make=lambda: source(KafkaSource),
        regrouped=lambda: source(OneByOne),
        origin=origin,
        last=LAST,
    )
    for check in SOURCE_CHECKS:
        await check(case)


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
    await check_all(kafka, topic, StampTicks(STEP, SETTLE), origin)


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
    await check_all(kafka, topic, ReplayTicks(signed))
