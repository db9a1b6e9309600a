"""Batches that only their sender can unpack: a topic of `stream-dp topic` has its brokers store them uncompressed."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from kafka.raw_batches import GZIP, LZ4, RawBatch, packed, records
from kafka.raw_wire import Wire

from stream_dp.broker.topics import create_topic
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.operate.sending import make_topic
from stream_dp.testing.kafka import fresh_topic_name

VALUES = [b"one", b"two"]
JUNK = b"\xff" * 8


def with_garbage(codec: int) -> bytes:
    """A record batch whose packed records are followed by bytes that belong to nothing."""
    both = records(VALUES)
    return RawBatch(both, codec, body=packed(codec, b"".join(both)) + JUNK).encoded()


async def send(kafka: str, topic: str, batch: bytes) -> None:
    """Hand a record batch to the broker as it is; it takes it."""

    def produce() -> int:
        with Wire(kafka) as wire:
            return wire.produce(topic, 0, batch).error

    assert await asyncio.to_thread(produce) == 0


async def values_of(kafka: str, topic: str) -> list[Any]:
    """What the client library reads of the topic."""
    at = TopicPartition(topic, 0)
    reader = AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
    await reader.start()
    try:
        reader.assign([at])
        reader.seek(at, 0)
        found = await reader.getmany(timeout_ms=30_000)
        return [record.value for record in found.get(at, ())]
    finally:
        await reader.stop()


@pytest.mark.parametrize("codec", [GZIP, LZ4])
async def test_a_topic_of_ours_holds_batches_that_can_be_read(kafka: str, codec: int) -> None:
    topic = fresh_topic_name("plain")
    assert await make_topic(KafkaSettings(kafka), topic, 1, stamped=True)
    await send(kafka, topic, with_garbage(codec))
    assert await values_of(kafka, topic) == VALUES


@pytest.mark.parametrize(("codec", "error"), [(GZIP, "BadGzipFile"), (LZ4, "DecompressionError")])
async def test_elsewhere_the_same_batch_cannot_be_read(kafka: str, codec: int, error: str) -> None:
    topic = fresh_topic_name("packed")
    await create_topic(kafka, topic)
    await send(kafka, topic, with_garbage(codec))
    with pytest.raises(Exception) as caught:
        await values_of(kafka, topic)
    assert type(caught.value).__name__ == error
