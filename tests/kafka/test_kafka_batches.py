"""A consumer of whole batches on a broker: it gives what a stock one gives, and disturbs none in its process."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from faults.kafka_transactions import decided
from kafka.kafka_worlds import create, writing

from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.source.batches import consumer
from stream_dp.kafka.source.record_batches import Kind, RecordBatch
from stream_dp.kafka.source.unpacker import Unpacker
from stream_dp.testing.kafka import fresh_topic_name


async def everything(reader: Any, topic: str, end: int) -> list[Any]:
    """All that a consumer gives of partition 0 from the first offset on."""
    at = TopicPartition(topic, 0)
    reader.assign([at])
    reader.seek(at, 0)
    found: list[Any] = []
    async with asyncio.timeout(60):
        while await reader.position(at) < end:
            found += (await reader.getmany(at, timeout_ms=100)).get(at, [])
    return found


def told(found: Sequence[RecordBatch]) -> list[tuple[int, bytes, int]]:
    """Places, values and stamps of records that count."""
    unpacker = Unpacker(marks=False)
    records: list[tuple[int, bytes, int]] = []
    for one in found:
        if one.kind is Kind.DATA:
            content = unpacker.unpack(one)
            assert content.refused == []
            records += [
                (offset, bytes(value), one.stamp)
                for offset, value in zip(content.offsets, content.values, strict=True)
            ]
    return records


def inside(reader: Any) -> set[str]:
    """What a consumer reads its connections through."""
    return {type(one._reader).__name__ for one in reader._client._conns.values()}


async def written(kafka: str, topic: str) -> int:
    """Batches in every packing, and transactions that were committed and aborted; return the end."""
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        async with AIOKafkaProducer(bootstrap_servers=kafka, compression_type=codec) as producer:
            sent = [await producer.send(topic, b"%d" % n * 9, b"key") for n in range(50)]
            await asyncio.gather(*sent)
    async with AIOKafkaProducer(
        bootstrap_servers=kafka, transactional_id=fresh_topic_name("writer")
    ) as producer:
        for number in range(6):
            await producer.begin_transaction()
            for _ in range(3):
                await producer.send_and_wait(topic, b"of transaction %d" % number)
            await (producer.commit_transaction() if number % 2 else producer.abort_transaction())
    await decided(kafka)
    async with writing(kafka) as producer:
        last = await producer.send_and_wait(topic, b"last")
    return int(last.offset) + 1


@pytest.mark.parametrize("cell", [None, lambda stamp: range(stamp, stamp + 1)])
async def test_it_gives_what_a_stock_consumer_gives(kafka: str, cell: Any) -> None:
    """Both at once, in one process; the stock one by records, behind ours that has already taken hold."""
    topic = fresh_topic_name("batches")
    await create(kafka, topic, message_timestamp_type="LogAppendTime")
    end = await written(kafka, topic)
    settings = KafkaSettings(kafka)
    ours = consumer(settings, wait=True, fetch_wait_ms=50, cell=cell)
    undecided = consumer(settings, wait=False, fetch_wait_ms=50)
    stock = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level="read_committed")
    readers = (ours, undecided, stock)
    for reader in readers:
        await reader.start()
    try:
        mine, all_of_it, theirs = await asyncio.gather(
            *(everything(reader, topic, end) for reader in readers)
        )
        assert inside(ours) == inside(undecided) == {"Frames"}
        assert inside(stock) == {"StreamReader"}
    finally:
        for reader in readers:
            await reader.stop()
    assert {type(one).__name__ for one in theirs} == {"ConsumerRecord"}
    assert told(mine) == [(one.offset, one.value, one.timestamp) for one in theirs]
    assert len(told(mine)) == 5 * 50 + 3 * 3 + 1
    assert len(told(all_of_it)) == 5 * 50 + 6 * 3 + 1
    ends = [one.kind for one in all_of_it if one.kind is not Kind.DATA]
    assert ends == [Kind.ABORT, Kind.COMMIT] * 3
    assert all(one.appended for one in all_of_it)
