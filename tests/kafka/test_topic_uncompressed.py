"""Batches that only their sender can unpack: a topic of `stream-dp topic` has its brokers store them uncompressed."""

import gzip
import struct
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from kafka.kafka_worlds import create

from stream_dp.adapters.kafka_client import KafkaSettings
from stream_dp.app.topic_made import make_topic
from stream_dp.testing.kafka import fresh_topic_name

_HEADER, _CRC_FROM = 61, 21
_GZIP = 1


def gzipped_with_garbage(values: list[bytes]) -> bytes:
    """A record batch (v2) whose gzip stream is followed by eight bytes that are none; brokers take it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, value in enumerate(values):
        assert builder.append(offset, 1, None, value, []) is not None
    plain = bytes(builder.build())
    body = gzip.compress(plain[_HEADER:]) + b"\xff" * 8
    after_crc = struct.pack(">h", _GZIP) + plain[_CRC_FROM + 2 : _HEADER] + body
    length = struct.pack(">i", len(after_crc) + 9)
    crc = struct.pack(">I", calc_crc32c(after_crc))
    return plain[:8] + length + plain[12:17] + crc + after_crc


async def send(kafka: str, topic: str, batch: bytes) -> None:
    """Hand a record batch to the broker as it is."""
    client = AIOKafkaClient(bootstrap_servers=kafka)
    await client.bootstrap()
    try:
        await client._wait_on_metadata(topic)
        leader = client.cluster.leader_for_partition(TopicPartition(topic, 0))
        request = ProduceRequest(None, -1, 5000, [(topic, [(0, batch)])])
        answer = await client.send(leader, request)
        assert answer.topics[0][1][0][1] == 0, answer
    finally:
        await client.close()


async def values_of(kafka: str, topic: str) -> list[Any]:
    """What the client library reads of the topic."""
    at = TopicPartition(topic, 0)
    reader = AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
    await reader.start()
    try:
        reader.assign([at])
        reader.seek(at, 0)
        found = await reader.getmany(timeout_ms=10_000)
        return [record.value for record in found.get(at, ())]
    finally:
        await reader.stop()


async def test_a_topic_of_ours_holds_batches_that_can_be_read(kafka: str) -> None:
    topic = fresh_topic_name("plain")
    assert await make_topic(KafkaSettings(kafka), topic, 1, stamped=True)
    await send(kafka, topic, gzipped_with_garbage([b"one", b"two"]))
    assert await values_of(kafka, topic) == [b"one", b"two"]


async def test_elsewhere_the_same_batch_cannot_be_read(kafka: str) -> None:
    topic = await create(kafka, fresh_topic_name("packed"))
    await send(kafka, topic, gzipped_with_garbage([b"one", b"two"]))
    with pytest.raises(gzip.BadGzipFile):
        await values_of(kafka, topic)
