"""What hosts lanes in Flink, without Flink: beats, and their end."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import FailClosed, UsageError
from stream_dp.integrations.flink import HostedWorker, hosts, lanes_of

FILE = """
version: 1
name: orders
source: {kind: kafka, topic: orders, bootstrap: "localhost:9092", workers: {lanes: 3}}
schema: {key: {type: category, domain: [a, b]}}
privacy: {unit: event, epsilon: 1}
clock: {kind: wall, step: 1s, delay: 2s}
series:
  - {name: total, statistic: count, epsilon: 1}
"""


class FakeWorker:
    """Counts how often it began, and fails if it is told to."""

    began: list[frozenset[int]] = []  # noqa: RUF012 - emptied by each test
    error: Exception | None = None

    def __init__(self, spec: Any, keys: Any, tell: Any, members: Any) -> None:
        self.lanes = members.lanes

    async def run(self) -> None:
        self.began.append(self.lanes)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    async def there(*_: Any) -> None: ...

    monkeypatch.setattr(FakeWorker, "began", [])
    for name, fake in (("Worker", FakeWorker), ("source_there", there)):
        monkeypatch.setattr(hosts, name, fake)
    monkeypatch.setattr(hosts, "worker_keys_for", lambda *_: None)
    (tmp_path / "pipeline.yaml").write_text(FILE)
    return tmp_path / "pipeline.yaml"


def within(seconds: float, seen: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_worker_runs_from_the_first_beat_to_the_last(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "SILENT_S", 0.1)
    host = HostedWorker(pipeline, None, 1, 2)
    assert FakeWorker.began == []
    host.beat()
    within(10, lambda: FakeWorker.began == [{1}])
    within(10, lambda: not host.running)  # it heard no more beats
    host.beat()
    within(10, lambda: FakeWorker.began == [{1}, {1}])
    host.stop()
    assert not host.running


def test_every_lane_has_one_subtask(pipeline: Path) -> None:
    both = [HostedWorker(pipeline, None, index, 2) for index in range(2)]
    for host in both:
        host.beat()
    within(10, lambda: len(FakeWorker.began) == 2)
    for host in both:
        host.stop()
    assert sorted(map(sorted, FakeWorker.began)) == [[0, 2], [1]]
    assert lanes_of(pipeline) == 3
    pipeline.write_text(FILE.replace("workers: {lanes: 3}", "processes: 2"))
    with pytest.raises(UsageError, match="its source is not read by workers"):
        lanes_of(pipeline)


def test_a_beat_raises_what_ended_the_worker(
    pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "error", FailClosed("the topic was made again"))
    host = HostedWorker(pipeline, None, 0, 1)
    host.beat()
    within(10, lambda: not host.running)
    with pytest.raises(FailClosed, match="made again"):
        host.beat()
    host.stop()
