"""The rows of monitors: every watch counts its own events, however many of them are counted together."""

import json
import random
from typing import Any

import numpy as np
import pytest

from stream_dp.engine.ports import Batch
from stream_dp.pipeline import feature_counts
from stream_dp.pipeline.layout import Block, RowLayout
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec

START = 1_767_225_600_000
TEXTS = [f"t{number}" for number in range(12)]
TAGS = [f"g{number}" for number in range(10)]
OPERATORS = {"equals": "kind", "text": "note", "number": "size", "tag": "tags"}


def watches() -> list[dict[str, Any]]:
    """Watches that differ in one value, with and without more conditions; some ask for several values, some alone."""
    late = {"field": "late", "equals": "true"}
    found: list[dict[str, Any]] = [{"name": "everything", "above": "3"}]
    for number, text in enumerate(TEXTS):
        found += [
            {"name": f"kind.{number}", "above": "9", "where": [{"field": "kind", "equals": text}]},
            {
                "name": f"late.{number}",
                "above": "9",
                "where": [{"field": "kind", "equals": text}, late],
            },
            {"name": f"note.{number}", "above": "9", "where": [{"field": "note", "equals": text}]},
            {
                "name": f"size.{number}",
                "above": "9",
                "where": [{"field": "size", "equals": str(number)}],
            },
        ]
    found += [
        {"name": f"tag.{tag}", "above": "9", "where": [{"field": "tags", "contains": tag}, late]}
        for tag in TAGS
    ]
    found += [
        {"name": "twice", "above": "9", "where": [{"field": "note", "equals": "t3"}]},
        {"name": "some", "above": "9", "where": [{"field": "note", "one_of": ["t3", "t4", "t3"]}]},
        {"name": "both", "above": "9", "where": [
            {"field": "tags", "contains": "g1"}, {"field": "tags", "contains": "g2"}, late]},
        {"name": "large", "above": "9", "where": [{"field": "size", "at_least": "5"}]},
        {"name": "by", "above": "9", "by": "kind", "where": [late]},
        {"name": "listed", "above": "9", "by": "tags"},
    ]  # fmt: skip
    return found


def spec_of(entries: list[dict[str, Any]], **more: str) -> PipelineSpec:
    """A pipeline with a monitor between two other series, which share what they count with its watches."""
    return PipelineSpec.model_validate(
        {
            "version": "1",
            "name": "watched",
            "source": {"kind": "file", "path": "x.jsonl"},
            "schema": {
                "time": {"type": "time"},
                "kind": {"type": "category", "domain": TEXTS, "nullable": "true"},
                "note": {"type": "text", "nullable": "true"},
                "size": {"type": "integer", "nullable": "true"},
                "late": {"type": "boolean"},
                "tags": {"type": "list", "domain": TAGS, "most": "3"},
            },
            "privacy": {"epsilon": "10"},
            "clock": {
                "kind": "replay",
                "field": "time",
                "start": "2026-01-01T00:00:00Z",
                "step": "1h",
                "horizon": "4",
            },
            "series": [
                {"name": "all", "statistic": "count", "epsilon": "1"},
                {"name": "m", "statistic": "monitor", "epsilon": "1", "watch": entries, **more},
                {"name": "late", "statistic": "count", "epsilon": "1",
                 "where": [{"field": "late", "equals": "true"}]},
            ],
        }
    )  # fmt: skip


SPEC = spec_of(watches())


def some_records(seed: int, number: int) -> list[dict[str, Any]]:
    """Records with nulls, unknown values and lists, in any order of time."""
    own = random.Random(seed)
    return [
        {
            "time": f"2026-01-01T0{own.randrange(4)}:10:00Z",
            "kind": own.choice([*TEXTS, "?", None]),
            "note": own.choice([*TEXTS, "t99", None]),
            "size": own.choice([*range(14), None]),
            "late": own.random() < 0.5,
            "tags": own.choices([*TAGS, "?"], k=own.randrange(4)),
        }
        for _ in range(number)
    ]


def passes(record: dict[str, Any], condition: dict[str, Any]) -> bool:
    """Whether a record passes a condition as it is written."""
    value = record[condition["field"]]
    if value is None:
        return False
    match condition:
        case {"contains": wanted}:
            return wanted in value
        case {"one_of": wanted}:
            return value in wanted
        case {"at_least": wanted}:
            return bool(value >= int(wanted))
    return str(value).lower() == str(condition["equals"])


def names(watch: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """The entries of a watch that a record counts in."""
    if not all(passes(record, condition) for condition in watch.get("where", [])):
        return []
    match watch.get("by"):
        case "kind":
            kind = record["kind"]
            return [f"{watch['name']}/{kind if kind in TEXTS else 'other'}"]
        case "tags":
            found = {tag if tag in TAGS else "other" for tag in record["tags"]}
            return [f"{watch['name']}/{tag}" for tag in found]
    return [watch["name"]]


@pytest.mark.parametrize("many", [1, 8, 10**9])
@pytest.mark.parametrize("number", [1, 400])
def test_every_watch_counts_its_own_events(
    monkeypatch: pytest.MonkeyPatch, many: int, number: int
) -> None:
    monkeypatch.setattr(feature_counts, "MANY", many)
    router, records = Router(SPEC, START), some_records(number, number)
    payloads = tuple(json.dumps(record).encode() for record in records)
    routed = router.route(Batch(0, payloads, tuple(range(number)), number, None))
    assert not routed.dead
    layout = router.layout
    keys, place = layout.keys("m"), layout.slice("m")
    assert (len(keys), place.stop - place.start) == (len(keys), sum(map(bool, keys)) + 100)
    for tick, row in routed.rows.items():
        inside = [r for r in records if r["time"].startswith(f"2026-01-01T0{tick}")]
        expected: dict[str, int] = dict.fromkeys(keys, 0)
        for record in inside:
            for watch in watches():
                for name in names(watch, record):
                    expected[name] += 1
        assert dict(zip(keys, row[place].tolist(), strict=True)) == expected
        assert row[layout.slice("all")].tolist() == [len(inside)]
        assert row[layout.slice("late")].tolist() == [sum(r["late"] for r in inside)]


def test_what_differs_in_one_value_is_counted_together() -> None:
    layout = RowLayout.of(SPEC)
    scalars = {f.where: [0] for f, _ in layout.counted(SPEC) if f.by is None and f.where}
    together, alone = feature_counts.alike(scalars, SPEC.fields)
    groups = {each.field: len(each.wanted) for each in together if not each.rest}
    assert groups == {"kind": 12, "note": 13, "size": 12}
    assert {each.field for each in together if each.rest} == {"kind", "tags"}
    assert len(alone) == 3  # late, a range, and two values of a list at once


def test_a_block_is_its_series_own_and_has_room() -> None:
    entries = watches()[:2]
    twice = spec_of(entries, most="7")
    layout = RowLayout.of(twice)
    assert layout.keys("m") == ("everything", "kind.0", "", "", "", "", "")
    (block,) = (feature for feature in layout.features if isinstance(feature, Block))
    assert block.owner == "m"
    assert layout.width == 1 + 7 + 1
    assert np.array_equal(range(layout.width)[layout.slice("m")], range(1, 8))
