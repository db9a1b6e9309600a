"""Watches, blind: written from THEORY 3 and 6 and docs/alerts.md, docs/monitors.md, without sight of the mechanism.

What one event more costs a watch, with e1 for the noise on its threshold, e2 for that of a comparison and c for a told
count, all in one instance: since it fired max(e1, e2) + c; in a window, without it nothing fires while it would be in
and fires when it would have left, e1 + e2, or it fires and is told, e2 + c. So with epsilon and value in halves of
their sum all three are met. Without it the other way round a window costs e2 + c alone.
"""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from unit.verify.exact.raw_streams import World, pipeline
from unit.verify.exact.talks import NEAR, Talk, Turn, law
from unit.verify.theory_watch import QUERY, TheoryWatch


def monitor(watch: dict[str, Any], epsilon: int, value: int = 0) -> World:
    """The product's, from a file."""
    series: dict[str, Any] = {"name": "m", "statistic": "monitor", "epsilon": str(epsilon)}
    told = {"value": str(value)} if value else {}
    watches = [{"name": "w"} | watch]
    return World(pipeline([series | told | {"most": "1", "watch": watches}], {}, 9))


def rows(rest: int) -> list[tuple[Any, Any, int]]:
    """A tick of nothing or of one event, and one more in one of the copies."""
    same = [((n,), (n,), 0) for n in (0, 1)]
    return [*same, ((0,), (1,), 1), ((1,), (2,), 1)] if rest else same


def compare(_rest: int) -> list[tuple[Any, Any, int]]:
    """What every tick ends with."""
    return [(QUERY, QUERY, 0)]


def ticks(number: int) -> list[Turn]:
    """So many of them."""
    return [rows, compare] * number


WINDOW, BELOW = {"above": "1", "over": "2s"}, {"below": "1", "over": "2s"}
WATCHES: dict[str, tuple[dict[str, Any], int, int, int, tuple[int, int]]] = {
    "since it fired": ({"above": "1"}, 1, 0, 3, (1, 1)),
    "since, told": ({"above": "1"}, 1, 1, 2, (2, 2)),
    "ticks": ({"below": "1"}, 1, 0, 2, (1, 1)),
    "ticks, told": ({"above": "1", "over": "tick"}, 1, 1, 2, (2, 2)),
    "window": (WINDOW, 2, 0, 3, (2, 1)),
    "window of three": ({"above": "2", "over": "3s"}, 2, 0, 4, (2, 1)),
    "once": (WINDOW | {"rearm": "false"}, 2, 0, 3, (2, 1)),
    "below a window": (BELOW, 2, 0, 4, (1, 2)),
    "window, told": (WINDOW, 1, 1, 2, (2, 2)),
    "below a window, told": (BELOW, 1, 1, 3, (2, 2)),
    "window, told for more": (WINDOW, 2, 4, 2, (6, 6)),
}
"""A watch; epsilon and value; ticks; what is lost without the event over with it, and with it over without."""


@pytest.mark.parametrize("case", WATCHES)
def test_a_watch_loses_what_plan_states_in_the_directions_of_the_theory(case: str) -> None:
    """Exactly, but for what is cut off; and with noise half as wide twice as much."""
    watch, epsilon, value, number, expected = WATCHES[case]
    world = monitor(watch, epsilon, value)
    assert world.stated == max(expected) == epsilon + value
    mechanism: Any = world.series[0].mechanism
    found = Talk(mechanism, ticks(number)).losses()
    assert all(one - NEAR < lost <= one for lost, one in zip(found, expected, strict=True))
    half = replace(mechanism, epsilon=2 * mechanism.epsilon, value_epsilon=2 * Fraction(value))
    assert Talk(half, ticks(number)).loss() > 2 * world.stated - NEAR


# --- the mechanism of the theory, and wrong ones ---------------------------------------------------

ONE, NOTHING = Fraction(1), Fraction(0)
ADDED, PARTED = (ONE, ONE, ONE), (ONE, ONE, NOTHING)
LIKE: dict[str, TheoryWatch] = {
    "since it fired": TheoryWatch(1, PARTED),
    "since, told": TheoryWatch(1, ADDED),
    "window": TheoryWatch(1, PARTED, 2),
    "window of three": TheoryWatch(2, PARTED, 3),
    "below a window": TheoryWatch(1, PARTED, 2, below=True),
    "window, told": TheoryWatch(1, ADDED, 2),
    "below a window, told": TheoryWatch(1, ADDED, 2, below=True),
    "window, told for more": TheoryWatch(1, (Fraction(2), Fraction(2), Fraction(4)), 2),
}


@pytest.mark.parametrize("case", LIKE)
def test_the_law_is_the_theorys(case: str) -> None:
    """The same answers with the same chances, over streams that cross, wait and cross again."""
    watch, epsilon, value, number, _ = WATCHES[case]
    mechanism = monitor(watch, epsilon, value).series[0].mechanism
    for counts in itertools.product((0, 1, 2), repeat=min(number, 3)):
        stream = [(count,) for count in counts]
        assert law(mechanism, stream, 2) == law(LIKE[case], stream, 2)


WRONG: dict[str, tuple[TheoryWatch, int, int]] = {
    "at the scale of a watch since it fired": (
        TheoryWatch(1, (ONE * 2, ONE * 2, NOTHING), 2),
        2,
        3,
    ),
    "the window is kept": (TheoryWatch(1, PARTED, 3, wrong="kept window"), 2, 3),
    "the threshold's noise is kept": (TheoryWatch(1, PARTED, 2, wrong="kept threshold"), 2, 4),
    "it goes on where it fired": (TheoryWatch(1, PARTED, 3, wrong="went on"), 2, 3),
    "told what was compared": (TheoryWatch(1, ADDED, 2, wrong="told what was compared"), 2, 2),
    "told beside the whole price": (TheoryWatch(1, (ONE, ONE, ONE * 2), 2), 2, 3),
    "since it fired, in halves": (TheoryWatch(1, (ONE, ONE * 2, NOTHING)), 1, 2),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_watch_is_caught(case: str) -> None:
    """It loses more than it would state."""
    wrong, stated, number = WRONG[case]
    assert Talk(wrong, ticks(number)).loss() > stated + 0.4
