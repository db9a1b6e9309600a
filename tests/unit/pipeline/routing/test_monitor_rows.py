"""Rows of monitors: what is counted together, and the room of a block. Counts are right: `test_router_oracle`."""

from typing import Any

import numpy as np
import pytest

from stream_dp.engine.ports import Batch
from stream_dp.pipeline import feature_counts
from stream_dp.pipeline.layout import Block, RowLayout
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec

TEXTS = [f"t{number}" for number in range(12)]
LATE = {"field": "late", "equals": "true"}


def watches() -> list[dict[str, Any]]:
    """Watches that differ in one value, with and without one more condition; some that are like no other."""
    wheres: list[list[dict[str, Any]]] = []
    for number, text in enumerate(TEXTS):
        kind = {"field": "kind", "equals": text}
        wheres += [[kind], [kind, LATE], [{"field": "size", "equals": str(number)}]]
    wheres += [[{"field": "tags", "contains": tag}, LATE] for tag in ("g1", "g2", "g3")]
    wheres += [[{"field": "size", "at_least": "5"}], [LATE]]
    wheres.append([{"field": "tags", "contains": "g1"}, {"field": "tags", "contains": "g2"}])
    return [{"name": f"w{at}", "above": "9", "where": where} for at, where in enumerate(wheres)]


def spec_of(entries: list[dict[str, Any]], **more: str) -> PipelineSpec:
    """A pipeline with a monitor between two counts, one of which shares with its watches what it counts."""
    return PipelineSpec.model_validate(
        {
            "version": "1", "name": "watched", "source": {"kind": "file", "path": "x.jsonl"},
            "schema": {
                "time": {"type": "time"}, "kind": {"type": "category", "domain": TEXTS}, "size": {"type": "integer"},
                "late": {"type": "boolean"}, "tags": {"type": "list", "domain": ["g1", "g2", "g3"], "most": "3"},
            },
            "privacy": {"epsilon": "10"},
            "clock": {
                "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "4",
            },
            "series": [
                {"name": "all", "statistic": "count", "epsilon": "1"},
                {"name": "m", "statistic": "monitor", "epsilon": "1", "watch": entries, **more},
                {"name": "late", "statistic": "count", "epsilon": "1", "where": [LATE]},
            ],
        }
    )  # fmt: skip


def test_what_differs_in_one_value_is_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_counts, "MANY", 3)
    spec = spec_of(watches())
    scalars = {
        f.where: [0] for f, _ in RowLayout.of(spec).counted(spec) if f.by is None and f.where
    }
    together, alone = feature_counts.alike(scalars, spec.fields)
    groups = {(each.field, bool(each.rest)): len(each.wanted) for each in together}
    assert groups == {
        ("kind", False): 12,
        ("kind", True): 12,
        ("size", False): 12,
        ("tags", True): 3,
    }
    assert len(alone) == 3  # late, a range, and two values of a list at once


def test_a_block_is_its_series_own_and_has_room() -> None:
    by = {"name": "by", "above": "9", "by": "tags"}
    spec = spec_of([*watches()[:1], by], most="7")
    router = Router(spec, spec.clock.start or 0)
    layout = router.layout
    assert layout.keys("m") == ("w0", "by/g1", "by/g2", "by/g3", "by/other", "", "")
    (block,) = (feature for feature in layout.features if isinstance(feature, Block))
    assert (block.owner, layout.width) == ("m", 1 + 7 + 1)
    assert np.array_equal(range(layout.width)[layout.slice("m")], range(1, 8))
    record = b'{"time":"2026-01-01T00:10:00Z","kind":"t0","size":1,"late":true,"tags":["g3","g1"]}'
    rows = router.route(Batch(0, [record] * 2, range(2), 2)).rows
    assert rows[0].tolist() == [2, 2, 2, 0, 2, 0, 0, 0, 2]
