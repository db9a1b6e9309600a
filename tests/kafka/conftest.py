"""Tests of this folder run against one real local Kafka; all carry the marker `kafka`.

Rules: the brokers are compiled for a quick start, not for a long run, unless the environment says otherwise.
"""

import os
from pathlib import Path

import pytest

from stream_dp.testing.kafka import kafka

__all__ = ["kafka"]

_HERE = Path(__file__).parent
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.kafka)
