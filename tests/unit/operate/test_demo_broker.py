"""The demo's figures are read while its broker still runs: its journal lies there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stream_dp.operate.demo as module
from stream_dp.core.progress import unseen


async def test_the_broker_outlives_what_is_read_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up: list[bool] = []

    @asynccontextmanager
    async def broker(_: Path) -> AsyncIterator[Any]:
        up.append(True)
        yield SimpleNamespace(bootstrap="127.0.0.1:1")
        up.clear()

    async def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(module, "LocalKafka", broker)
    monkeypatch.setattr(module, "_kafka_can_be_had", lambda told: True)
    monkeypatch.setattr(module, "create_topic", nothing)
    monkeypatch.setattr(module, "_run", nothing)
    monkeypatch.setattr(module, "state_dir", lambda: tmp_path)
    options = module.DemoOptions(False, True, True, False, 0)
    told = module.Told(lambda text: None, unseen, lambda url, on: None, lambda run: nullcontext())
    async with module.run_demo(options, told):
        assert up
    assert not up
