"""What a series can go by beside a field: bins of a number, several at once, the hour or weekday of the tick."""

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from stream_dp.engine.ports import Batch
from stream_dp.errors import UsageError
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.operate.fitting import used_fields
from stream_dp.operate.observe.public_view import pipeline_json
from stream_dp.pipeline import spec
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.feature_counts import tick_key
from stream_dp.pipeline.fingerprints import fingerprint, fingerprints
from stream_dp.pipeline.layout import RowLayout
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.router import OpenRouter, Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.records.endpoints import WallClock
from stream_dp.records.groupings import (
    Edges,
    TickKey,
    decimal_text,
    keys_of,
    most_ones,
    tick_problems,
)

FILE = """\
version: 1
name: trips
source: {{kind: file, path: trips.jsonl}}
schema:
  time: {{type: time}}
  airline: {{type: category, domain: [AA, "B,A", 'C\\D']}}
  tags: {{type: list, domain: [p, q], most: 2}}
  delay: {{type: number, nullable: true}}
  stops: {{type: integer}}
  note: {{type: text}}
  late: {{type: boolean, nullable: true}}
privacy: {{epsilon: 20}}
clock: {{kind: replay, field: time, start: "2026-03-27T00:00:00Z", step: {step}, horizon: 100}}
series:
  - {{name: one, statistic: {statistic}, by: {by}, epsilon: 1}}
"""


def file(folder: Path, by: str, statistic: str = "histogram", step: str = "1h") -> Path:
    path = folder / "trips.yaml"
    path.write_text(FILE.format(by=by, statistic=statistic, step=step))
    return path


def spec_of(folder: Path, by: str, **more: str) -> PipelineSpec:
    return load(file(folder, by, **more))


@pytest.mark.parametrize(
    ("by", "text", "keys"),
    [
        ("{field: delay, edges: [0, 15, 60]}", "delay in bins",
         ("below 0", "0 to 15", "15 to 60", "60 and more", "other")),
        ("{field: delay, edges: [-0.50, 1/3, 2e3]}", "delay in bins",
         ("below -0.5", "-0.5 to 1/3", "1/3 to 2000", "2000 and more", "other")),
        ("[airline, {field: stops, edges: [1]}]", "airline and stops in bins",
         tuple(f"{a}, {b}" for a in ("AA", r"B\,A", r"C\\D", "other") for b in ("below 1", "1 and more", "other"))),
        ("late", "late", ("false", "true", "other")),
        ("{tick: weekday}", "weekday",
         ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")),
        ("{tick: hour, zone: Europe/Zurich}", "hour in Europe/Zurich", tuple(f"{h:02}" for h in range(24))),
    ],
)  # fmt: skip
def test_entries_have_names_that_people_read(
    tmp_path: Path, by: str, text: str, keys: tuple[str, ...]
) -> None:
    spec = spec_of(tmp_path, by)
    assert RowLayout.of(spec).keys("one") == keys
    assert len(set(keys)) == len(keys)
    (told,) = told_of(spec)
    assert (told["by"], told["domain"]) == (text, list(keys))
    assert told["about"] == f"histogram by {text} so far"
    (planned,) = plan_json(build(spec))["series"]
    assert planned["name"] == "one"


def told_of(spec: PipelineSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline_json(build(spec), spec.series)["series"]
    return found


@pytest.mark.parametrize(("key", "length"), [("hour", "an hour"), ("weekday", "a day")])
def test_a_tick_lies_in_one_hour_and_on_one_day(tmp_path: Path, key: str, length: str) -> None:
    steps = ("1h", "61m") if key == "hour" else ("1d", "25h")
    spec_of(tmp_path, f"{{tick: {key}}}", step=steps[0])
    with pytest.raises(UsageError) as caught:
        spec_of(tmp_path, f"[airline, {{tick: {key}}}]", step=steps[1])
    said = f"series[0].by: a tick of this clock is longer than {length}, so it has no one {key}"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "statistic", ["histogram, method: tree", "maximum", "alerts, threshold: 9"]
)
def test_a_series_pays_for_the_combinations_of_one_event(tmp_path: Path, statistic: str) -> None:
    spec = spec_of(tmp_path, "[tags, airline, {tick: hour}]", statistic=statistic)
    built = build(spec)
    assert len(built.layout.keys("one")) == 3 * 4 * 24
    assert built.chosen[0].mechanism.rows.ones == most_ones(spec.fields, ("tags", "airline")) == 2
    assert used_fields(spec) == {"time", "tags", "airline"}


def test_a_watch_goes_by_bins_too(tmp_path: Path) -> None:
    watch = "monitor, watch: [{name: w, by: {field: stops, edges: [3]}, above: 5}]"
    path = file(tmp_path, "airline", statistic=watch)
    path.write_text(path.read_text().replace(", by: airline", ""))
    spec = load(path)
    assert RowLayout.of(spec).keys("one")[:4] == ("w/below 3", "w/3 and more", "w/other", "")
    assert spec.series[0].parameters == {"w": "above 5 for each of stops in bins"}


def test_equal_groupings_share_their_columns_and_a_router_reads_them(tmp_path: Path) -> None:
    path = file(tmp_path, "[airline, {field: delay, edges: [0]}, {tick: hour, zone: Asia/Kolkata}]")
    path.write_text(
        path.read_text() + path.read_text().splitlines()[-1].replace("name: one", "name: two")
    )
    spec = load(path)
    router = Router(spec, spec.clock.start or 0)
    assert router.width == 4 * 3 * 24
    at, late = "2026-03-27T00:10:00Z", "2026-03-27T20:00:00Z"
    made = [
        {"time": at, "airline": "B,A", "delay": 0},
        {"time": at, "airline": "ZZ", "delay": None},
        {"time": late, "airline": "AA", "delay": -1e-300},
    ]
    rows = router.route(Batch(0, [json.dumps(one).encode() for one in made], range(3), 3, None))
    keys = router.layout.keys("two")
    counted = {tick: [keys[i] for i in row.nonzero()[0]] for tick, row in rows.rows.items()}
    assert counted == {0: [r"B\,A, 0 and more, 05", "other, other, 05"], 20: ["AA, below 0, 01"]}


def test_clocks_that_change_are_the_zones_own() -> None:
    zone = ZoneInfo("Europe/Zurich")
    hours, days = TickKey(tick="hour", zone="Europe/Zurich"), TickKey(tick="weekday")
    moments = {
        datetime(2026, 3, 29, 0, 59, tzinfo=UTC): 1,
        datetime(2026, 3, 29, 1, 0, tzinfo=UTC): 3,
        datetime(2026, 10, 25, 0, 0, tzinfo=UTC): 2,
        datetime(2026, 10, 25, 1, 0, tzinfo=UTC): 2,
        datetime(9999, 12, 31, 23, 0, tzinfo=UTC): 23,  # tomorrow there, in a year that has no name
    }
    for moment, hour in moments.items():
        assert tick_key(hours, zone, round(moment.timestamp()) * 1000) == hour
    assert (
        tick_key(days, zone, round(datetime(2026, 3, 29, 22, tzinfo=UTC).timestamp()) * 1000) == 0
    )
    assert tick_key(days, UTC, round(datetime(2026, 3, 29, 22, tzinfo=UTC).timestamp()) * 1000) == 6
    assert tick_key(days, UTC, -1) == 2


@pytest.mark.parametrize(
    "by",
    [{"field": "delay", "edges": ["1/2", "3"]}, ["airline", {"tick": "hour"}],
     [{"field": "stops", "edges": ["1"]}, "tags"]],
)  # fmt: skip
def test_a_definition_means_what_it_says(tmp_path: Path, by: Any) -> None:
    spec = spec_of(tmp_path, "airline")
    asked = {"name": "new", "statistic": "histogram", "by": by, "method": "tree", "epsilon": "1"}
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    planned = planner.propose(json.dumps(asked).encode(), 1)
    assert json.loads(planned.definition)["by"] == by
    assert load_series(planned.definition, spec) == planned.series


@pytest.mark.parametrize(
    ("by", "refused"),
    [("{tick: hour}", True), ("[airline, {tick: weekday, zone: Europe/Zurich}]", False)],
)
def test_a_live_series_goes_by_a_zone_only_where_the_file_does(
    tmp_path: Path, by: str, refused: bool
) -> None:
    asked = b'{"name":"new","statistic":"alerts","threshold":3,"epsilon":1,"by":{"tick":"hour","zone":"Europe/Zurich"}}'
    why = "only where one of the file's series names it too"
    with pytest.raises(UsageError, match=why) if refused else nullcontext():
        load_series(asked, spec_of(tmp_path, by))


def test_a_fingerprint_covers_edges_order_and_what_a_zone_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(by: str) -> str:
        return fingerprint(spec_of(tmp_path, by))

    assert of("{field: delay, edges: [0.5]}") == of("{edges: [1/2], field: delay}")
    different = [
        "{field: delay, edges: [0.5]}", "{field: delay, edges: [0.6]}", "[airline, tags]", "[tags, airline]",
        "{tick: hour}", "{tick: weekday}", "{tick: hour, zone: UTC}", "{tick: hour, zone: Europe/Zurich}",
    ]  # fmt: skip
    assert len({of(by) for by in different}) == len(different)
    zoned = "{tick: hour, zone: Europe/Zurich}"
    assert "zones" in fingerprints(spec_of(tmp_path, zoned)).parts
    assert "zones" not in fingerprints(spec_of(tmp_path, "{tick: hour}")).parts
    before = of(zoned)
    monkeypatch.setattr(spec, "offsets", lambda zone, grid: [(0, 0)])
    assert of(zoned) != before


def test_the_page_shows_a_pipeline_that_builds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "histograms.md").read_text()
    path = tmp_path / "flights.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    keys = {name: len(build(load(path)).layout.keys(name)) for name in ("routes", "rhythm", "late")}
    assert keys == {"routes": 16, "rhythm": 168, "late": 12}


def test_decimals_are_written_as_people_write_them() -> None:
    values = ["0", "-7", "0.05", "-12.5", "1/3", "100", "0.0001"]
    assert [decimal_text(Fraction(value)) for value in values] == values
    assert keys_of({}, Edges(field="x", edges=(Fraction(1, 8),)))[0] == "below 0.125"


@pytest.mark.parametrize("by", ["{tick: hour}", "[airline, {tick: weekday}]"])
def test_a_key_of_the_tick_needs_to_know_when_tick_0_begins(tmp_path: Path, by: str) -> None:
    """Without `start` the grid begins at the first start, which a later one does not know before it has recovered."""
    ((_, grouping),) = spec_of(tmp_path, by).series[0].groupings()
    assert grouping is not None
    wall = WallClock.model_validate({"step": "1h"})
    (found,) = tick_problems(("by",), grouping, wall)
    assert found["loc"] == ("by",)
    assert "declare clock.start" in str(found["type"])
    told = WallClock.model_validate({"step": "1h", "start": "2026-01-01T00:00:00Z"})
    assert tick_problems(("by",), grouping, told) == []
