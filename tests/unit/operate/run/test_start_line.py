"""Where a run says that it starts: from public things alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stream_dp.operate.run.run_pipeline import start_line
from stream_dp.operate.run.running import Run
from stream_dp.records.endpoints import (
    FileSourceSpec,
    KafkaSourceSpec,
    ReplayClock,
    WallClock,
)
from stream_dp.server.view import ReleaseLog

TOPIC = KafkaSourceSpec(topic="events", bootstrap="127.0.0.1:9092")
FILE = FileSourceSpec(path=Path("folder/clicks.csv"))
REPLAY = ReplayClock(field="time", start=0, step=3_600_000, horizon=6)


def run(clock: Any, ticks: int = 0, source: Any = TOPIC) -> Run:
    spec = SimpleNamespace(name="clicks", source=source, clock=clock)
    built = SimpleNamespace(spec=spec)
    return cast("Run", SimpleNamespace(built=built, ticks=ticks, log=ReleaseLog()))


@pytest.mark.parametrize(
    ("started", "origin", "says"),
    [
        (run(WallClock(step=1000)), 7000,
         "a new ledger; counts what comes into topic events from 1970-01-01T00:00:07Z on, and nothing older"),
        (run(REPLAY, source=FILE), 0,
         "a new ledger; counts what clicks.csv holds from 1970-01-01T00:00:00Z to 1970-01-01T06:00:00Z"),
        (run(WallClock(step=1000, start=5000), 3), None,
         "goes on with the tick that begins at 1970-01-01T00:00:08Z, and catches up on topic events from there"),
        (run(REPLAY, 2), None,
         "goes on with the tick that begins at 1970-01-01T02:00:00Z, and catches up on topic events from there"),
        (run(WallClock(step=1000)), None,
         "goes on with its first tick, and catches up on topic events from there"),
        (run(REPLAY, 6), None, "all its ticks are public already"),
    ],
)  # fmt: skip
def test_the_line(started: Run, origin: int | None, says: str) -> None:
    assert start_line(started, origin) == f"clicks: {says}"
