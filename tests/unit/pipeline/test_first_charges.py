"""What a journal holds first: the charges for the series of the file, as versions wrote them that knew no boxes.

A start refuses a journal whose first charges are not the price of its file. So they stay what they were, whatever the
series see; that a pipeline now costs one event less shows in its ledger, and not in what was written.
"""

from typing import Any

import pytest

from stream_dp.errors import BudgetRefused
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.spec import PipelineSpec

SCHEMA: dict[str, Any] = {
    "time": {"type": "time"},
    "who": {"type": "text"},
    "key": {"type": "category", "domain": ["a", "b", "c"], "nullable": "true"},
    "amount": {"type": "number", "nullable": "true"},
}
CLOCK = {
    "kind": "replay", "field": "time", "start": "2026-01-01T00:00:00Z", "step": "1h", "horizon": "12",
}  # fmt: skip
COUNT = {"statistic": "count", "windows": ["2h"]}
BY_KEY: list[dict[str, Any]] = [
    COUNT | {"name": f"c{key}", "epsilon": "0.5", "where": [{"field": "key", "equals": key}]}
    for key in "abc"
]
EVERY = COUNT | {"name": "all", "epsilon": "0.3"}
SUM = {"statistic": "sum", "of": "amount", "clamp": ["0", "2"], "windows": ["2h"], "epsilon": "0.4"}
SUMS: list[dict[str, Any]] = [
    SUM | {"name": operator[3:], "where": [{"field": "amount", operator: "5"}]}
    for operator in ("at_least", "at_most")
]
WHO: list[dict[str, Any]] = [
    {"name": f"d{key}", "statistic": "distinct", "of": "who", "epsilon": "0.3",
     "where": [{"field": "key", "equals": key}]}
    for key in "ab"
]  # fmt: skip
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "2h"}
SUMMED = ("p: series of the first start", "concurrent composition ([HSV] Thm 4.10)")


def first(series: list[dict[str, Any]], privacy: dict[str, str]) -> list[tuple[str, str, int]]:
    spec = PipelineSpec.model_validate(
        {
            "version": "1", "name": "p", "source": {"kind": "file", "path": "x.jsonl"}, "schema": SCHEMA,
            "privacy": {"epsilon": "3", **privacy}, "clock": CLOCK, "series": series,
        }
    )  # fmt: skip
    charges = build(spec).run_config(0).charges
    return [(charge.name, charge.rule, charge.epsilon) for charge in charges]


@pytest.mark.parametrize(
    ("series", "privacy", "epsilon", "more"),
    [
        (BY_KEY, {}, 1_500_000_000_000, ""),
        ([*BY_KEY, EVERY], {"neighbors": "replace"}, 1_800_000_000_000, ""),
        (SUMS, {"neighbors": "replace", "moves": "within_tick"}, 800_000_000_000, ""),
        (SUMS, USERS, 800_000_000_000, ", for users of at most 2 events in a window of 2 ticks"),
        (WHO, {}, 600_000_000_000, ""),
        (BY_KEY, {"filter": "basic", "delta": "0.000001"}, 1_500_000_000_000, ""),
    ],
    ids=["values", "moves", "replaced", "users", "distinct", "basic"],
)
def test_the_first_charge_is_the_sum_of_the_file(
    series: list[dict[str, Any]], privacy: dict[str, str], epsilon: int, more: str
) -> None:
    name, rule = SUMMED
    assert first(series, privacy) == [(name, rule + more, epsilon)]


def test_other_filters_charge_each_series() -> None:
    charges = first(SUMS, {"filter": "zcdp", "delta": "0.000001", "epsilon": "5"})
    assert [(name, epsilon) for name, _, epsilon in charges] == [
        ("least", 400_000_000_000),
        ("most", 400_000_000_000),
    ]


@pytest.mark.parametrize(
    ("privacy", "shown"),
    [({}, True), (USERS, False)],
    ids=["events", "users"],
)
def test_a_refusal_names_a_box_only_where_the_box_counts(
    privacy: dict[str, str], *, shown: bool
) -> None:
    """Under zCDP what users cost adds up over all boxes, so no box is to blame."""
    twice = [*BY_KEY, BY_KEY[1] | {"name": "again"}]
    with pytest.raises(BudgetRefused) as refusal:
        first(twice, {"filter": "zcdp", "delta": "0.000001", **privacy})
    assert ("on records with key = b" in str(refusal.value)) is shown


def test_under_the_optimal_filter_each_series_is_a_part_and_no_delta_is_used() -> None:
    """A block at the file's delta costs a hair less, and later series could then only add up."""
    several = [COUNT | {"name": f"s{at}", "epsilon": f"0.{at:02}"} for at in range(5, 17)]
    charges = first(several, {"epsilon": "8", "delta": "1e-6"})
    assert [epsilon for _, _, epsilon in charges] == [at * 10**10 for at in range(5, 17)]
