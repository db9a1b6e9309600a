"""A broker that is shut out for a moment, or has just begun, tells of no broker at all, and is asked again.

The library's client would know none until its metadata are five minutes old.
"""

from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from kafka.kafka_worlds import Close, create

from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import TopicEyes
from stream_dp.kafka.log.journal import _committed
from stream_dp.testing.kafka import fresh_topic_name


@pytest.fixture
def shut_out(kafka: str, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Settings for a cluster whose next answer names no broker."""
    update = ClusterMetadata.update_metadata

    def nobody(self: ClusterMetadata, metadata: Any) -> None:
        monkeypatch.setattr(ClusterMetadata, "update_metadata", update)
        metadata.brokers = []
        update(self, metadata)

    monkeypatch.setattr(ClusterMetadata, "update_metadata", nobody)
    return KafkaSettings(kafka, patience_s=20, retry_s=20)


async def test_a_topic_is_seen_all_the_same(
    kafka: str, shut_out: KafkaSettings, closing: list[Close]
) -> None:
    eyes = TopicEyes(shut_out, topic := fresh_topic_name("seen"))
    closing.append(eyes.stop)
    await eyes.start()
    await create(kafka, topic, 2)
    found = await eyes.look()
    assert found is not None
    assert found.partitions == (0, 1)


async def test_a_group_is_asked_for_its_offsets_all_the_same(shut_out: KafkaSettings) -> None:
    assert await _committed(shut_out, fresh_topic_name("group")) == {}
