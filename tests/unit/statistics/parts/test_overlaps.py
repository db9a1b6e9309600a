"""How many filters one event can pass at once, against all events of a small schema; and what may not be too small."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from stream_dp.records.conditions import Needs, Test
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    IntegerField,
    ListField,
    NumberField,
    TextField,
)
from stream_dp.statistics import monitor
from stream_dp.statistics.monitor import Selection, beside, deepest

FIELDS: dict[str, Any] = {
    "kind": CategoryField(domain=("x", "y", "z")),
    "size": IntegerField(),
    "share": NumberField(),
    "late": BooleanField(),
    "note": TextField(),
    "tags": ListField(domain=("p", "q"), most=2),
}
VALUES: dict[str, list[Any]] = {
    "kind": [None, "x", "y", "z", "?"],
    "size": [None, *range(-1, 5)],
    "share": [None, 0.0, 0.25, 0.5, 0.75, 1.0],
    "late": [True, False],
    "note": [None, "a", "b", "c"],
    "tags": [(), ("p",), ("q",), ("p", "q")],
}


def passes(value: Any, test: Test) -> bool:
    if value is None:
        return False
    (first, *_) = test.values
    match test.operator:
        case "at_least":
            return bool(value >= first)
        case "at_most":
            return bool(value <= first)
        case "contains":
            return first in value
    return value in test.values


def brute(filters: Sequence[Selection], fields: Sequence[str], inside: Needs = frozenset()) -> int:
    """The most entries of an event that passes `inside`; 0 if there is none."""

    def lies(event: Sequence[Any], where: Needs) -> bool:
        tests = (test for test in where if isinstance(test, Test))
        return all(passes(event[fields.index(t.field)], t) for t in tests)

    return max(
        (
            sum(one.ones for one in filters if lies(event, one.where))
            for event in itertools.product(*(VALUES[field] for field in fields))
            if lies(event, inside)
        ),
        default=0,
    )


def condition(random: random.Random, field: str) -> Test:
    match field:
        case "size" | "share":
            operator = random.choice(["at_least", "at_most", "equals"])
            value = random.choice([0, 1, 2, 3] if field == "size" else [0.25, 0.5, 0.75])
            return Test(field, operator, frozenset([value]))
        case "late":
            return Test(field, "equals", frozenset([random.random() < 0.5]))
        case "tags":
            return Test(field, "contains", frozenset([random.choice("pq")]))
    named = ["x", "y", "z"] if field == "kind" else ["a", "b"]
    some = random.sample(named, random.randint(1, 2))
    return Test(field, "one_of", frozenset(some))


def some_filters(seed: int, fields: Sequence[str]) -> list[Selection]:
    own = random.Random(seed)
    return [
        Selection(
            f"w{number}",
            own.choice([1, 1, 2]),
            frozenset(condition(own, own.choice(fields)) for _ in range(own.randint(0, 4))),
        )
        for number in range(own.randint(1, 9))
    ]


@pytest.mark.parametrize(
    ("fields", "seeds"),
    [(("kind", "size"), 300), (("share", "late", "note"), 300), (tuple(FIELDS), 60)],
)
def test_the_deepest_overlap_is_that_of_all_events(fields: tuple[str, ...], seeds: int) -> None:
    deeper = 0
    for seed in range(seeds):
        filters = some_filters(seed, fields)
        found, most = deepest(filters, FIELDS), brute(filters, fields)
        assert found.number == most
        assert found.number == sum(f.ones for f in filters if f.name in found.names)
        deeper += most < sum(f.ones for f in filters)
    assert deeper > seeds // 3  # not everything overlaps


@pytest.mark.parametrize("fields", [("kind", "size"), ("share", "late", "note")])
def test_one_more_filter_is_looked_at_beside_those_that_it_can_meet(
    fields: tuple[str, ...],
) -> None:
    """It gives the most for its own events, and with how deep the others are alone what the search over all gives."""
    fewer = 0
    for seed in range(300):
        *others, one = some_filters(seed, fields)
        found = beside(one, others, FIELDS)
        whole = deepest([*others, one], FIELDS)
        alone = deepest(others, FIELDS).number if others else 0
        assert max(found.number, alone) == whole.number
        assert found.number == brute([*others, one], fields, one.where)
        fewer += found.number < whole.number
    assert fewer > 30


def equals(value: Any, field: str = "kind") -> frozenset[Test]:
    return frozenset([Test(field, "equals", frozenset([value]))])


def test_the_filters_that_reach_it_are_named() -> None:
    late, soon = (Test("late", "equals", frozenset([value])) for value in (True, False))
    filters = [
        Selection("x", 1, equals("x") | {soon}),
        Selection("y", 1, equals("y") | {late}),
        Selection("all", 1, frozenset()),
        Selection("late", 1, frozenset([late])),
    ]
    assert deepest(filters, FIELDS) == (3, ("y", "all", "late"))


def test_many_filters_take_no_time_and_a_search_that_is_cut_short_is_not_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = {**FIELDS, "kind": CategoryField(domain=tuple(map(str, range(30_000))))}
    filters = [Selection(str(at), 1, equals(str(at))) for at in range(30_000)]
    low = Test("size", "at_least", frozenset([1]))
    some = [Selection(f"f{at}", 1, frozenset([low])) for at in range(3)]
    assert deepest([*filters, *some], wide).number == 4
    monkeypatch.setattr(monitor, "MOST_NODES", 1)
    for seed in range(50):
        filters = some_filters(seed, tuple(FIELDS))
        assert deepest(filters, FIELDS).number >= brute(filters, tuple(FIELDS))
