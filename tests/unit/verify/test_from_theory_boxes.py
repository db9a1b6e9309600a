"""Series with `where` from raw records, exact: what all their releases lose together, and what the plan states.

The plan books what one event meets: of series whose boxes do not meet an event pays for the largest, not for all. The
oracle is the engine: records go in as bytes, the guard, the router and the real mechanisms say what comes out. Records
lie in one box, in several, at a common end of two, outside of every domain, are null, have no such field, or cannot be
read. Boxes that claim too little are entries of `audit --rules` (`test_live_instances`).
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from unit.verify.exact.raw_streams import (
    Item,
    Logs,
    World,
    event,
    inserted,
    one_more,
    pipeline,
    replaced,
    worst,
)

ADDED: dict[str, str] = {}
WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
USERS = {"unit": "user", "user": "who", "max_events": "2", "per": "2s"}
NULLABLE = {"nullable": "true"}
FIELDS: dict[str, Any] = {
    "land": {"type": "category", "domain": ["a", "b", "c", "null"], **NULLABLE},
    "n": {"type": "integer", **NULLABLE},
    "ok": {"type": "boolean", **NULLABLE},
    "city": {"type": "text", **NULLABLE},
    "solo": {"type": "list", "domain": ["x", "y"], "most": "1"},
}
NOTHING: dict[str, Any] = {"land": None, "n": None, "ok": None, "city": None, "solo": []}
Where = dict[str, Any]
Pairs = Iterator[tuple[Logs, Logs]]


def record(tick: int = 0, **values: Any) -> dict[str, Any]:
    return event(tick, **(NOTHING | values))


def without(field: str, tick: int = 0) -> dict[str, Any]:
    """A record that does not have the field."""
    return {name: value for name, value in record(tick).items() if name != field}


def test_of(field: str, **operator: Any) -> Where:
    return {"field": field, **operator}


test_of.__test__ = False  # type: ignore[attr-defined]


def count(name: str, *where: Where, epsilon: str = "1", **more: Any) -> dict[str, Any]:
    series = {"name": name, "statistic": "count", "windows": ["1s"], "epsilon": epsilon}
    return series | {"where": list(where)} | more


A, B, C = (test_of("land", equals=land) for land in "abc")
MANY, FEW = test_of("n", at_least="5"), test_of("n", at_most="4")
SUM = {"statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "windows": ["1s"]}
KEYS = {"name": "keys", "statistic": "histogram", "by": "key", "windows": ["1s"]}
MONITOR = {"name": "m", "statistic": "monitor", "most": "1"}
WATCH = {"name": "w", "above": "1", "where": [MANY]}

LANDS: list[Item] = [
    *[record(land=land) for land in ("a", "b", "c", "null", "zz", "other", "a ", "A", None, 1)],
    without("land"),
    json.dumps(record(land="a")).replace('"land": "a"', '"land": "a", "land": "b"').encode(),
    json.dumps(record(land="a")).replace('"land": "a"', '"land": "\\u0061"').encode(),
]
AMOUNTS: list[Item] = [
    *[record(amount=value) for value in (-9, -0.0, 0.5, 1, 1.5, 2, 9, None, 1e308, 10**29, True)],
    json.dumps(record()).replace('"amount": 1', '"amount": NaN').encode(),
    json.dumps(record()).replace('"amount": 1', '"amount": 1e999').encode(),
]
INTEGERS: list[Item] = [
    *[record(n=value) for value in (4, 5, 6, None, 5.0, 2**53, 2**53 + 1, 2**63 - 1, 2**63)],
    without("n"),
]
CROSSED: list[Item] = [record(land=land, n=n) for land in ("a", "b", None) for n in (4, 5, None)]
TAGS: list[Item] = [
    record(tags=tags)
    for tags in ([], ["x"], ["x", "y"], ["x", "x"], ["x", "nope"], ["x", "y", "z"], ["nope"])
]
TEXTS: list[Item] = [
    record(city=city) for city in ("a", "a ", "null", None, "A", "\u00e9", "e\u0301", "")
]


@dataclass(frozen=True)
class Cell:
    """Series, some records, and by relation what is stated and what is lost, in units."""

    series: Sequence[dict[str, Any]]
    records: Sequence[Item]
    added: tuple[int, int]
    within: tuple[int, int] | None = None
    radius: int = 2


CELLS: dict[str, Cell] = {
    "three values": Cell([count("a", A), count("b", B), count("c", C)], LANDS, (1, 1), (2, 2)),
    "values that overlap": Cell(
        [
            count("a", test_of("land", one_of=["a", "b"])),
            count("b", test_of("land", one_of=["b", "null"])),
            count("c", test_of("land", equals="null")), count("all"),
        ], LANDS, (3, 3), (4, 3),
    ),
    "the same box twice": Cell(
        [count("a", A), count("again", A, epsilon="2"), count("b", B)], LANDS, (3, 3), (4, 4),
    ),
    "booleans": Cell(
        [count("yes", test_of("ok", equals="true")), count("no", test_of("ok", equals="FALSE"), epsilon="2")],
        [record(ok=value) for value in (True, False, None, 1, 0, "true")], (2, 2), (3, 3),
    ),
    "integers that touch": Cell(
        [count("a", test_of("n", at_most="5")), count("b", test_of("n", at_least="5")), count("c", MANY, FEW)],
        INTEGERS, (2, 2), None,
    ),
    "large integers": Cell(
        [count("a", test_of("n", equals=str(2**53))), count("b", test_of("n", equals=str(2**53 + 1))),
         count("c", test_of("n", at_least=str(2**53 + 1)))],
        INTEGERS, (2, 2), (3, 3),
    ),
    "numbers that touch": Cell(
        [count("a", test_of("amount", at_most="0.5")), count("b", test_of("amount", at_least="0.5")),
         count("c", test_of("amount", one_of=["-0", "0.5"]))],
        AMOUNTS, (3, 3), (3, 3),
    ),
    "large numbers": Cell(
        [count("a", test_of("amount", equals=str(10**29))), count("b", test_of("amount", equals=str(10**29 + 1))),
         count("c", test_of("amount", at_least=str(10**29)))],
        AMOUNTS, (3, 3), (3, 3),
    ),
    "texts": Cell(
        [count("a", test_of("city", equals="a")), count("b", test_of("city", one_of=["a", "null"])),
         count("c", test_of("city", equals="a ")), count("d", test_of("city", equals="e\u0301"))],
        TEXTS, (2, 2), (3, 3),
    ),
    "a list of two": Cell(
        [count(tag, test_of("tags", contains=tag)) for tag in "xy"], TAGS, (2, 2), (2, 2),
    ),
    "a list of one": Cell(
        [count(tag, test_of("solo", contains=tag)) for tag in "xy"],
        [record(solo=tags) for tags in ([], ["x"], ["y"], ["x", "x"], ["nope"])], (2, 1), (2, 2),
    ),
    "crossed": Cell(
        [count("a", A, MANY), count("b", B, FEW), count("many", MANY), count("land", A)], CROSSED, (3, 3), (4, 4),
    ),
    "sums by their amounts": Cell(
        [SUM | {"name": "s", "epsilon": "2", "where": [test_of("amount", at_least="1")]},
         SUM | {"name": "r", "epsilon": "2", "where": [test_of("amount", at_most="0.5")]},
         count("c", test_of("amount", at_least="2"))],
        AMOUNTS, (3, 3), None, 6,
    ),
    "a histogram": Cell(
        [KEYS | {"epsilon": "2", "where": [A]}, count("b", B), count("ab", test_of("land", one_of=["a", "b"]))],
        [record(land=land, key=key) for land in ("a", "b", None) for key in ("a", "zz", None)], (3, 3), (4, 2), 3,
    ),
    "a monitor with a narrower watch": Cell(
        [MONITOR | {"epsilon": "1", "where": [A], "watch": [WATCH]}, count("b", B), count("few", FEW)],
        CROSSED, (2, 2), (3, 3),
    ),
    "alerts": Cell(
        [{"name": "m", "statistic": "alerts", "epsilon": "2", "by": "key", "where": [A], "threshold": "1"},
         count("b", B)],
        LANDS, (2, 2), (3, 2),
    ),
}  # fmt: skip
SHARES: Sequence[dict[str, Any]] = [
    count("ab", test_of("land", one_of=["a", "b"])), count("a", A), count("b", B),
    {"name": "share", "statistic": "ratio", "of": "a", "over": "ab"},
]  # fmt: skip
NEAR = ("three values", "numbers that touch", "crossed", "a monitor with a narrower watch")
"""The cells of the default run; all of them are in `tests/full.txt`."""
START: Logs = ((record(0, who="you"), 0),)


def lost(cell: Cell, privacy: dict[str, str]) -> tuple[float, float]:
    world = World(pipeline(cell.series, privacy, 1, more=FIELDS), cell.radius)
    pairs = replaced if privacy else one_more
    return float(world.stated), float(worst(world, pairs(START, cell.records))[0])


@pytest.mark.parametrize("name", NEAR)
def test_an_event_pays_for_what_it_meets(name: str) -> None:
    cell = CELLS[name]
    assert lost(cell, ADDED) == cell.added


@pytest.mark.parametrize("relation", ["added", "within"])
@pytest.mark.parametrize("name", CELLS)
def test_every_kind_of_box_costs_what_is_stated(name: str, relation: str) -> None:
    cell = CELLS[name]
    expected = cell.added if relation == "added" else cell.within
    if expected is not None:
        assert lost(cell, ADDED if relation == "added" else WITHIN) == expected


# --- neighbours at two ticks ----------------------------------------------------------------------

TWO: Logs = ((record(0, who="you"), 0, record(1, who="you"), 1),)


def two_ticks(records: Sequence[dict[str, Any]]) -> list[Item]:
    return [values | {"time": 1000 * tick} for tick in (0, 1) for values in records]


def of_a_user(records: Sequence[Item], most: int = 2) -> Pairs:
    """So many of these records of one user, early and late, or none."""
    for own in itertools.combinations_with_replacement(records, most):
        for place in (1, 2):
            logs = TWO
            for item in own:
                logs = inserted(logs, 0, place, item)
            yield logs, TWO


MOVED = [count("a", A, epsilon="2"), count("b", B, epsilon="2"), count("c", C, epsilon="2")]
BOTH: list[dict[str, Any]] = [record(land="a"), record(land="b"), record(land=None)]


def test_an_event_that_moves_pays_half_at_either_end() -> None:
    world = World(pipeline(MOVED, ANY, 2, more=FIELDS))
    result, where = worst(world, replaced(TWO, two_ticks(BOTH)))
    assert result == world.stated == 2, where


def test_the_events_of_a_user_pay_a_part_each() -> None:
    """Two in one box, or one in either: what lies in other boxes, or beyond the cap, costs nothing more."""
    world = World(pipeline(MOVED, USERS, 2, more=FIELDS), 3)
    result, where = worst(world, of_a_user(two_ticks(BOTH)[:5], 3))
    assert result == world.stated == 2, where


def who_was(land: str) -> dict[str, Any]:
    where = [test_of("land", equals=land)]
    return {
        "name": land,
        "statistic": "distinct",
        "of": "who",
        "every": "2s",
        "running": True,
        "epsilon": "2",
        "where": where,
    }


def test_users_who_are_counted_themselves_pay_everywhere() -> None:
    """One event of a user in either box costs all that either series claims; boxes that are kept claim half."""
    world = World(pipeline([who_was("a"), who_was("b")], USERS, 2, more=FIELDS))
    pairs = list(of_a_user(two_ticks(BOTH)))
    result, where = worst(world, pairs)
    assert result == world.stated == 4, where


def test_an_identifier_that_comes_earlier_costs_in_one_box() -> None:
    """One event more takes a first arrival from a later tick: two units, all in the box of the event."""
    ids = [who_was(land) | {"of": "city", "epsilon": "2"} for land in "ab"]
    world = World(pipeline(ids, ADDED, 2, more=FIELDS))
    later: Logs = ((record(0), 0, record(1, land="a", city="p"), record(1, land="b", city="p"), 1),)
    more = [
        record(t, land=land, city=city) for t in (0, 1) for land in "ab" for city in ("p", None)
    ]
    result, where = worst(world, one_more(later, more))
    assert result == world.stated == 2, where


def test_what_is_made_of_releases_has_no_box_and_costs_nothing() -> None:
    world = World(pipeline(SHARES, ADDED, 1, more=FIELDS))
    assert worst(world, one_more(START, LANDS))[0] == world.stated == 2


def test_users_who_are_cut_off_cost_beside_every_box() -> None:
    """The guard sees all events: what it tells adds to the heaviest box."""
    cut = {"name": "cut", "statistic": "cut_off", "window": "2s", "epsilon": "4"}
    world = World(pipeline([*MOVED[:2], cut], USERS, 2, more=FIELDS), 3)
    result, where = worst(world, of_a_user([*two_ticks(BOTH[:1]), BOTH[1]], 3))
    assert 2 < result <= world.stated == 6, where
