"""Counts, sums, gauges and top lists from raw records, exact: one record more or another one, whatever it holds.

Oracles are written from the theory: the rows (`oracles.tick_rows`), the law of windows over ticks and what two streams
cost (`oracles.flat_windows`). Neighbours are raw: a record at any place, late and unreadable ones among them.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from oracles.flat_windows import cost, law
from oracles.tick_rows import Added, Comparison, Counted, Named, tick_rows
from unit.verify.exact.raw_streams import (
    BASE,
    Item,
    Logs,
    World,
    event,
    inserted,
    lost,
    one_more,
    pipeline,
    replaced,
    worst,
)

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.ended_windows import EndedCounts
from stream_dp.mechanisms.linear.joint_windows import NestedCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.quantiles.value_tree import ValueLevels, ValueTree

WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
COUNT = {"name": "s", "statistic": "count", "windows": ["2s"]}
KEYS = {"name": "s", "statistic": "histogram", "by": "key", "windows": ["2s"]}
TAGS = {"name": "s", "statistic": "histogram", "by": "tags", "windows": ["1s"]}
SUM = {"name": "s", "statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "windows": ["2s"]}
MEAN = {"statistic": "mean", "of": "amount", "clamp": ["0", "2"]}
NESTED = {"method": "nested"}
MEDIAN = {
    "name": "s", "statistic": "quantiles", "of": "amount", "clamp": ["0", "2"], "buckets": "2", "at": ["0.5"],
}  # fmt: skip
TOP = {"name": "s", "statistic": "top", "by": "key", "k": "2", "windows": ["2s"]}
LOGS: Logs = ((event(0, key=None), 0, event(1), 1),)
ONE: Logs = ((event(0), 0),)
KIND = {"kind": {"type": "category", "domain": ["enter", "leave", "look"]}}
GAUGE = {"name": "s", "statistic": "gauge", "of": "kind", "plus": "enter", "minus": "leave"}
MOVING: Logs = ((event(0, kind="enter", who="you"), 0, event(1, kind="leave", who="you"), 1),)
MOVED: list[Item] = [event(t, kind=k) for t in (0, 1) for k in ("enter", "leave", "look", None)]
HOLD: tuple[list[str], ...] = (
    [],
    ["x"],
    ["x", "y"],
    ["x", "nope"],
    ["nope", "nah"],
    ["x", "x"],
    ["z", "y"],
)
AMOUNTS = (-9, -1, -0.5, 0, 0.5, 1.5, 2, 2.5, 99, None, 1e308)
ODD: list[Item] = [
    b'{"time": 0', b"null", b"", b"[]", b"\xff", event(0, amount="7"), event(0, amount=True), event(0, key=5),
    event(0, tags="x"), event(0, tags=["x", 1]), event(0, tags=["x", "y", "z"]), event(0, tags=["x", "y", "nope"]),
    event(0, tags=["x", "x", "x", "y"]), event(0, tags=None), event(-1), event(9), event(0, time="x"),
    b'{"time":0,"who":"me","key":"a","tags":[],"amount":1e999}', event(0, who=None), event(0, amount=10**30),
    b'{"time":0,"who":"me","key":"a","tags":[],"amount":NaN}', event(0, more={"a": [1]}), event(0, amount=2**63),
    b'{"time":0,"who":"me","key":"a","tags":[],"amount":"x","amount":2}',
    b'{"time":0,"who":"me","key":"a","tags":[],"amount":' + b"9" * 400 + b"}",
]  # fmt: skip


def records(
    ticks: Sequence[int] = (0, 1),
    keys: Sequence[Any] = ("a",),
    tags: Sequence[Any] = ([],),
    amounts: Sequence[Any] = (1,),
) -> list[Item]:
    """Readable records of all these contents."""
    return [
        event(t, key=k, tags=g, amount=a)
        for t in ticks
        for k in keys
        for g in tags
        for a in amounts
    ]


EACH = {"name": "s", "every": ["2s"]}
NAMES = ("a", "zz", None)
CASES: dict[str, tuple[dict[str, Any], dict[str, str], int, Logs, list[Item], dict[str, Any]]] = {
    "count": (COUNT | {"epsilon": "1"}, {}, 2, LOGS, records() + ODD, {"epsilon": Fraction(2)}),
    "count, any tick": (
        COUNT | {"epsilon": "2"}, ANY, 2, LOGS, [*records(), event(9)], {"epsilon": Fraction(2)},
    ),
    "count, not where": (
        COUNT | {"epsilon": "1", "where": [{"field": "amount", "at_least": "1"}]},
        WITHIN, 2, LOGS, records((0,), amounts=(0, 1, None)), {"epsilon": Fraction(2)},
    ),
    "count, each window": (
        EACH | {"statistic": "count", "epsilon": "1"}, {}, 2, LOGS, records() + ODD, {"epsilon": Fraction(2)},
    ),
    "count, each of two windows": (
        EACH | {"statistic": "count", "every": ["1s", "2s"], "epsilon": "2"}, {}, 2, LOGS, records(),
        {"epsilon": Fraction(4)},
    ),
    "count, each window, any tick": (
        EACH | {"statistic": "count", "every": ["1s"], "epsilon": "2"}, ANY, 2, LOGS, records(),
        {"epsilon": Fraction(2)},
    ),
    "count, running in each of two windows, any tick": (
        EACH | {"statistic": "count", "every": ["1s", "2s"], "running": "true", "epsilon": "4"},
        ANY, 2, LOGS, records(),
        {"counters": tuple(Counter(1, Fraction(2), Neighbors.ADD_REMOVE, length) for length in (1, 2))},
    ),
    "histogram, running in each window, replaced": (
        EACH | {"statistic": "histogram", "by": "key", "running": "true", "epsilon": "2"}, WITHIN, 2, LOGS,
        records((0,), NAMES), {"counters": (Counter(2, Fraction(2), Neighbors.ADD_REMOVE, 2),)},
    ),
    "sum, each window, replaced": (
        EACH | {"statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "epsilon": "6"},
        WITHIN, 2, LOGS, records((0,), amounts=AMOUNTS), {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "histogram": (KEYS | {"epsilon": "1"}, {}, 2, LOGS, records(keys=NAMES) + ODD, {"epsilon": Fraction(2)}),
    "histogram, replaced": (
        KEYS | {"epsilon": "2"}, WITHIN, 2, LOGS, records((0,), NAMES) + ODD[:8], {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "histogram, any tick": (
        KEYS | {"epsilon": "2"}, ANY, 2, LOGS, records(keys=NAMES), {"epsilon": Fraction(2)},
    ),
    "list": (TAGS | {"epsilon": "2"}, {}, 1, ONE, records((0,), tags=HOLD) + ODD, {"ones": 1}),
    "list, replaced": (
        TAGS | {"epsilon": "4"}, WITHIN, 1, ONE, records((0,), tags=HOLD), {"ones": 1},
    ),
    "sum": (SUM | {"epsilon": "2"}, {}, 2, LOGS, records(amounts=AMOUNTS) + ODD, {"highest": 1}),
    "sum, replaced": (
        SUM | {"epsilon": "6"}, WITHIN, 2, LOGS, records((0,), amounts=AMOUNTS), {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "sum, any tick": (
        SUM | {"epsilon": "4"}, ANY, 2, LOGS, records(amounts=(-1, 2, None)), {"epsilon": Fraction(4)},
    ),
    "sum far from 0, replaced by null": (
        SUM | {"clamp": ["1", "2"], "epsilon": "2"}, WITHIN, 2, LOGS, records((0,), amounts=(0, 9, None)),
        {"highest": 1},
    ),
    "sum by key, replaced": (
        SUM | {"by": "key", "windows": ["1s"], "epsilon": "4"}, WITHIN, 1, ONE,
        records((0,), ("a", None), amounts=(-1, 2, None)), {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "gauge": (GAUGE | {"epsilon": "1"}, {}, 2, MOVING, MOVED, {"epsilon": Fraction(2)}),
    "gauge, a leave for an enter": (
        GAUGE | {"windows": ["2s"], "epsilon": "2"}, WITHIN, 2, MOVING, MOVED[:4], {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "gauge, each window, a leave for an enter": (
        EACH | GAUGE | {"epsilon": "2"}, WITHIN, 2, MOVING, MOVED[:4], {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "mean, each window": (
        EACH | MEAN | {"epsilon": "5"}, {}, 2, LOGS, records(amounts=AMOUNTS) + ODD,
        {"counts": EndedCounts(1, Fraction(4), Neighbors.ADD_REMOVE, (2,))},
    ),
    "top, each window": (
        EACH | {"statistic": "top", "by": "key", "k": "2", "epsilon": "1"}, {}, 2, LOGS, records(keys=NAMES),
        {"epsilon": Fraction(2)},
    ),
    "count, nested": (
        COUNT | NESTED | {"epsilon": "1"}, {}, 2, LOGS, records() + ODD,
        {"counter": NestedCounter(1, Fraction(2), Neighbors.ADD_REMOVE, FLAT)},
    ),
    "histogram, nested, replaced": (
        KEYS | NESTED | {"epsilon": "2"}, WITHIN, 2, LOGS, records((0,), NAMES),
        {"counter": NestedCounter(2, Fraction(2), Neighbors.ADD_REMOVE, FLAT)},
    ),
    "list, nested": (
        TAGS | NESTED | {"epsilon": "2"}, {}, 1, ONE, records((0,), tags=HOLD) + ODD,
        {"counter": NestedCounter(4, Fraction(2), Neighbors.ADD_REMOVE, FLAT)},
    ),
    "count, nested, any tick": (
        COUNT | NESTED | {"epsilon": "2"}, ANY, 2, LOGS, [*records(), event(9)],
        {"counter": NestedCounter(1, Fraction(2), Neighbors.ADD_REMOVE, FLAT)},
    ),
    "sum, running in each window": (
        EACH | {"statistic": "sum", "of": "amount", "clamp": ["-1", "2"], "running": "true", "epsilon": "2"},
        {}, 2, LOGS, records(amounts=AMOUNTS),
        {"counters": (SumCounter(1, Fraction(2), Neighbors.ADD_REMOVE, 2, -1, 1),)},
    ),
    "top, running in each window": (
        EACH | {"statistic": "top", "by": "key", "k": "2", "running": "true", "epsilon": "1"}, {}, 2, LOGS,
        records(keys=NAMES), {"counters": (Counter(2, Fraction(2), Neighbors.ADD_REMOVE, 2),)},
    ),
    "maximum": (
        {"name": "s", "statistic": "maximum", "by": "key", "epsilon": "2"}, {}, 1, ONE, records((0,), NAMES),
        {"epsilon": Fraction(4)},
    ),
    "quantiles, hop": (
        MEDIAN | {"windows": ["2s"], "hop": "2s", "epsilon": "1"}, {}, 2, LOGS,
        records(amounts=(-1, 0.5, 1.5, 9, None)),
        {"tree": ValueTree(ValueLevels(4, 4), WindowForest(4, Fraction(2), Neighbors.ADD_REMOVE, (1,), FLAT), 1, 2)},
    ),
    "quantiles, hop, replaced": (
        MEDIAN | {"windows": ["2s"], "hop": "2s", "epsilon": "2"}, WITHIN, 2, LOGS,
        records((0,), amounts=(0.5, 1.5, None)),
        {"tree": ValueTree(ValueLevels(4, 4), WindowForest(4, Fraction(2), Neighbors.ADD_REMOVE, (1,), FLAT), 1, 2)},
    ),
    "top": (TOP | {"epsilon": "1"}, {}, 2, LOGS, records(keys=NAMES), {"epsilon": Fraction(2)}),
    "top, any tick": (TOP | {"epsilon": "2"}, ANY, 2, LOGS, records(keys=NAMES), {"epsilon": Fraction(2)}),
}  # fmt: skip
NEIGHBORS = {"add_remove": one_more, "replace": replaced}


def far(series: dict[str, Any]) -> int:
    """How far noise has to be played: one beyond what one record moves an entry by."""
    if "by" in series:
        return 3
    return {"sum": 4, "gauge": 3}.get(series["statistic"], 2)


@pytest.mark.parametrize("case", CASES)
def test_raw_neighbours_lose_what_plan_states_and_a_twin_loses_more(case: str) -> None:
    """No more, and no less: what the plan states is met by some pair of records."""
    series, privacy, ticks, logs, some, broken = CASES[case]
    radius = 5 if case == "sum by key, replaced" else 2 if "list" in case else far(series)
    world = World(
        pipeline([series], privacy, ticks, more=KIND if "plus" in series else None), radius
    )
    pairs = list(NEIGHBORS[privacy.get("neighbors", "add_remove")](logs, some))
    result, where = worst(world, pairs)
    assert result == world.stated == Fraction(series["epsilon"]), where
    twin = world.twin(**broken)
    assert any(worst(twin, those)[0] > world.stated for those in ([where], pairs))


@pytest.mark.parametrize("privacy", [{}, WITHIN], ids=["added", "replaced"])
def test_a_choice_of_a_quantile_loses_no_more_than_plan_states(privacy: dict[str, str]) -> None:
    """Of few buckets half of it; many lose nearly all (`statistical.test_privacy_quantiles`, with its twins)."""
    world = World(pipeline([MEDIAN | {"every": "2s", "epsilon": "4"}], privacy, 2), 9)
    some = records((0,), amounts=(-1, 0.5, 1.5, None))
    full: Logs = ((*[event(0, amount=n) for n in (0.5, 0.5, 1.5, 1.5)], 0, 1),)
    pairs = NEIGHBORS[privacy.get("neighbors", "add_remove")]
    assert 2 * worst(world, pairs(full, some))[0] == world.stated == 4


def going(series: dict[str, Any]) -> Counted:
    """What a series counts, for the oracle."""
    by = {"key": Named("key", ("a",)), "tags": Named("tags", ("x", "y", "z"))}
    of = Added("amount", -1, 2, 1.0) if series["statistic"] == "sum" else None
    where = (Comparison("amount", "at_least", (1,)),) if "where" in series else ()
    return Counted(0, (by[series["by"]],) if "by" in series else (), where, of)


def as_values(record: Item) -> dict[str, Any]:
    """A readable record, for the oracle."""
    assert isinstance(record, dict)
    return record | {"tags": tuple(record["tags"])}


def said(bodies: tuple[bytes, ...]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the releases, in their order."""
    result = []
    for body in bodies:
        parts = json.loads(body)["windows"].values()
        numbers = [each.get("values", {"": each.get("value")}).values() for each in parts]
        result.append(tuple(int(one) for each in numbers for one in each))
    return tuple(result)


@pytest.mark.parametrize(
    ("series", "h"),
    [
        (COUNT | {"epsilon": "1"}, 1), (KEYS | {"epsilon": "1"}, 1), (SUM | {"epsilon": "2"}, 2),
        (TAGS | {"epsilon": "2"}, 2),
    ],
    ids=["count", "histogram", "sum", "list"],
)  # fmt: skip
def test_releases_have_the_law_of_the_theory(series: dict[str, Any], h: int) -> None:
    """Records in, all windows of all ticks out: the oracle knows the records and the description, no class."""
    ticks, radius = (1, 2) if h == 2 and "by" in series else (2, 2)
    start: Logs = ONE if ticks == 1 else LOGS
    world = World(pipeline([series], {}, ticks), radius)
    windows = [1, int(series["windows"][0][0])]
    base = [item for item in start[0] if not isinstance(item, int)]
    counted = going(series)
    some = records(range(ticks), ("a", "zz"), HOLD[:3], (2, -0.5, None))
    width = world.series[0].rows.stop

    def rows_of(those: Sequence[Item]) -> list[list[int]]:
        values = [as_values(one) for one in those]
        result = tick_rows(values, [one["time"] // 1000 for one in values], [counted], width)
        return [result.get(tick, [0] * width) for tick in range(ticks)]

    plain = rows_of(base)
    for record in some[:: 1 if ticks == 1 else 3]:
        logs = inserted(start, 0, 0, record)
        rows = rows_of([*base, record])
        assert [list(row) for row in world.rows(logs)] == rows
        real: dict[Any, Fraction] = {}
        for bodies, chance in world.law(0, world.rows(logs)).items():
            real[said(bodies)] = real.get(said(bodies), Fraction(0)) + chance
        a = BASE ** (Fraction(series["epsilon"]) / h).numerator
        assert real == law(rows, windows, a, radius, signed=series["statistic"] == "sum")
        if radius > max(
            abs(x - y)
            for one, two in zip(rows, plain, strict=True)
            for x, y in zip(one, two, strict=True)
        ):
            left, right = (world.law(0, world.rows(each)) for each in (logs, start))
            assert lost(left, right) == cost(rows, plain, Fraction(series["epsilon"]), h)


@pytest.mark.parametrize(
    ("series", "twin"),
    [
        ({"name": "s", "statistic": "count", "epsilon": "2"}, {"epsilon": Fraction(4)}),
        (SUM | {"windows": ["ever"], "clamp": ["0", "1"], "epsilon": "4"}, {}),
        (COUNT | {"windows": ["1s", "ever"], "epsilon": "6"}, {}),
    ],
    ids=["so far", "sum, ever", "window and ever"],
)  # fmt: skip
def test_counts_so_far_lose_what_is_stated(series: dict[str, Any], twin: dict[str, Any]) -> None:
    """Beside windows too: a forest and a counter that see the same records add up."""
    world = World(pipeline([series], {}, 2), 2)
    pairs = list(one_more(LOGS, records(amounts=(1, None))))
    result, where = worst(world, pairs)
    assert result == world.stated
    if twin:
        assert worst(world.twin(**twin), [where])[0] > world.stated
