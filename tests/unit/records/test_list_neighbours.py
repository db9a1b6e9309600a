"""One record more, less or another, through the real router: the rows of each series are neighbours, lists or not.

How many entries change is what `Neighbors.l0` says, and that many do. Routers that count an entry twice, or take a list
that is too long, are caught.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import event
from stream_dp.engine.ports import Batch
from stream_dp.pipeline.router import Router
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records import decoder, list_columns
from stream_dp.records.groupings import most_ones
from stream_dp.records.list_columns import Entries

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ITEMS, MOST = ("beer", "bread", "eggs", "milk"), 3
Record: TypeAlias = dict[str, Any]
SPEC = PipelineSpec.model_validate(
    {
        "version": 1,
        "name": "baskets",
        "source": {"kind": "kafka", "topic": "t", "bootstrap": "127.0.0.1:1"},
        "schema": {
            "items": {"type": "list", "domain": list(ITEMS), "most": MOST, "nullable": True},
            "few": {"type": "list", "domain": ["x"], "most": 4},
            "skus": {"type": "list", "domain": list(ITEMS), "most": MOST, "nullable": True, "path": "cart.rows[].sku"},
            "shop": {"type": "category", "domain": ["north", "south"]},
            "size": {"type": "integer"},
        },
        "privacy": {"epsilon": "9"},
        "clock": {"kind": "wall", "step": "1s", "start": "1970-01-01T00:00:00Z"},
        "journal": {"kind": "kafka"},
        "series": [
            {"name": "all", "statistic": "count", "epsilon": "1"},
            {"name": "with_milk", "statistic": "count", "epsilon": "1",
             "where": [{"field": "items", "contains": "milk"}]},
            {"name": "items", "statistic": "histogram", "by": "items", "method": "tree", "epsilon": "1"},
            {"name": "large", "statistic": "histogram", "by": "items", "method": "tree", "epsilon": "1",
             "where": [{"field": "size", "at_least": "3"}]},
            {"name": "few", "statistic": "alerts", "by": "few", "threshold": "9", "epsilon": "1"},
            {"name": "shops", "statistic": "histogram", "by": "shop", "method": "tree", "epsilon": "1"},
            {"name": "in_shops", "statistic": "histogram", "by": ["items", "shop"], "method": "tree", "epsilon": "1"},
            {"name": "both", "statistic": "maximum", "by": ["few", "items"], "expected_events": "9", "epsilon": "1"},
            {"name": "sizes", "statistic": "histogram", "by": {"field": "size", "edges": ["2", "4"]},
             "method": "tree", "epsilon": "1"},
            {"name": "skus", "statistic": "histogram", "by": "skus", "method": "tree", "epsilon": "1"},
            {"name": "hours", "statistic": "alerts", "by": [{"tick": "hour"}, "shop"], "threshold": "9",
             "epsilon": "1"},
        ],
    }
)  # fmt: skip
AWKWARD: list[Any] = [
    {}, [], "milk", ["milk", 3], ["milk", None], [["milk"]], ["milk"] * (MOST + 1), ["milk"] * 10_000, [""],
    [*ITEMS, "ham"],
]  # fmt: skip

ROWS = [{"sku": "beer"}, {"sku": "eggs", "n": 2}, {"sku": "ham"}]
LONG = ([{"sku": each} for each in ITEMS], [{"sku": "milk"}] * (MOST + 1))
FARTHEST = (
    {"items": ["beer", "bread", "ham"], "few": ["x", "y"], "cart": {"rows": ROWS}},
    {"items": ["eggs", "milk"], "few": ["x", "y"], "cart": {"rows": [{"sku": "bread"}, {"sku": "milk"}]}},
)  # fmt: skip


def records(seed: int, size: int) -> list[Record]:
    draw = Random(seed)

    def some(texts: Sequence[str], most: int) -> list[str]:
        return [draw.choice(texts) for _ in range(draw.randint(0, most))]

    return [
        {
            "items": draw.choice(
                [*[some([*ITEMS, "ham", "jam"], MOST)] * 4, ["beer", "eggs", "milk"], None, *AWKWARD[:4]]
            ),
            "few": some(["x", "y", "z"], 4),
            "cart": {"rows": draw.choice([ROWS, ROWS, [], None, *LONG])},
            "shop": draw.choice(["north", "south", "west"]),
            "size": draw.choice([1, 3, 5]),
        }
        for _ in range(size)
    ]  # fmt: skip


def rows_of(stream: Sequence[Record]) -> IntArray:
    payloads = [json.dumps(record).encode() for record in stream]
    router = Router(SPEC, 0)
    made = router.route(Batch(0, payloads, range(len(payloads)), len(payloads), tick=0)).rows
    found: IntArray = made.get(0, np.zeros(router.width, np.int64))
    return found


def changes(relation: Neighbors, left: IntArray, right: IntArray) -> dict[str, int]:
    """How many entries of each series' row changed; every pair of rows is one of neighbours, or this fails."""
    layout, found = Router(SPEC, 0).layout, {}
    for series in SPEC.series:
        part, ones = layout.slice(series.name), most_ones(SPEC.fields, series.grouped_by)
        one, other = left[part], right[part]
        assert event(relation, one.size, ones).accept(one, other) is not None
        found[series.name] = int((one != other).sum())
        assert found[series.name] <= relation.l0(one.size, ones)
    return found


def most_changes(relation: Neighbors, pairs: int = 300) -> dict[str, int]:
    """The most entries of each series that one record changed, over many pairs of streams."""
    most: dict[str, int] = {series.name: 0 for series in SPEC.series}
    for seed in range(pairs):
        base, (one, other) = records(seed, seed % 4), records(seed + 9_999, 2)
        if seed < len(AWKWARD):
            one |= {"items": AWKWARD[seed], "cart": {"rows": ROWS}}
        if seed == pairs - 1:
            one, other = (one | each | {"size": 5} for each in FARTHEST)
        streams = [*base, one], ([*base, other] if relation is REPLACE else base)
        for left, right in (streams, streams[::-1]):
            for name, changed in changes(relation, rows_of(left), rows_of(right)).items():
                most[name] = max(most[name], changed)
    return most


def test_one_basket_more_changes_at_most_what_its_list_may_hold() -> None:
    assert most_changes(ADD) == {
        "all": 1, "with_milk": 1, "items": 3, "large": 3, "few": 2, "shops": 1,
        "in_shops": 3, "both": 6, "sizes": 1, "hours": 1, "skus": 3,
    }  # fmt: skip


def test_another_basket_changes_at_most_what_both_lists_may_hold() -> None:
    """Five entries and three ones: all five; two entries of which all may be set: ~_H; ten, six at once: all ten."""
    assert most_changes(REPLACE) == {
        "all": 1, "with_milk": 1, "items": 5, "large": 5, "few": 2, "shops": 2,
        "in_shops": 6, "both": 10, "sizes": 2, "hours": 2, "skus": 5,
    }  # fmt: skip


_KIND, _LISTED = decoder._kind, decoder._listed
TWINS: dict[str, tuple[Any, str, Any]] = {
    "an entry counts twice": (
        list_columns, "_once", lambda numbers, codes, _: Entries(codes, np.repeat(np.arange(len(numbers)), numbers)),
    ),
    "long lists are taken": (
        decoder, "_kind", lambda field: list[str] if field.type == "list" else _KIND(field),
    ),
    "long lists of objects are taken": (
        decoder, "_listed", lambda entry, most: _LISTED(entry, most if entry is str else 10**6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_a_router_that_lets_one_record_change_more_is_caught(
    twin: tuple[Any, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*twin)
    with pytest.raises(AssertionError):
        most_changes(ADD)


@pytest.mark.parametrize(
    ("items", "reason", "field"),
    [
        (["milk"] * 4, "too_many_entries", "items"),
        (["milk", None], "wrong_type", "items"),
        ("milk", "wrong_type", "items"),
    ],
)
def test_what_is_no_such_list_is_a_dead_letter_with_its_reason(
    items: Any, reason: str, field: str
) -> None:
    good = {"items": ["milk"], "few": [], "shop": "north", "size": 1}
    payloads = [json.dumps(each).encode() for each in (good, good | {"items": items}, good)]
    routed = Router(SPEC, 0).route(Batch(0, payloads, (7, 8, 9), 10, tick=0))
    assert [(one.reason, one.field, one.first, one.last) for one in routed.dead] == [
        (reason, field, 8, 8)
    ]
    assert routed.records == {0: 2}
