"""Routing a batch by columns gives what an oracle finds record by record, whatever the values and the conditions."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.records.broken_columns import BREAKAGES, Breakage
from unit.records.columns_worlds import (
    AMOUNTS,
    BAD,
    FEATURES,
    GOING,
    HORIZON,
    INTEGERS,
    MOMENTS,
    NUMBERS,
    POOLS,
    RECORDS,
    START,
    expected,
    laid_out,
    routed,
)

from stream_dp.pipeline import feature_counts
from stream_dp.pipeline.layout import Feature
from stream_dp.records.conditions import Test

GOOD: dict[str, Any] = {
    "at": START, "kind": "a", "place": None, "tags": (), "note": None, "n": None, "m": 0, "x": None, "flag": None,
    "spoilt": None,
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    FEATURES, st.lists(RECORDS, max_size=12), st.sampled_from([None, None, 0, HORIZON - 1, HORIZON])
)
def test_a_batch_adds_what_its_records_add(
    features: list[Feature], records: list[dict[str, Any]], tick: int | None
) -> None:
    layout = laid_out(features)
    assert routed(layout, records, tick) == expected(layout, records, tick)


def test_every_integer_and_number_meets_every_bound() -> None:
    features = [
        Feature(None, frozenset([Test(name, operator, frozenset([bound]))]))
        for name, pool in (("n", INTEGERS), ("x", NUMBERS))
        for operator in ("at_least", "at_most", "equals")
        for bound in pool
    ]
    layout = laid_out(list(dict.fromkeys(features)))
    records = [GOOD | {"n": n, "x": x} for n in (*INTEGERS, None) for x in (*NUMBERS, None)]
    for tick in (None, 2):
        assert routed(layout, records, tick) == expected(layout, records, tick)
        for record in records:
            assert routed(layout, [record], tick) == expected(layout, [record], tick)


def test_all_refused_and_none_at_all() -> None:
    layout = laid_out(
        [Feature("kind", frozenset([Test("n", "at_least", frozenset([0]))])), Feature(None, frozenset())]
    )  # fmt: skip
    refused = [GOOD | {"spoilt": spoilt} for spoilt in ("n", "kind")] * 3
    for records in (refused, [GOOD | {"at": START - 1}], refused[:1], []):
        outcome = routed(layout, records, None)
        assert outcome == expected(layout, records, None)
        assert outcome.rows == {}
        assert outcome.records == {}
        assert len(outcome.refused) == len(records)
    assert set(BAD) > {"n", "kind"}


def awkward(seed: int, size: int) -> list[dict[str, Any]]:
    """Records with values of all pools and nulls, some with a list that is too long, always the same for a seed."""
    draw = Random(seed)
    never_null = {"kind", "m"}
    return [
        GOOD
        | {"at": draw.choice(MOMENTS), "spoilt": draw.choice([*[None] * 9, "tags"])}
        | {n: draw.choice([*pool] if n in never_null else [*pool, None]) for n, pool in POOLS.items()}
        for _ in range(size)
    ]  # fmt: skip


CONDITIONS: list[list[tuple[str, str, list[Any]]]] = [
    [],
    [("n", "at_least", [0])],
    [("n", "at_least", [2**53 + 1])],
    [("m", "at_most", [-(2**53)]), ("x", "at_least", [-0.0])],
    [("x", "at_most", [0.1]), ("n", "one_of", [-1, 2**53, 2**63 - 1])],
    [("m", "equals", [2**63 - 2])],
    [("kind", "one_of", ["b", "c"]), ("note", "equals", ["a"]), ("flag", "equals", [False])],
    [("note", "one_of", ["", "null"])],
    [("flag", "equals", [True])],
    [("tags", "contains", ["p"])],
    [("tags", "contains", ["p"]), ("tags", "contains", ["q"]), ("n", "at_least", [-1])],
]
SEVERAL = [
    (GOING[0], GOING[2]),
    (GOING[2], GOING[1]),
    (GOING[2], GOING[3], GOING[-1]),
    (GOING[-2], GOING[4]),
]
ONE_OF_EACH = [
    Feature(by, frozenset(Test(name, operator, frozenset(values)) for name, operator, values in tests))
    for by in (None, *GOING, *SEVERAL)
    for tests in (CONDITIONS if by is None or isinstance(by, str) else CONDITIONS[::5])
] + [
    Feature(by, frozenset(Test(name, operator, frozenset(values)) for name, operator, values in tests), amount)
    for by in (None, "tags", GOING[3], SEVERAL[1])
    for tests in CONDITIONS[::5]
    for amount in AMOUNTS
]  # fmt: skip


TOGETHER = [
    Feature(None, frozenset([Test(field, operator, frozenset([value])), *rest]))
    for field, operator, values in (
        ("kind", "equals", "abc"), ("note", "equals", ("", "a", "b")), ("n", "equals", (-1, 0, 2**53)),
        ("tags", "contains", "pq"),
    )
    for value in values
    for rest in ((), (Test("m", "at_least", frozenset([0])),), (Test("flag", "equals", frozenset([True])),))
]  # fmt: skip
"""What differs in one value, with other conditions beside it: monitors have thousands of these."""


def agrees(features: Sequence[Feature] = ONE_OF_EACH) -> bool:
    """Whether large and small batches of awkward records are routed as the oracle says."""
    layout = laid_out(features)
    batches = [(awkward(seed, 10), seed % 2 or None) for seed in range(20)]
    batches.append((awkward(99, 1000), None))
    return all(routed(layout, *batch) == expected(layout, *batch) for batch in batches)


def test_many_awkward_records() -> None:
    assert agrees()


@pytest.mark.parametrize("many", [1, 3, 10**9])
def test_features_count_alike_however_many_are_counted_together(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(feature_counts, "MANY", many)
    assert agrees(list(dict.fromkeys([*ONE_OF_EACH, *TOGETHER])))


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=list(BREAKAGES))
def test_the_check_catches(breakage: Breakage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*breakage)
    assert not agrees()
