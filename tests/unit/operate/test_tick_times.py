"""When ticks begin: from the declared start, or from what was published, and from nothing else."""

import json
from typing import Any

import pytest
from unit.live.live_series_worlds import PIPELINE

from stream_dp.journal.release import release_of
from stream_dp.operate.published_bodies import TickTimes
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.server.view import ReleaseLog

WALL: dict[str, Any] = PIPELINE | {
    "source": {"kind": "kafka", "topic": "shop", "bootstrap": "127.0.0.1:9"},
    "clock": {"kind": "wall", "step": "500ms", "delay": "2s"},
}


def log_of(tick: int, end: str) -> ReleaseLog:
    log = ReleaseLog()
    release = {"v": 1, "sequence": 0, "series": "orders", "tick": tick, "end": end, "value": 1}
    log.append(release_of(json.dumps(release).encode()))
    return log


def test_a_declared_start_needs_no_release() -> None:
    spec = PipelineSpec.model_validate(PIPELINE)
    assert TickTimes(spec, ReleaseLog())(0) == "2026-01-01T00:00:00Z"
    assert TickTimes(spec, ReleaseLog())(7) == "2026-01-01T07:00:00Z"


def test_a_wall_clock_without_one_is_not_known_before_the_first_release() -> None:
    assert TickTimes(PipelineSpec.model_validate(WALL), ReleaseLog())(0) is None


@pytest.mark.parametrize(
    ("tick", "begins"),
    [
        (0, "2026-01-18T06:03:58Z"),
        (3, "2026-01-18T06:03:59.500Z"),
        (4, "2026-01-18T06:04:00Z"),  # as the release's tick ends
        (9, "2026-01-18T06:04:02.500Z"),
    ],
)
def test_then_a_release_tells_when_its_own_tick_ended(tick: int, begins: str) -> None:
    spec, log = PipelineSpec.model_validate(WALL), log_of(3, "2026-01-18T06:04:00Z")
    assert TickTimes(spec, log)(tick) == begins


def test_it_is_known_from_the_first_release_on() -> None:
    log = ReleaseLog()
    begins = TickTimes(PipelineSpec.model_validate(WALL), log)
    assert begins(0) is None
    log.append(log_of(3, "2026-01-18T06:04:00Z").latest()["orders"])
    assert begins(0) == "2026-01-18T06:03:58Z"
