"""Alerts and watches over windows from raw records, blind: one record more, another in its place, or a user's.

From docs/alerts.md alone: whatever a record holds, and whenever it comes, what is published loses what `plan` states
and at the scale of an alert since its last one twice that: in a window what one more shifts comes and leaves again.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from unit.verify.exact.raw_streams import (
    Item,
    Logs,
    World,
    cut_off,
    event,
    inserted,
    one_more,
    pipeline,
    replaced,
)
from unit.verify.exact.talks import NEAR, units

ALERTS = {"name": "s", "statistic": "alerts", "threshold": "1", "windows": ["2s"], "by": "key"}
OVER = {"name": "w", "above": "1", "over": "2s", "where": [{"field": "key", "equals": "a"}]}
WATCH = {"name": "s", "statistic": "monitor", "most": "1", "watch": [OVER]}
SUM = {"of": "amount", "clamp": ["-1", "1"]}
WITHIN = {"neighbors": "replace", "moves": "within_tick"}
USERS = {"unit": "user", "user": "who", "overall": "2"}


def quiet(ticks: int) -> Logs:
    """Nothing but ends of ticks, and a record that nothing counts."""
    return ((event(0, who="you", key=None, amount=None), *range(ticks)),)


def loss(world: World, pairs: Iterable[tuple[Logs, Logs]]) -> float:
    """The most that certainly is lost over raw neighbours, either way."""
    best = 1.0
    known: set[Any] = set()
    for pair in pairs:
        rows = tuple(map(world.rows, pair))
        if rows[0] == rows[1] or rows in known:
            continue
        known.add(rows)
        laws = [world.law(0, each) for each in rows]
        for left, right in (laws, laws[::-1]):
            rest = cut_off(right)
            found = max(chance / (right.get(told, 0) + rest) for told, chance in left.items())
            best = max(best, float(found))
    return units(Fraction(best))


ANYTHING: list[Item] = [
    event(0), event(1), event(0, key="nobody"), event(0, time="never"), event(2), b"\xff", b"[" * 999,
]  # fmt: skip
SWAPPED: list[Item] = [event(0), event(0, key=None), event(0, amount=0), b"{"]


def twice(logs: Logs) -> list[tuple[Logs, Logs]]:
    """All records of a user, three where two count, or none."""
    one = inserted(logs, 0, 0, event(0, key="a"))
    two = inserted(one, 0, 0, event(0))
    return [
        (two, logs),
        (inserted(two, 0, 0, event(0)), logs),
        (inserted(one, 0, 3, event(1)), logs),
    ]


CASES: dict[str, tuple[dict[str, Any], dict[str, str], int, int]] = {
    "above": (ALERTS | {"epsilon": "2"}, {}, 3, 3),
    "below": (ALERTS | {"epsilon": "2", "below": "true"}, {}, 4, 2),
    "sum": (WATCH | SUM | {"epsilon": "2"}, {}, 3, 3),
    "told": (WATCH | {"epsilon": "1", "value": "1"}, {}, 3, 3),
    "of a user": (WATCH | {"epsilon": "4"}, USERS, 3, 5),
    "a record for another": (WATCH | {"epsilon": "2"}, WITHIN, 3, 3),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_raw_neighbours_lose_what_is_stated(case: str) -> None:
    """Not more, and but for what is cut off not less; with noise half as wide more."""
    series, privacy, ticks, radius = CASES[case]
    world = World(pipeline([series], privacy, ticks), radius)
    logs = quiet(ticks)
    pairs = {
        "user": lambda: twice(logs),
        "replace": lambda: list(replaced(logs, SWAPPED)),
        "": lambda: list(one_more(logs, ANYTHING)),
    }[privacy.get("unit", privacy.get("neighbors", ""))]()
    assert world.stated - NEAR < loss(world, pairs) <= world.stated
    mechanism: Any = world.series[0].mechanism
    half = {"epsilon": 2 * mechanism.epsilon, "value_epsilon": 2 * mechanism.value_epsilon}
    assert loss(world.twin(**half), pairs) > world.stated + NEAR
