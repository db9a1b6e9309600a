"""Gauges from raw records, exact: one record more, or another in its place, that counts up, down or not at all.

The oracle is written from the description: what came less what went, of each tick (`signed`). The worst raw
neighbours lose what `plan` states; where the leave in an enter's place is not charged, or the other key, or behind
counts that cannot fall below 0, they lose more.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from unit.verify.exact.raw_streams import (
    Item,
    Logs,
    Rows,
    World,
    event,
    one_more,
    pipeline,
    replaced,
    worst,
)

from stream_dp.core.neighbors import Neighbors

WITHIN = {"neighbors": "replace", "moves": "within_tick"}
ANY = {"neighbors": "replace"}
KIND = {"kind": {"type": "category", "domain": ["enter", "leave", "look"]}}
GAUGE = {"name": "s", "statistic": "gauge", "of": "kind", "plus": "enter", "minus": "leave"}
ROLLING = GAUGE | {"windows": ["2s"]}
BY = GAUGE | {"windows": ["1s"], "by": "key"}
KINDS = ("enter", "leave", "look", None)
UNITS = {"enter": 1, "leave": -1}


def moved(tick: int, kind: Any, **values: Any) -> dict[str, Any]:
    """A record of this kind."""
    return event(tick, kind=kind, **values)


LOGS: Logs = ((moved(0, "enter", who="you"), 0, moved(1, "leave", who="you"), 1),)
ONE: Logs = ((moved(0, "leave", who="you"), 0),)
ADD = [moved(tick, kind) for tick in (0, 1) for kind in KINDS]
KEYED: list[Item] = [moved(0, k, key=a) for k in KINDS[:2] for a in ("a", None)]


def signed(logs: Logs) -> Rows:
    """What came less what went of each tick, of records that are on time."""
    (log,) = logs
    rows, now = [0] * sum(isinstance(one, int) for one in log), 0
    for one in log:
        if isinstance(one, int):
            now = one + 1
        elif isinstance(one, dict) and one["time"] // 1000 >= now:
            rows[one["time"] // 1000] += UNITS.get(one["kind"], 0)
    return tuple((one,) for one in rows)


TWO = {"epsilon": Fraction(2)}
CASES: dict[str, tuple[dict[str, Any], dict[str, str], Logs, Sequence[Item], int, dict[str, Any]]]
CASES = {
    "so far": (GAUGE, {}, LOGS, ADD, 1, TWO),
    "floor": (GAUGE | {"floor": "0"}, {}, LOGS, ADD, 1, TWO),
    "windows": (ROLLING, {}, LOGS, ADD, 1, TWO),
    "a leave for an enter": (
        ROLLING, WITHIN, LOGS, [moved(0, k) for k in KINDS], 2, {"neighbors": Neighbors.ADD_REMOVE},
    ),
    "any tick": (ROLLING, ANY, LOGS, [moved(t, k) for t in (0, 1) for k in KINDS[:2]], 2, TWO),
    "by key": (BY, WITHIN, ONE, KEYED, 2, {"neighbors": Neighbors.ADD_REMOVE}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_neighbours_lose_what_plan_states_and_a_twin_loses_more(case: str) -> None:
    """Up to the last third of a unit, either way."""
    series, privacy, logs, some, units, broken = CASES[case]
    ticks = sum(isinstance(one, int) for one in logs[0])
    spec = pipeline([series | {"epsilon": str(units)}], privacy, ticks, more=KIND)
    world = World(spec, 2 if units == 1 else 3)
    pairs = list((replaced if privacy else one_more)(logs, some))
    for pair in pairs if "by" not in series else ():
        assert [world.rows(one) for one in pair] == [signed(one) for one in pair]
    found, where = worst(world, pairs)
    assert found == world.stated == units, where
    assert worst(world.twin(**broken), pairs)[0] > units


def test_a_count_that_cannot_fall_below_0_is_caught() -> None:
    """A floor on what is counted tells later of what came before: one record moves two ticks."""
    spec = pipeline([ROLLING | {"epsilon": "1"}], {}, 2, more=KIND)
    logs: Logs = ((moved(0, "enter"), 0, moved(1, "leave"), 1),)
    less: Logs = ((0, moved(1, "leave"), 1),)
    assert worst(World(spec, 2), [(logs, less)])[0] == 1

    def floored(rows: Rows) -> Rows:
        found, inside = [], 0
        for (change,) in rows:
            after = max(0, inside + change)
            found.append((after - inside,))
            inside = after
        return tuple(found)

    seen = {repr(one): floored(signed(one)) for one in (logs, less)}
    assert worst(World(spec, 2, seen=seen), [(logs, less)])[0] == 2
