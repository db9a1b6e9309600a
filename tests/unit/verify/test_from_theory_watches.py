"""Watches, blind: written from THEORY 3 and 6 and docs/alerts.md, docs/monitors.md, without sight of the mechanism.

What one event more costs a watch, with e1 for the noise on its threshold, e2 for that of a comparison and c for a told
count, all in one instance: since it fired max(e1, e2) + c; in a window, without it nothing fires while it would be in
and fires when it would have left, e1 + e2, or it fires and is told, e2 + c. So with epsilon and value in halves of
their sum all three are met. Without it the other way round a window costs e2 + c alone. An event that is replaced
leaves one watch for another.
"""

from dataclasses import replace
from typing import Any

import pytest
from unit.verify.exact.raw_streams import World, pipeline
from unit.verify.exact.talks import NEAR, Talk, Turn

from stream_dp.core.mechanism import Query

Said = list[tuple[Any, Any, int]]
WITHIN = {"neighbors": "replace", "moves": "within_tick"}


def monitor(
    watches: list[dict[str, Any]], epsilon: int, privacy: dict[str, str] | None = None, **more: str
) -> World:
    named = [{"name": f"w{n}"} | each for n, each in enumerate(watches)]
    series = {"name": "m", "statistic": "monitor", "epsilon": str(epsilon), "watch": named}
    return World(pipeline([series | {"most": str(len(watches))} | more], privacy or {}, 9))


def said(*messages: Any) -> Turn:
    """Each of these to both copies."""
    return lambda rest: [(one, one, 0) for one in messages]


def beside_others(rest: int) -> Said:
    """A tick of nothing or of one event, and one more in one of the copies."""
    same = [((n,), (n,), 0) for n in (0, 1)]
    return [*same, ((0,), (1,), 1), ((1,), (2,), 1)] if rest else same


COMPARED = said(Query())
WINDOW, BELOW = {"above": "1", "over": "2s"}, {"below": "1", "over": "2s"}
WATCHES: dict[str, tuple[dict[str, Any], int, int, int, tuple[int, int]]] = {
    "since it fired": ({"above": "1"}, 1, 0, 3, (1, 1)),
    "since, told": ({"above": "1"}, 1, 1, 2, (2, 2)),
    "ticks": ({"below": "1"}, 1, 0, 2, (1, 1)),
    "ticks, told": ({"above": "1", "over": "tick"}, 1, 1, 2, (2, 2)),
    "window": (WINDOW, 2, 0, 3, (2, 1)),
    "once": (WINDOW | {"rearm": "false"}, 2, 0, 3, (2, 1)),
    "below a window": (BELOW, 2, 0, 4, (1, 2)),
    "window, told": (WINDOW, 1, 1, 2, (2, 2)),
    "below a window, told": (BELOW, 1, 1, 3, (2, 2)),
    "window, told for more": (WINDOW, 2, 4, 2, (6, 6)),
}
"""A watch; epsilon and value; ticks; what is lost without the event over with it, and with it over without."""


@pytest.mark.parametrize("case", WATCHES)
def test_a_watch_loses_what_plan_states_in_the_directions_of_the_theory(case: str) -> None:
    """Exactly, but for what is cut off: noise that is wider or narrower, and a plan that states more, all fail."""
    watch, epsilon, value, number, expected = WATCHES[case]
    world = monitor([watch], epsilon, None, **({"value": str(value)} if value else {}))
    assert world.stated == max(expected) == epsilon + value
    mechanism: Any = world.series[0].mechanism
    result = Talk(mechanism, [beside_others, COMPARED] * number).losses()
    assert all(one - NEAR < lost <= one for lost, one in zip(result, expected, strict=True))


def test_noise_half_as_wide_loses_twice_as_much() -> None:
    world = monitor([WINDOW], 2)
    mechanism: Any = world.series[0].mechanism
    half = replace(mechanism, epsilon=2 * mechanism.epsilon)
    assert Talk(half, [beside_others, COMPARED] * 3).loss() > 2 * world.stated - NEAR


KINDS = {
    "since it fired": {"above": "1"},
    "ticks": {"above": "1", "over": "tick"},
    "window": WINDOW,
    "below": BELOW,
}


def wide(rest: int) -> Said:
    return [((0, 0), (0, 0), 0), *([((0, 0), (1, 0), 1)] if rest else [])]


def lost(watch: dict[str, Any], privacy: dict[str, str] | None = None, **more: str) -> list[float]:
    """What a watch beside another loses by an event, without it over with it and the other way round, to a tenth."""
    world = monitor([watch], 4, privacy, most="2", **more)
    assert world.stated == 4
    losses = Talk(world.series[0].mechanism, [wide, COMPARED] * 4).losses()
    return [round(each, 1) for each in losses]


def test_an_event_that_leaves_one_watch_for_another() -> None:
    """One loses it, the other gains it; two windows above lose three quarters of what is stated."""
    parts = {kind: lost(watch, WITHIN) for kind, watch in KINDS.items()}

    def together(one: str, other: str) -> float:
        return max(parts[one][0] + parts[other][1], parts[one][1] + parts[other][0])

    assert together("since it fired", "since it fired") == together("ticks", "ticks") == 4
    assert together("window", "below") == together("window", "ticks") == 4
    assert together("window", "window") == together("below", "below") == 3
