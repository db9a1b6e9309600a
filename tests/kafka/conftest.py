"""Tests of this folder run against one real local Kafka; all carry the marker `kafka`."""

from pathlib import Path

import pytest

from stream_dp.testing.kafka import kafka

__all__ = ["kafka"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.kafka)
