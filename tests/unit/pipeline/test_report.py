"""`plan`: the JSON of the contract, and the text a person reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli.main import code_of
from stream_dp.operate.demo import flights_folder
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.promise import caveats, warnings
from stream_dp.pipeline.report import plan_json, predicted_errors
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load
from stream_dp.server.models.configured import PlannedSeries

Data = dict[str, Any]
TOP = ["epsilon", "delta", "unit", "neighbors", "horizon", "series", "derivation", "promise"]
SERIES = {"name", "mechanism", "epsilon", "delta", "predicted_error"}
NODE = {"subject", "rule", "source", "guarantee", "conditions", "alternatives", "premises"}


@pytest.fixture
def spec(data: Data) -> PipelineSpec:
    guess = {"epsilon": "0.1", "expected_events": "5000"}
    more = [
        {"name": "auto", "statistic": "histogram", "by": "airline", **guess},
        {"name": "busiest", "statistic": "maximum", "by": "airline", **guess},
    ]
    return PipelineSpec.model_validate(data | {"series": [*data["series"], *more]})


def test_the_schema(spec: PipelineSpec) -> None:
    shown = json.loads(json.dumps(plan_json(build(spec))))
    assert list(shown) == TOP
    top = {key: shown[key] for key in TOP[:5]}
    assert top == {"epsilon": 1.7, "delta": 0, "unit": "event", "neighbors": "add_remove",
                   "horizon": 100}  # fmt: skip
    names = ["departures", "by_destination", "late_departures", "auto", "busiest"]
    assert [series["name"] for series in shown["series"]] == names
    for series in shown["series"]:
        alarms = {"false_alarms"} if series["name"] == "late_departures" else set()
        assert series.keys() - {"why"} == SERIES | alarms
        ticks = [point["tick"] for point in series["predicted_error"]]
        assert ticks == sorted(set(ticks))
        assert (ticks[0], ticks[-1]) == (0, 99)
        assert 8 <= len(ticks) <= 14
        for point in series["predicted_error"]:
            assert point.keys() == {"tick", "error", "confidence"}
            assert isinstance(point["error"], int)
            assert point["error"] > 0
            assert point["confidence"] == 0.95
    mechanisms = [series["mechanism"] for series in shown["series"][:3]]
    assert mechanisms == ["Counter", "Counter", "Alerts"]
    assert [series["epsilon"] for series in shown["series"]] == [0.2, 1, 0.3, 0.1, 0.1]


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({"statistic": "histogram", "method": "hss"}, ["proven", "calibrated"]),
        ({"statistic": "maximum", "method": "hss"}, ["calibrated", "calibrated"]),
        ({"statistic": "histogram", "method": "tree"}, None),
        ({"statistic": "columns_above", "level": "50"}, None),
    ],
)
def test_what_lags_behind_says_why_its_bounds_hold(
    data: Data, series: Data, words: list[str] | None
) -> None:
    one = {"name": "one", "by": "airline", "epsilon": "1", **series}
    (shown,) = plan_json(build(PipelineSpec.model_validate(data | {"series": [one]})))["series"]
    PlannedSeries.model_validate(json.loads(json.dumps(shown)))
    if words is None:
        assert "bounds" not in shown
        return
    bounds = shown["bounds"]
    assert [bounds["band"], bounds["ends"]] == words
    assert bounds["at_once"] > shown["predicted_error"][-1]["error"]
    assert (bounds["tick"], bounds["confidence"]) == (99, 0.95)


def nodes(node: Data) -> list[Data]:
    return [node, *(inner for premise in node["premises"] for inner in nodes(premise))]


def test_the_derivation_is_a_tree_of_reasons(spec: PipelineSpec) -> None:
    shown = plan_json(build(spec))
    top, *_ = every = nodes(shown["derivation"])
    assert top["guarantee"]["epsilon"] == shown["epsilon"]
    assert [p["subject"] for p in top["premises"]] == [s["name"] for s in shown["series"]]
    for node in every:
        assert node.keys() == NODE
        assert node["guarantee"].keys() == {"epsilon", "delta", "neighbors"}
        assert node["source"]
        assert all(c["holds"] is True and c["name"] and c["why"] for c in node["conditions"])


@pytest.mark.parametrize("events", ["10", "100000"])
def test_a_prediction_is_the_band_at_the_predicted_number_of_intervals(
    data: Data, events: str
) -> None:
    hss = {"method": "hss", "expected_events": events}
    built = build(PipelineSpec.model_validate(data | {"series": [data["series"][1] | hss]}))
    (chosen,) = built.chosen
    tick, error = predicted_errors(built.spec, chosen)[-1]
    bands = {chosen.mechanism.band((100, frozenset({intervals})), 0.95) for intervals in range(101)}
    assert tick == 99
    assert error in bands


@pytest.mark.parametrize(
    ("clock", "horizon", "last"),
    [({"kind": "wall", "step": "1s"}, None, 9999), ({"horizon": "1"}, 1, 0)],
    ids=["endless", "one tick"],
)
def test_errors_are_predicted_up_to_the_horizon(
    data: Data, clock: Data, horizon: int | None, last: int
) -> None:
    clock = clock if "kind" in clock else data["clock"] | clock
    shown = plan_json(build(PipelineSpec.model_validate(data | {"clock": clock})))
    assert shown["horizon"] == horizon
    assert shown["series"][0]["predicted_error"][-1]["tick"] == last


def test_notes_beside_the_guarantee(data: Data) -> None:
    built = build(PipelineSpec.model_validate(data))
    assert [note[:19] for note in caveats(built)] == [
        "the guarantee is fo",
        "the guarantee holds",
        "records of a transa",
        "ticks are longer th",
    ]
    waiting = data | {"source": data["source"] | {"open_transactions": "wait"}}
    assert "ticks wait" in caveats(build(PipelineSpec.model_validate(waiting)))[2]
    person = data["schema"] | {"User_Id": {"type": "text"}}
    built = build(PipelineSpec.model_validate(data | {"schema": person}))
    assert "the schema has User_Id" in caveats(built)[0]
    assert warnings(built) == caveats(built)[:1]


PIPELINE = """\
version: 1
name: clicks
source: {kind: file, path: none.csv}
schema: {time: {type: time}}
privacy: {epsilon: 1/3}
clock: {kind: replay, field: time, start: 2024-05-01T00:00:00Z, step: 1h, horizon: 6}
series: [{name: clicks, statistic: count, epsilon: 0.3}]
"""


def planned(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> str:
    """What `plan` prints of a file, which alone lies in its folder then."""
    path = folder / "clicks.yaml"
    path.write_text(text)
    assert code_of(["plan", str(path), *options]) == 0
    assert sorted(folder.iterdir()) == [path]
    return capsys.readouterr().out


def test_the_text_has_the_promise_first_and_the_proof_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = planned(tmp_path, capsys, PIPELINE)
    assert short.startswith(
        "clicks protects one event: what is published hides any single event. With"
    )
    assert "Predicted error" in short
    assert "[HSV]" not in short
    assert short.splitlines()[-1].startswith("`--proof` shows why")
    assert "Note: " not in short
    assert (
        "`--notes` shows the errors at several ticks, how each series is computed, and 3 notes."
        in short
    )
    out = planned(tmp_path, capsys, PIPELINE, "--proof", "--notes")
    for said in (
        "clicks is (0.3, 0)-differentially private: unit one event, neighbours add_remove",
        "Budget 0.333333333333: spent 0.3, left 0.033333333333.",
        "k-ary tree, l1 sensitivity = height",
        "not used: [HSV] Thm 5.4 (eps 0.3, delta 0); not applicable: 4 rules",
        "clicks: a count is a tree counter",
        "Note: the guarantee is for this pipeline only",
    ):
        assert said in out
    assert "--proof" not in out


def test_a_plan_names_no_class_and_folds_what_needs_no_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With guesses the verdicts have the bands; errors by tick, and what a series rests on, are behind `--notes`."""
    text = (flights_folder() / "pipeline.yaml").read_text()
    short = planned(tmp_path, capsys, text)
    whole = planned(tmp_path, capsys, text, "--notes")
    assert 2 * len(short.splitlines()) < len(whole.splitlines()) + 10
    assert "Predicted error" in whole
    assert "departures: each window is the sum of its single ticks" in whole
    for folded in ("Predicted error", "sum of its single ticks", "Note: "):
        assert folded not in short
    names = {
        type(chosen.mechanism).__name__ for chosen in build(load(tmp_path / "clicks.yaml")).chosen
    }
    assert not [name for name in names - {"Alerts"} if name in whole]
    assert "Warning: delays: the horizon ends in the middle of a window of 7d" in short
    assert "\nlate_departures: while its count stays at" in short


@pytest.mark.parametrize(
    ("privacy", "first_line", "noted"),
    [
        ("neighbors: replace", "neighbours replace_any_tick, over all releases for ever", True),
        (
            "neighbors: replace, moves: within_tick",
            "neighbours replace, if a replacement keeps its tick (moves: within_tick), over all releases",
            False,
        ),
    ],
)
def test_what_a_file_vouches_for_stands_in_the_first_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], privacy: str, first_line: str, noted: bool
) -> None:
    text = PIPELINE.replace("privacy: {", f"privacy: {{{privacy}, ")
    out = planned(tmp_path, capsys, text)
    promise, _, exactly, *_ = out.splitlines()
    assert first_line in exactly
    assert ("at any time" in promise) == noted
    assert ("if a replacement keeps its tick" in promise) == (not noted)
    assert ("half the epsilon for either" in " ".join(out.split())) == noted
    shown = json.loads(planned(tmp_path, capsys, text, "--json"))
    condition = None if noted else "a replacement keeps its tick (moves: within_tick)"
    assert shown.get("condition") == condition
    assert shown["promise"]["derivation"]["guarantee"]["neighbors"] == shown["neighbors"]


def test_over_budget_is_3(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clicks.yaml"
    path.write_text(PIPELINE.replace("epsilon: 0.3}", "epsilon: 0.4}"))
    assert code_of(["plan", str(path), "--json"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "asks for epsilon 0.4; of 0.333333333333 the ledger has spent 0" in said.err
