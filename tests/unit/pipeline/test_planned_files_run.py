"""Whatever `plan` accepts has a fingerprint and runs a tick: over statistics, groupings, units and neighbours."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from unit.pipeline.routing.planned_worlds import ran

from stream_dp.engine.ports import Batch
from stream_dp.errors import StreamDPError
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.report import plan_json
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.statistics import STATISTICS

TICKS = 2
FIELDS: dict[str, Any] = {
    "time": {"type": "time"},
    "who": {"type": "text"},
    "country": {"type": "category", "domain": ["DE", "FR"]},
    "tags": {"type": "list", "domain": ["p", "q"], "most": "2"},
    "stops": {"type": "integer", "nullable": "true"},
    "fare": {"type": "number"},
}
EDGES = {"field": "fare", "edges": ["0", "3.5"]}
HOUR = {"tick": "hour", "zone": "Asia/Kolkata"}
GROUPINGS: Mapping[str, Any] = {
    "none": None, "category": "country", "list": "tags", "edges": EDGES, "tick": HOUR, "weekday": {"tick": "weekday"},
    "product": ["country", "tags", EDGES, HOUR],
}  # fmt: skip
PRIVACY: tuple[dict[str, Any], ...] = (
    {"neighbors": "add_remove"},
    {"neighbors": "replace"},
    {"neighbors": "replace", "moves": "within_tick"},
    {"unit": "user", "user": "who", "max_events": "2", "per": "2h"},
    {"unit": "user", "user": "who", "overall": "2"},
)
WHERE: tuple[list[dict[str, Any]], ...] = (
    [], [{"field": "stops", "at_least": "1"}], [{"field": "country", "in": ["DE", "other"]}],
)  # fmt: skip
WINDOWS: tuple[dict[str, Any], ...] = ({}, {"windows": ["2h"]}, {"windows": ["1h", "ever"]})
SUM = {"of": "fare", "clamp": ["-1", "9.5"], "step": "0.5"}
WATCHES = (
    {"above": "5"}, {"above": "5", "over": "tick"}, {"above": "5", "over": "2h"}, {"above": "5", "rearm": "false"},
    {"below": "3", "over": "2h"}, {"below": "3", "usual": "7"},
)  # fmt: skip
OWN: Mapping[str, tuple[dict[str, Any], ...]] = {
    "count": WINDOWS,
    "sum": tuple({**SUM, **windows} for windows in WINDOWS),
    "mean": tuple({**SUM, **windows} for windows in WINDOWS),
    "gauge": tuple({"of": "country", "plus": ["DE"], "minus": ["FR"], **more} for more in WINDOWS),
    "distinct": ({"of": "who"}, {"of": "stops", "every": "2h"}, {"of": "stops", "every": "2h", "running": "true"}),
    "cut_off": ({},),
    "histogram": tuple({"method": m, **w} for m in ("tree", "hss") for w in WINDOWS),
    "top": tuple({"k": "2", **windows} for windows in WINDOWS),
    "maximum": ({}, {"method": "paper_hss"}),
    "largest": ({"rank": "2"},),
    "columns_above": ({"level": "2"},),
    "quantiles": (
        {"of": "stops", "edges": ["0", "1", "5"], "at": ["0.5"]},
        {"of": "fare", "clamp": ["0", "9"], "buckets": "4", "at": ["0.5", "0.9"], "windows": ["2h"]},
        {"of": "fare", "clamp": ["0", "9"], "buckets": "4", "at": ["0.5"], "windows": ["2h", "ever"], "hop": "2h"},
        {"of": "fare", "clamp": ["0", "9"], "buckets": "4", "at": "0.5", "every": "2h"},
    ),
    "alerts": ({"threshold": "5"}, {"threshold": "5", "windows": ["2h"]}, {**SUM, "threshold": "5"}),
    "ratio": ({"of": "a", "over": "b"}, {"of": "b", "over": "a", "digits": "2"}),
}  # fmt: skip
"""The keys of each statistic beside those that all of them have; a monitor has its watches."""


@st.composite
def entries(draw: st.DrawFn, statistic: str, grouping: str) -> dict[str, Any]:
    by = {} if GROUPINGS[grouping] is None else {"by": GROUPINGS[grouping]}
    where = draw(st.sampled_from(WHERE))
    plain = {"name": "it", "statistic": statistic}
    if statistic == "monitor":
        watches = [
            {"name": f"w{n}", **by, **watch}
            for n, watch in enumerate(draw(st.lists(st.sampled_from(WATCHES), min_size=1, max_size=2)))
        ]  # fmt: skip
        counts: dict[str, Any] = draw(st.sampled_from(({}, {"value": "1"}, SUM)))
        return {**plain, "epsilon": "2", "where": where, "watch": watches, **counts}
    more = draw(st.sampled_from(OWN[statistic]))
    if statistic == "ratio":
        return {**plain, **more}
    return {**plain, "epsilon": "2", "where": where, **by, **more}


@st.composite
def files(draw: st.DrawFn, statistic: str, grouping: str) -> dict[str, Any]:
    entry = draw(entries(statistic, grouping))
    parts: list[dict[str, Any]] = []
    if statistic == "ratio":
        kinds = ("count", "distinct", "sum") if grouping == "none" else ("histogram", "sum")
        part = draw(entries(draw(st.sampled_from(kinds)), grouping))
        parts = [part | {"name": name, "where": draw(st.sampled_from(WHERE))} for name in "ab"]
    return {
        "version": "1", "name": "shop", "source": {"kind": "file", "path": "unused.jsonl"}, "schema": FIELDS,
        "privacy": {"epsilon": "100", **draw(st.sampled_from(PRIVACY))},
        "clock": {
            "kind": "replay", "field": "time", "start": "2026-03-29T00:00:00Z", "step": "1h", "horizon": str(TICKS),
        },
        "series": [*parts, entry],
    }  # fmt: skip


def records() -> Iterator[Batch]:
    """Three records in each tick: one as declared, one of undeclared values, one that cannot be read."""
    for tick in range(TICKS):
        plain = {"time": f"2026-03-29T{tick:02}:30:00Z", "who": "u", "stops": tick, "fare": 2.5}
        declared = {**plain, "country": "DE", "tags": ["p", "q"]}
        made = [declared, {**plain, "country": "X", "tags": ["r"]}, {}]
        first = 4 * tick
        payloads = [json.dumps(one).encode() for one in made]
        yield Batch(0, payloads, range(first, first + 3), first + 4, mark=tick)


def possible() -> Iterator[tuple[str, str]]:
    for kind in STATISTICS:
        name, by = kind.model_fields["statistic"].default, kind.model_fields.get("by")
        grouped = by is not None or name in ("monitor", "ratio")
        for grouping in GROUPINGS if grouped else ("none",):
            of_lists = grouping in ("list", "product")
            if (name == "distinct" and of_lists) or (
                grouping == "none" and by is not None and by.is_required()
            ):
                continue
            yield name, grouping


@pytest.mark.parametrize(("statistic", "grouping"), [*possible()])
def test_what_is_planned_has_a_fingerprint_and_runs(statistic: str, grouping: str) -> None:
    accepted, refused = list[str](), list[str]()

    @settings(max_examples=15)
    @given(files(statistic, grouping))
    def runs(data: dict[str, Any]) -> None:
        try:
            built = build(PipelineSpec.model_validate(data))
            plan_json(built)
        except (ValidationError, StreamDPError) as refusal:
            refused.append(str(refusal))
            return
        accepted.append(statistic)
        again = build(PipelineSpec.model_validate(json.loads(json.dumps(data))))
        assert built.fingerprint == again.fingerprint
        released = {(body["series"], body["tick"]) for body in ran(built, [*records()])}
        assert ("it", TICKS - 1) in released

    runs()
    assert accepted, refused
