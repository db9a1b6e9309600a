"""The box of some conditions holds the records that the router counts under them, and without lists no others."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.records.columns_worlds import (
    DOMAINS,
    POOLS,
    RECORDS,
    SPEC,
    START,
    laid_out,
    routed,
)
from unit.records.columns_worlds import (
    test_of as condition_on,
)

from stream_dp.core.box import Box, holds
from stream_dp.pipeline.layout import Feature
from stream_dp.records.conditions import Test, box_of

GOOD = RECORDS.map(lambda record: {**record, "at": START, "spoilt": None})
WHERES = st.frozensets(st.sampled_from(sorted(POOLS)).flatmap(condition_on), min_size=1, max_size=4)
RECORD: dict[str, Any] = {"at": START, "spoilt": None, "kind": "?", "m": 0} | dict.fromkeys(
    ["place", "tags", "note", "n", "x", "flag"]
)


def lies(record: dict[str, Any], box: Box) -> bool:
    """Whether a record lies in a box, as its fields are read: a number is a double."""
    values = {n: float(v) if n == "x" and v is not None else v for n, v in record.items()}
    return not box.nowhere and all(
        values[name] is not None and holds(side, values[name]) for name, side in box.sides
    )


def passes(record: dict[str, Any], where: frozenset[Test]) -> bool:
    """Whether the router counts a record under these conditions."""
    outcome = routed(laid_out([Feature(None, where)]), [record], 0)
    assert not outcome.refused
    return outcome.rows[0] == [1]


@settings(max_examples=150, deadline=None)
@given(WHERES, st.lists(GOOD, min_size=1, max_size=4))
def test_the_box_holds_what_passes(where: frozenset[Test], records: list[dict[str, Any]]) -> None:
    box = box_of(where, SPEC.fields)
    listed = any(test.field == "tags" for test in where)
    for record in records:
        passing = passes(record, where)
        assert lies(record, box) if passing else listed or not lies(record, box)


def test_every_value_meets_every_condition() -> None:
    for name in ("kind", "place", "note", "n", "x", "flag"):
        bounds = [*DOMAINS.get(name, POOLS[name])]
        operators = ["at_least", "at_most", "equals"] if name in "nx" else ["equals"]
        values = [*POOLS[name], *([2**53 + 1, 1] if name == "x" else []), None]
        for operator in operators:
            for bound in bounds:
                where = frozenset([Test(name, operator, frozenset([bound]))])
                box = box_of(where, SPEC.fields)
                for value in values if name != "kind" else values[:-1]:
                    record = {**RECORD, name: value}
                    assert passes(record, where) == lies(record, box)


def test_conditions_on_lists_are_left_out() -> None:
    tags = Test("tags", "contains", frozenset(["p"]))
    assert box_of([tags], SPEC.fields) == Box()
    late = Test("flag", "equals", frozenset([True]))
    assert box_of([tags, late], SPEC.fields) == Box((("flag", frozenset([True])),))
