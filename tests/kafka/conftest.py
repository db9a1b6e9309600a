"""Tests of this folder run against one real local Kafka; all carry the marker `kafka`.

Rules: the brokers are compiled for a quick start, not for a long run, unless the environment says otherwise.
"""

import gc
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.kafka_worlds import Close, Parts
from kafka.secured_broker import Secured, secured_session

from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.reader import PartitionLog
from stream_dp.testing.kafka import fresh_topic_name, kafka

__all__ = ["kafka"]

collect_ignore = ["faust_app.py"]  # a program, which is told what to do where it starts

_HERE = Path(__file__).parent
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture
def settings(kafka: str) -> KafkaSettings:
    return KafkaSettings(kafka)


@pytest.fixture
def parts(settings: KafkaSettings, name: str, closing: list[Close]) -> Parts:
    return Parts(settings, name, closing)


@pytest.fixture
def impatient(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """What hangs is waited for one second only; a broker that is slow, as long as ever."""
    ends = PartitionLog.ends

    async def hastily(log: PartitionLog) -> tuple[int, int]:
        log._settings = replace(log._settings, patience_s=1.0)
        return await ends(log)

    monkeypatch.setattr(PartitionLog, "ends", hastily)
    return parts


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker that asks for a login and for rights, for all tests of a session."""
    yield from secured_session(tmp_path_factory.mktemp("secured"))


@pytest.fixture
def name() -> str:
    return fresh_topic_name("pipeline")


@pytest.fixture
async def closing(caplog: pytest.LogCaptureFixture) -> AsyncIterator[list[Close]]:
    """Closed twice at the end; nothing may be left that the event loop complains about."""
    calls: list[Close] = []
    yield calls
    for close in reversed(calls):
        await close()
        await close()
    calls.clear()
    gc.collect()
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []
