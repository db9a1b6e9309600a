"""List fields for people: files with lists in their cells, `check`, `plan`, the page's words, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.commands.plan import _guarantee
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import MovedRows, event
from stream_dp.errors import NotDerivable
from stream_dp.files.records import each_record
from stream_dp.live.planner import LiveSeriesPlanner
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.operate.audit.attack import attack
from stream_dp.operate.budget_view import PlanView
from stream_dp.operate.fitting import Fitting, file_sample, fitting_of
from stream_dp.operate.observe.public_view import pipeline_json, running_series
from stream_dp.operate.run.settings import fields_of
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.yaml import load, load_series
from stream_dp.statistics.alerts import AlertsSeries

BASKETS = """\
version: 1
name: baskets
source: {{kind: file, path: baskets.csv}}
schema:
  time: {{type: time}}
  items: {{type: list, domain: [beer, bread, milk], most: {most}{more}}}
privacy: {{epsilon: 10, neighbors: {neighbors}{moves}}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 4}}
series:
  - {{name: items, statistic: histogram, by: items, method: tree, epsilon: 1}}
  - {{name: with_milk, statistic: count, epsilon: 1, where: [{{field: items, contains: milk}}]}}
  - {{name: largest, statistic: maximum, by: items, epsilon: 1, expected_events: 100}}
  - {{name: busy, statistic: alerts, by: items, threshold: 50, epsilon: 1}}
  - {{name: sparse, statistic: histogram, by: items, method: hss, expected_events: 100, epsilon: 1}}
"""
WITHIN = ", moves: within_tick"
TIME = "2026-01-01T00:30:00Z"


def pipeline(
    folder: Path, *, most: int = 2, neighbors: str = "add_remove", moves: str = "", more: str = ""
) -> Path:
    """A pipeline file over baskets."""
    path = folder / "baskets.yaml"
    path.write_text(BASKETS.format(most=most, neighbors=neighbors, moves=moves, more=more))
    return path


def fitted(folder: Path, file: Path, more: str = ', separator: "|"') -> Fitting:
    """What `check` finds of a file."""
    spec = load(pipeline(folder, more=more))
    return fitting_of(spec, file_sample(spec, file, 100))


def csv(folder: Path, *cells: str) -> Path:
    """A file with these cells of items."""
    path = folder / "baskets.csv"
    path.write_text("time,items\n" + "".join(f"{TIME},{cell}\n" for cell in cells))
    return path


def payloads(folder: Path, path: Path, more: str = ', separator: "|"') -> list[Any]:
    """The items of each record of a file, as JSON has them."""
    spec = load(pipeline(folder, more=more))
    found = each_record(path, fields_of(spec), "time", spec.own_times)
    return [json.loads(record.payload)["items"] for record in found]


def test_a_cell_of_csv_holds_a_list_where_a_separator_is_declared(tmp_path: Path) -> None:
    path = csv(tmp_path, "milk|beer", "milk", "", "ham|", '"a,b|milk"')
    assert payloads(tmp_path, path) == [
        ["milk", "beer"],
        ["milk"],
        [],
        ["ham", ""],
        ["a,b", "milk"],
    ]
    assert payloads(tmp_path, path, "") == ["milk|beer", "milk", None, "ham|", "a,b|milk"]


def test_parquet_has_lists_or_texts_with_a_separator(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for items in ([["milk", "beer"], [], None], ["milk|beer", "", None]):
        path = tmp_path / "baskets.parquet"
        parquet.write_table(pa.table({"time": [TIME] * 3, "items": items}), path)
        assert payloads(tmp_path, path) == [["milk", "beer"], [], None]


def test_check_counts_lists_and_says_what_is_wrong_with_some(tmp_path: Path) -> None:
    found = fitted(tmp_path, csv(tmp_path, "milk|beer", "", "milk|ham", "milk|beer|bread", "Milk"))
    assert [(each.name, each.records) for each in found.reasons] == [
        ("too_many_entries in items", 1)
    ]
    (items,) = (fit for fit in found.fields if fit.name == "items")
    assert (items.type, items.fits, items.wrong, items.other) == ("list", [0, 1, 2, 4], [3], [2, 4])
    assert [each.says for each in found.hints] == [
        "items: lists with more than 2 entries; a larger `most:` takes them, and more noise for all",
        "items: differs from the domain in upper and lower case or in spaces only, so it is `other`",
    ]


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ("milk|beer", "texts, where lists are declared"),
        ({"milk": 1}, "values that are no list"),
        (["milk", 3], "lists that hold something else than texts"),
        (None, "null; declare `nullable: true`"),
    ],
)
def test_check_says_what_is_no_list(tmp_path: Path, items: Any, says: str) -> None:
    path = tmp_path / "baskets.jsonl"
    path.write_text(json.dumps({"time": TIME, "items": items}))
    found = fitted(tmp_path, path)
    assert [each.name for each in found.reasons] == ["wrong_type in items"]
    assert says in found.hints[0].says


def first_line(path: Path) -> str:
    """What `plan` says first."""
    return _guarantee(PlanView(path).shown()).splitlines()[0]


def test_the_first_line_of_a_plan_says_how_many_entries_one_event_sets(tmp_path: Path) -> None:
    line = first_line(pipeline(tmp_path))
    assert (
        "neighbours add_remove, an event sets up to 2 of the 4 entries of items, over all" in line
    )
    for most, neighbors, moves, whole in (
        (9, "replace", WITHIN, True), (4, "replace", WITHIN, True), (3, "replace", WITHIN, False),
        (4, "replace", "", False), (4, "add_remove", "", False),
    ):  # fmt: skip
        line = first_line(pipeline(tmp_path, most=most, neighbors=neighbors, moves=moves))
        assert ("(any row in its tick for any other: ~_H of [HSV])" in line) == whole
        assert f"up to {min(most, 4)} of the 4 entries of items" in line
    assert PlanView(pipeline(tmp_path)).json()["lists"] == [
        {"field": "items", "entries": 4, "most": 2}
    ]


@pytest.mark.parametrize(
    ("most", "neighbors", "moves", "l0"),
    [
        (1, "add_remove", "", 1), (2, "add_remove", "", 2), (9, "add_remove", "", 4),
        (1, "replace", WITHIN, 2), (2, "replace", WITHIN, 4), (4, "replace", WITHIN, 4),
        (2, "replace", "", 2),
    ],
)  # fmt: skip
def test_every_statistic_pays_for_what_one_event_may_set(
    tmp_path: Path, most: int, neighbors: str, moves: str, l0: int
) -> None:
    """Where a replacement may move to another tick, the mechanism is one for add_remove at half the epsilon."""
    built = build(load(pipeline(tmp_path, most=most, neighbors=neighbors, moves=moves)))
    items, milk, _, busy, _ = (chosen.mechanism for chosen in built.chosen)
    share = 2 if built.spec.relation is Neighbors.REPLACE_ANY_TICK else 1
    assert isinstance(items, Counter)
    assert isinstance(milk, Counter)
    assert isinstance(busy, Alerts)
    assert 1 / items.unit_epsilon == busy.scale == share * l0
    assert 1 / milk.unit_epsilon == share
    ones = min(most, 4)
    assert [each.mechanism.rows.ones for each in built.chosen] == [ones, 1, *[ones] * 3]
    assert {chosen.derivation.guarantee.neighbors for chosen in built.chosen} == {
        built.spec.relation
    }
    if share == 2:
        assert isinstance(event(built.spec.relation, 4, items.rows.ones), MovedRows)


@pytest.mark.parametrize(
    ("neighbors", "moves"), [("add_remove", ""), ("replace", ""), ("replace", WITHIN)]
)
def test_the_audit_plays_whole_lists_against_a_file(
    tmp_path: Path, neighbors: str, moves: str
) -> None:
    """Every game is one of neighbours, or it would be halted; a right claim is refuted with probability 1e-7."""
    path = pipeline(tmp_path, most=3, neighbors=neighbors, moves=moves)
    found = attack(path, runs=200, ticks=2, confidence=0.9999999)
    assert [each.name for each in found.series] == [
        "items",
        "with_milk",
        "largest",
        "busy",
        "sparse",
    ]
    assert found.refuted == []


def test_a_mechanism_that_is_made_for_one_entry_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = AlertsSeries.choose

    def forgetful(series: Any, setting: Any) -> Any:
        return choose(
            series, type(setting)(setting.width, setting.neighbors, setting.horizon, 0.95)
        )

    monkeypatch.setattr(AlertsSeries, "choose", forgetful)
    build(load(pipeline(tmp_path, most=1)))
    with pytest.raises(
        NotDerivable, match=r"busy: one event may set 2 entries .*; Alerts is made for 1"
    ):
        build(load(pipeline(tmp_path)))


def test_a_live_series_may_go_by_a_list_and_ask_what_it_holds(tmp_path: Path) -> None:
    built = build(load(pipeline(tmp_path)))
    spec = built.spec
    planner = LiveSeriesPlanner(spec, OpenRouter(spec, spec.clock.start or 0))
    asked = {
        "name": "beside_beer", "statistic": "histogram", "by": "items", "method": "tree", "epsilon": 1,
        "where": [{"field": "items", "contains": "beer"}],
    }  # fmt: skip
    planned = planner.propose(json.dumps(asked).encode(), 1)
    assert planned.chosen.mechanism.rows.ones == 2
    assert load_series(planned.definition, spec) == planned.series
    said = {
        each["name"]: each
        for each in pipeline_json(built, running_series(built, planner))["series"]
    }
    assert said["items"]["about"] == "histogram by items so far, an event in up to 2"
    assert said["items"]["most"] == 2
    assert "most" not in said["with_milk"]
