"""Conditions with `any`, `all`, `not` and `is_null`, against every record of a small schema.

The oracle evaluates the file's words record by record in SQL's three-valued logic. It says what passes, so that the
columns must answer the same, every box must hold what passes, boxes that do not meet must share no record, and one
filter that is said to imply another must do so.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, product
from math import inf, nextafter
from operator import contains, ge, le
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
from pydantic import TypeAdapter

from stream_dp.core.box import Box, Stretch, union
from stream_dp.core.time import TickGrid
from stream_dp.pipeline.feature_counts import MANY, FeatureCounts
from stream_dp.pipeline.layout import Feature, Slot
from stream_dp.records import conditions, record_columns
from stream_dp.records.conditions import Condition, box_of, implies
from stream_dp.records.conditions import tests_of as meaning_of
from stream_dp.records.decoder import ListDecoder
from stream_dp.records.record_columns import RecordColumns
from stream_dp.records.schema import FieldSpec
from stream_dp.statistics.monitor import Selection, deepest

Words: TypeAlias = Mapping[str, Any]

SCHEMA: dict[str, Any] = {
    "land": {"type": "category", "domain": ["a", "b", "c"], "nullable": "true"},
    "ok": {"type": "boolean", "nullable": "true"},
    "n": {"type": "integer", "nullable": "true"},
    "x": {"type": "number", "nullable": "true"},
    "note": {"type": "text", "nullable": "true"},
    "tags": {"type": "list", "domain": ["p", "q"], "most": "2", "nullable": "true"},
}
FIELDS = {name: TypeAdapter[Any](FieldSpec).validate_python(told) for name, told in SCHEMA.items()}
VALUES: dict[str, list[Any]] = {
    "land": ["a", "b", "c", "?", "other", None],
    "ok": [True, False, None],
    "n": [-(2**63), 0, 1, 2, 3, 2**63 - 1, None],
    "x": [-1.0, -0.0, 0.0, 0.5, nextafter(1, -inf), 1.0, 2.0, None],
    "note": ["u", "v", "w", "null", None],
    "tags": [[], ["p"], ["q"], ["p", "q"], ["?"], None],
}
"""Of each field every value that a condition names, others beside, between and beyond them, and null."""
NAMED: dict[str, list[str]] = {
    "land": ["a", "b", "c"], "ok": ["true", "false"], "n": ["0", "2", str(-(2**63)), str(2**63 - 1)],
    "x": ["0", "0.5", "1"], "note": ["u", "v"], "tags": ["p", "q"],
}  # fmt: skip
OPERATORS: dict[str, list[str]] = {
    "land": ["equals", "one_of", "is_null"], "ok": ["equals", "is_null"], "tags": ["contains"],
    "note": ["equals", "one_of", "is_null"],
    "n": ["equals", "one_of", "at_least", "at_most", "is_null"],
    "x": ["equals", "one_of", "at_least", "at_most", "is_null"],
}  # fmt: skip


def truth(words: Words, record: Mapping[str, Any]) -> bool | None:
    """True, false or unknown, as SQL has it."""
    if "not" in words:
        inner = truth(words["not"], record)
        return None if inner is None else not inner
    for key, settles in (("any", True), ("all", False)):
        if key in words:
            truths = [truth(part, record) for part in words[key]]
            return settles if settles in truths else None if None in truths else not settles
    value = record[words["field"]]
    if "is_null" in words:
        return bool((value is None) == (words["is_null"] == "true"))
    if value is None:
        return None
    for operator, compared in (("contains", contains), ("at_least", ge), ("at_most", le)):
        if operator in words:
            named = words[operator]
            return bool(compared(value, named if operator == "contains" else float(named)))
    wanted = words["one_of"] if "one_of" in words else [words["equals"]]
    if isinstance(value, str):
        return value in wanted
    if isinstance(value, bool):
        return str(value).lower() in wanted
    return value in [int(text) if isinstance(value, int) else float(text) for text in wanted]


def leaf(draw: Random, name: str) -> Words:
    operator = draw.choice(OPERATORS[name])
    if operator == "is_null":
        return {"field": name, operator: draw.choice(["true", "false"])}
    named = NAMED[name]
    if operator == "one_of":
        return {"field": name, operator: draw.sample(named, draw.randint(1, len(named)))}
    few = [text for text in named if len(text) < 9] if operator.startswith("at_") else named
    return {"field": name, operator: draw.choice(few)}


def condition(draw: Random, names: Sequence[str], depth: int) -> Words:
    kind = draw.choice(["leaf", "not", "any", "all"]) if depth else "leaf"
    if kind == "leaf":
        return leaf(draw, draw.choice(names))
    if kind == "not":
        return {kind: condition(draw, names, depth - 1)}
    return {kind: [condition(draw, names, depth - 1) for _ in range(draw.randint(1, 3))]}


class World:
    """Some filters on two fields, and every record of these fields."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        names = draw.sample([*VALUES], 2)
        self.wheres = [
            [condition(draw, names, draw.choice([0, 1, 1, 2, 3])) for _ in range(draw.choice([1, 1, 2]))]
            for _ in range(8)
        ]  # fmt: skip
        self.records = [
            dict(zip(names, values, strict=True)) for values in product(*(VALUES[n] for n in names))
        ]
        self.meant = [meaning(where) for where in self.wheres]

    @property
    def true(self) -> list[list[bool]]:
        return [
            [all(truth(one, record) is True for one in where) for record in self.records]
            for where in self.wheres
        ]


def meaning(where: Sequence[Words]) -> frozenset[Any]:
    return meaning_of(FIELDS, tuple(map(Condition.model_validate, where)))


def answered(meant: Sequence[frozenset[Any]], records: Sequence[Mapping[str, Any]]) -> Any:
    """What the columns say of records, of shape (filters, records)."""
    decoder = ListDecoder(FIELDS)
    decoded = decoder.decode([json.dumps(record).encode() for record in records])
    assert not decoded.refused
    return RecordColumns([], meant, FIELDS, decoder.attribute)(decoded).passing


def lies(record: Mapping[str, Any], box: Box) -> bool:
    """Whether a record lies in a box: what a domain does not list is `other`, and null is None."""

    def inside(name: str, side: Any) -> bool:
        value = record[name]
        if name == "land" and value not in (None, "a", "b", "c"):
            value = "other"
        if isinstance(side, frozenset):
            return value in side
        low, high = side
        return (
            value is not None and (low is None or value >= low) and (high is None or value <= high)
        )

    return not box.nowhere and all(inside(name, side) for name, side in box.sides)


@cache
def world(seed: int) -> World:
    return World(seed)


SEEDS = range(60)


def wrong_answers(seeds: range = SEEDS) -> int:
    worlds = map(World, seeds)
    return sum(not np.array_equal(answered(w.meant, w.records), w.true) for w in worlds)


def records_outside_their_box(seeds: range = SEEDS) -> int:
    found = 0
    for some in map(World, seeds):
        for meant, passes in zip(some.meant, some.true, strict=True):
            box = box_of(meant, FIELDS)
            found += sum(
                not lies(record, box) for record, p in zip(some.records, passes, strict=True) if p
            )
    return found


def shared_though_apart(seeds: range = SEEDS) -> int:
    """Records that two filters let through whose boxes are said not to meet."""
    found = 0
    for some in map(World, seeds):
        seen = [box_of(meant, FIELDS) for meant in some.meant]
        for (one, first), (other, second) in combinations(zip(seen, some.true, strict=True), 2):
            if not one.meets(other):
                found += sum(a and b for a, b in zip(first, second, strict=True))
    return found


def untrue_implications(seeds: range = SEEDS) -> int:
    found = 0
    for some in map(World, seeds):
        for (part, first), (whole, second) in product(
            zip(some.meant, some.true, strict=True), repeat=2
        ):
            follows = all(b for a, b in zip(first, second, strict=True) if a)
            found += implies(FIELDS, part, whole) and not follows
    return found


def too_few_entries(seeds: range = SEEDS) -> int:
    """Filters of a monitor of which one record passes more than are allowed for."""
    found = 0
    for some in map(World, seeds):
        filters = [Selection(str(at), 1, meant) for at, meant in enumerate(some.meant)]
        most = max(map(sum, zip(*some.true, strict=True)))
        found += deepest(filters, FIELDS).number < most
    return found


def test_columns_answer_as_the_oracle_does() -> None:
    assert wrong_answers() == 0


def test_a_box_holds_every_record_that_passes() -> None:
    assert records_outside_their_box() == 0


def test_filters_whose_boxes_do_not_meet_share_no_record() -> None:
    assert shared_though_apart() == 0


def test_a_record_counts_in_no_more_watches_than_a_monitor_allows_for() -> None:
    assert too_few_entries() == 0


def test_an_implication_that_is_claimed_holds() -> None:
    assert untrue_implications() == 0
    some = [world(seed) for seed in SEEDS]
    claimed = sum(implies(FIELDS, a, b) for w in some for a, b in product(w.meant, repeat=2))
    assert claimed > 8 * len(SEEDS)  # more than each by itself


def test_features_that_differ_in_one_value_are_counted_under_the_same_rest() -> None:
    """Many watches of a monitor are read from one histogram, among the records that pass the rest."""
    names = ["land", "ok", "note"]
    records = [dict(zip(names, v, strict=True)) for v in product(*(VALUES[n] for n in names))]
    rest: list[Words] = [{"not": A}, {"any": [DE, on("land", is_null="true")]}]
    wheres: list[list[Words]] = [
        [on("note", equals=text), *rest] for text in ("u", "v", "w", "null", *"abcdef")
    ]
    features = [(Feature(None, meaning(w)), Slot(at, ("",))) for at, w in enumerate(wheres)]
    assert len(features) > MANY
    decoder = ListDecoder(FIELDS)
    counts = FeatureCounts(features, FIELDS, decoder.attribute, TickGrid(0, 1000, 1))
    rows = np.zeros((1, len(wheres)), np.int64)
    decoded = decoder.decode([json.dumps({"tags": None} | record).encode() for record in records])
    counts.write(rows, decoded, np.array([len(records)]), [0])
    assert rows[0].tolist() == [
        sum(all(truth(one, record) is True for one in where) for record in records)
        for where in wheres
    ]
    assert rows.any()


def on(name: str, **comparison: Any) -> Words:
    return {"field": name, **comparison}


A, B, DE = on("land", equals="a"), on("land", one_of=["a", "b"]), on("ok", equals="true")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A, {"not": A}),
        (B, {"not": B}),
        (A, on("land", is_null="true")),
        ({"not": A}, on("land", is_null="true")),
        (on("land", is_null="false"), on("land", is_null="true")),
        (on("note", equals="u"), {"not": on("note", is_null="false")}),
        ({"not": on("note", equals="u")}, on("note", is_null="true")),
        (DE, {"not": DE}),
        (on("n", at_least="2"), {"not": on("n", at_least="2")}),
        (on("x", at_most="0.5"), {"not": on("x", at_most="0.5")}),
        ({"any": [A, on("land", is_null="true")]}, on("land", equals="c")),
        ({"any": [{"all": [A, DE]}, {"all": [on("land", equals="b"), {"not": DE}]}]},
         {"not": {"any": [A, on("land", equals="b")]}}),
        ({"any": [on("x", at_most="0"), on("x", equals="0.5")]}, on("x", at_least="1")),
    ],
)  # fmt: skip
def test_filters_that_are_apart_are_said_to_be(one: Words, other: Words) -> None:
    first, second = (box_of(meaning([words]), FIELDS) for words in (one, other))
    assert not first.meets(second)
    assert not second.meets(first)


def test_any_is_no_wider_than_what_stands_beside_it() -> None:
    """An alternative that the other conditions rule out adds nothing to the box."""
    where = [{"any": [A, on("ok", equals="true")]}, on("ok", equals="false")]
    assert str(box_of(meaning(where), FIELDS)) == "land = a and ok = false"


_others = conditions._others


def _null_passes_not(test: int, answers: Any, row: int, known: Any) -> None:
    np.logical_not(answers[test], out=answers[row])


def _first_only(first: Any, second: Any) -> Any:
    return first


def _named_only(field: Any, values: frozenset[Any]) -> Any:
    """The complement of a category's values, without what the domain does not list."""
    side: Any = _others(field, values)
    return side - {"other"} if field.type == "category" else Stretch()


def _null_in_stretches(first: Any, second: Any) -> Any:
    """The union of a set with null and a stretch, as if stretches held null."""
    if isinstance(first, frozenset) and isinstance(second, frozenset):
        return first | second
    known = [side - {None} if isinstance(side, frozenset) else side for side in (first, second)]
    some = [side for side in known if side]
    return union(*some) if len(some) > 1 else some[0]


@pytest.mark.parametrize(
    ("module", "name", "twin", "check"),
    [
        (record_columns, "_fails", _null_passes_not, wrong_answers),
        (conditions, "union", _first_only, records_outside_their_box),
        (conditions, "union", _first_only, shared_though_apart),
        (conditions, "union", _first_only, too_few_entries),
        (conditions, "_others", _named_only, records_outside_their_box),
        (conditions, "_others", _named_only, shared_though_apart),
        (conditions, "union", _null_in_stretches, records_outside_their_box),
    ],
)
def test_the_check_catches(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, twin: Any, check: Any
) -> None:
    monkeypatch.setattr(module, name, twin)
    assert check() > 0
