"""Routing a batch by columns gives what an oracle finds record by record, whatever the values and the conditions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from stream_dp.core.mechanism import IntArray
from stream_dp.pipeline import feature_counts
from stream_dp.pipeline.layout import Feature
from stream_dp.records.amount_units import Amount
from stream_dp.records.conditions import Test
from stream_dp.records.decoder import Decoded
from stream_dp.records.groupings import Edges
from stream_dp.records.record_columns import BoolArray, Numbers, _Ordered

Breakage: TypeAlias = tuple[type | Any, str, Any]
"""An object, its attribute, and what takes the attribute's place."""

_bins = feature_counts._binned
_units = Amount.of
_make, _read = _Ordered.__init__, _Ordered.read


def _null_is_zero(column: _Ordered, decoded: Decoded) -> Numbers:
    return Numbers(np.nan_to_num(_read(column, decoded).values), None)


def _as_doubles(column: _Ordered, attribute: str, _: Any, tests: Sequence[Test]) -> None:
    _make(column, attribute, np.float64, tests)


def _all_in_the_first_tick(passing: BoolArray, numbers: IntArray) -> IntArray:
    """Every record that passes counts in the batch's first tick."""
    found = np.zeros((len(passing), len(numbers)), np.int64)
    found[:, 0] = passing.sum(axis=1)
    return found


def _edge_below(by: Edges, field: Any) -> Any:
    """An edge belongs to the bin below it."""
    lowered = {edge: math.nextafter(float(edge), math.inf) for edge in by.edges}
    moved = Edges(field="x", edges=tuple(Fraction(lowered[edge]) for edge in by.edges))
    whole = [edge + 1 for edge in by.edges if edge < 2**62] or [by.edges[0]]
    return _bins(
        moved
        if by.field == "x"
        else Edges(field=by.field, edges=tuple(whole) + by.edges[len(whole) :]),
        field,
    )


def _last_unclamped(amount: Amount, numbers: Numbers) -> IntArray:
    """The last record of a batch is not clamped."""
    found, last = _units(amount, numbers), numbers.values[-1:]
    wide = replace(amount, lowest=-(10**6) * amount.step, highest=10**6 * amount.step)
    known = None if numbers.known is None else numbers.known[-1:]
    return np.append(found[:-1], _units(wide, Numbers(last, known)))


def _clamped_together(amount: Amount, numbers: Numbers) -> IntArray:
    """The batch's amounts are made to fit together, so that one record moves the others'."""
    found, (low, high) = _units(amount, numbers), amount.units
    return np.asarray(np.clip(found, low, max(low, high - (len(found) > 1))))


BREAKAGES: dict[str, Breakage] = {
    "null passes": (_Ordered, "read", _null_is_zero),
    "integers as doubles": (_Ordered, "__init__", _as_doubles),
    "an edge lies in the bin below": (feature_counts, "_binned", _edge_below),
    "the last record is not clamped": (Amount, "of", _last_unclamped),
    "amounts are clamped together": (Amount, "of", _clamped_together),
    "ticks run together": (feature_counts, "_by_tick", _all_in_the_first_tick),
}


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
