"""A topic of ours in a cluster whose brokers do not all know it yet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.errors import WorldError
from stream_dp.kafka.client import topics as kafka_topics
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.topics import UNCOMPACTED, ensure

UNKNOWN, DENIED, FINE = 3, 29, 0


class Cluster:
    """Has the topic; of its settings it gives these answers, one after the other."""

    def __init__(self, *codes: int) -> None:
        self.codes = [*codes]

    async def describe_topics(self) -> list[dict[str, Any]]:
        return [
            {"topic": "t", "partitions": [{"partition": 0, "leader": 1, "replicas": [1, 2, 3]}]}
        ]

    async def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"host": name} for name in "abc"]}

    async def describe_configs(self, _: object) -> list[Any]:
        entries = [("cleanup.policy", "delete"), ("min.insync.replicas", "2")]
        return [SimpleNamespace(resources=[(self.codes.pop(0), "", 2, "t", entries)])]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()

    @asynccontextmanager
    async def administering(*_: object) -> AsyncIterator[Cluster]:
        yield made

    monkeypatch.setattr(kafka_topics, "administering", administering)
    return made


async def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(cluster: Cluster) -> None:
    cluster.codes = [UNKNOWN, UNKNOWN, FINE]
    assert await ensure(KafkaSettings("kafka:9092"), "t", UNCOMPACTED) == ""
    assert cluster.codes == []


async def test_one_that_denies_is_not(cluster: Cluster) -> None:
    cluster.codes = [DENIED, FINE]
    with pytest.raises(WorldError, match="grant this user the rights"):
        await ensure(KafkaSettings("kafka:9092"), "t", UNCOMPACTED)
    assert cluster.codes == [FINE]
