"""Waiting for the ends of transactions: what was committed can be read then; what was left open is not waited for."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from faults.kafka_evidence import consumer
from faults.kafka_transactions import decided
from kafka.kafka_worlds import create

from stream_dp.testing.kafka import fresh_topic_name

PARTITIONS = 200
"""So many that their markers take a while: more than half of the rounds fail here without the wait."""
ROUNDS = 5


async def test_an_answered_commit_can_be_read_and_an_open_transaction_is_not_waited_for(
    kafka: str,
) -> None:
    topic, other = fresh_topic_name("decided"), fresh_topic_name("open")
    await create(kafka, topic, PARTITIONS)
    await create(kafka, other)
    every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with (
        AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as producer,
        AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=other) as idle,
        AIOKafkaConsumer(bootstrap_servers=kafka) as raw,
        consumer(kafka, "read_committed") as stable,
    ):
        await idle.begin_transaction()
        await idle.send_and_wait(other, b"open")
        for _ in range(ROUNDS):
            await producer.begin_transaction()
            sent = [await producer.send(topic, b"x", partition=at.partition) for at in every]
            await asyncio.gather(*sent)
            await producer.commit_transaction()
            await decided(kafka)
            assert await stable.end_offsets(every) == await raw.end_offsets(every)
        await idle.abort_transaction()
