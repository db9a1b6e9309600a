"""docs/alerts.md says what the code does: its series are planned, its keys are those of the code, its figures true."""

import re
from bisect import bisect
from fractions import Fraction
from pathlib import Path

from stream_dp.core.neighbors import Neighbors
from stream_dp.journal.release import read
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.mechanisms.watches.watch_noise import crossing_chance
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load
from stream_dp.statistics.alerts import AlertsSeries
from stream_dp.statistics.parts.series_spec import SeriesSpec

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "alerts.md").read_text()
BEFORE = """\
version: 1
name: airport
source: {kind: file, path: flights.jsonl}
schema:
  time: {type: time}
  airline: {type: category, domain: [AA, DL]}
  delay: {type: integer, nullable: true}
privacy: {epsilon: 2}
clock: {kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 8760}
"""


def test_the_pages_series_are_planned_and_its_release_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "airport.yaml"
    file.write_text(BEFORE + block)
    by_name = {one.spec.name: one for one in build(load(file)).chosen}
    (release,) = re.findall(r'^ +(\{"v":1.*\})$', PAGE, re.MULTILINE)
    said = read(release.encode())
    assert said.band == by_name[said.series].choice.expected(said.tick)
    assert by_name["waited"].mechanism.window_scale == 800  # type: ignore[attr-defined]


def test_the_table_names_every_key() -> None:
    rows = PAGE.split("| key | |")[1].split("\n\n")[0]
    named = set(
        re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows.splitlines()[2:]))
    )
    assert named == set(AlertsSeries.model_fields) - set(SeriesSpec.model_fields) - {"by"}


def test_the_scales_and_margins_are_those_of_the_page() -> None:
    """At epsilon 1/1000, so that margins are thousands: the least with a chance below 1 in 1,000 key-days of hours."""
    small = Fraction(1, 1_000)
    monitor = Monitor(3, small, Neighbors.ADD_REMOVE, (WatchTerms(9, window=6),))
    assert [monitor.scale, monitor.window_scale, monitor.tick_scale] == [1_000, 2_000, 1_000]
    for scale, told in ((monitor.scale, 9.4), (monitor.window_scale, 18.8)):
        found = bisect(range(0, 30_000, 50), -1e-3, key=lambda m: -crossing_chance(m, scale, 24))
        assert abs(50 * found / 1_000 - told) < 0.1
