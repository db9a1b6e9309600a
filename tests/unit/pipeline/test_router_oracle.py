"""Routing a batch by columns gives what an oracle finds record by record, whatever the values and the conditions."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.pipeline.columns_worlds import (
    BAD,
    FEATURES,
    HORIZON,
    INTEGERS,
    NUMBERS,
    RECORDS,
    START,
    expected,
    laid_out,
    routed,
)

from stream_dp.pipeline.layout import Feature, Test

GOOD: dict[str, Any] = {
    "at": START, "kind": "a", "place": None, "note": None, "n": None, "m": 0, "x": None, "flag": None, "spoilt": None,
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
