"""How far the brokers' append clocks are from this machine's: one empty record in each partition of a topic of its own.

Rules: this is the one thing that the doctor writes, and only where it is asked to. The topic is `NAME.private.doctor`;
it stamps on arrival and forgets within an hour. A stamp lies between the moments of sending and of the answer.
"""

import time
from typing import Any, NamedTuple

from stream_dp.adapters.kafka_client import (
    KafkaSettings,
    connect,
    disconnect,
    library,
    speaking,
)
from stream_dp.adapters.kafka_topics import STAMPED, administering, existing

_MOST_PARTITIONS = 16
_FORGETS = {"cleanup.policy": "delete", "retention.ms": "3600000", **STAMPED}


class Difference(NamedTuple):
    """The brokers' clock minus this machine's lies between `least` and `most`, in milliseconds."""

    least: int
    most: int


async def append_differences(settings: KafkaSettings, pipeline: str) -> list[Difference]:
    """The difference of each broker that leads a partition of the doctor's topic; makes that topic if it is missing.

    Raises:
        WorldError: no answer, or access denied.
    """
    topic = f"{pipeline}.private.doctor"
    async with administering(settings, f"topic {topic!r}") as admin:
        if await existing(admin, topic) is None:
            brokers = len((await admin.describe_cluster())["brokers"])
            count = min(brokers, _MOST_PARTITIONS)
            new = library(".admin").NewTopic(topic, count, 1, topic_configs=_FORGETS)
            answer = await admin.create_topics([new])
            for _, code, *_ in answer.topic_errors:
                if code:
                    raise library(".errors").for_code(code)
    with speaking(settings, f"topic {topic!r}"):
        producer = library().AIOKafkaProducer(**settings.client())
        await connect(settings, producer)
        try:
            partitions = sorted(await producer.partitions_for(topic))
            return [await _difference(producer, topic, one) for one in partitions]
        finally:
            await disconnect(producer)


async def _difference(producer: Any, topic: str, partition: int) -> Difference:
    """The second of two records tells: the first may have waited for a connection."""
    for _ in range(2):
        before = time.time_ns() // 1_000_000
        told = await producer.send_and_wait(topic, b"", partition=partition)
        after = -(-time.time_ns() // 1_000_000)
    return Difference(told.timestamp - after, told.timestamp - before)
