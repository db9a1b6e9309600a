"""`stream-dp flink`: what it prints, and what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.integrations.test_flink_parts import FILE as PIPELINE

Say = Callable[..., Any]


def test_sql_hosts_each_lane_and_counts_nothing(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "it's.yaml"
    path.write_text(PIPELINE)
    said = say("flink", str(path), "--key-file", "/keys/worker.key")
    assert (said.code, said.err) == (0, "")
    quoted = str(path).replace("'", "''")
    assert f"stream_dp_lanes(lane, 3, '{quoted}', '/keys/worker.key')" in said.out
    assert "'fields.lane.min' = '0', 'fields.lane.max' = '2'" in said.out
    assert "COUNT" not in said.out
    assert "CAST(NULL AS STRING))" in say("flink", str(path)).out


@pytest.mark.parametrize("workers", ["", ", processes: 2"])
def test_what_flink_cannot_host_is_refused_with_its_line(
    say: Say, tmp_path: Path, workers: str
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.replace(", workers: {lanes: 3}", workers))
    said = say("flink", str(path))
    assert (said.code, said.out) == (2, "")
    assert f"{path}:4: source: Flink hosts the lanes" in said.err
