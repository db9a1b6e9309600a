"""Monitors: the exact law is the oracle's, the worst exact loss is the claim, and what is broken loses more.

No statistics. The adversary is adaptive: after every answer it may send any of its messages, among them thresholds of
its choice, watches that it creates and watches that it halts, and once, at any time, the two rows that differ. The
oracle is searched in closed form, in fractions. Of the real class all noise up to a radius is enumerated, and the mass
beyond lies between the two bounds (`stream_dp.verify.exact.exact_delta`); one unit of epsilon is -ln(BASE) there.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from oracles.watches import Place, Watches
from statistical import broken_monitor as broken

from stream_dp.core.mechanism import Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.watches.block import (
    ArmQuery,
    DisarmQuery,
    ThresholdQuery,
    WatchTerms,
)
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket, worst_ratio
from stream_dp.verify.exact.finite import DifferAtMost, FiniteMachine, FirstPair

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, QUARTER = Fraction(1), Fraction(1, 2), Fraction(1, 4)
BASE, RADIUS, NEARLY_NOTHING = Fraction(1, 16), 3, Fraction(1, 1_000)
TICK = Query()


def row(*counts: int) -> tuple[str, tuple[int, ...]]:
    return "row", counts


def either_way(a: Any, b: Any) -> tuple[tuple[Any, Any], ...]:
    return (a, b), (b, a)


# --- the oracle: what a monitor costs -----------------------------------------------------------

ASKED = ("tick", ("ask", 0, 1), ("ask", 0, 3))
CHANGED = (("disarm", 0), ("arm", 0, "since", 2, False))
ONE_EVENT = either_way(row(0), row(1))


def price(machine: Watches, queries: Sequence[Any], different: Any, rounds: int) -> Any:
    return worst_ratio(machine, DifferAtMost(tuple(queries), different), rounds)


@pytest.mark.parametrize("once", [False, True])
def test_a_watch_costs_the_larger_share_whatever_is_asked_and_changed(once: bool) -> None:
    """max(e1, e2), met exactly: several thresholds in one tick, each chosen after the answers so far."""
    watches = Watches((Place("since", 2, once),), HALF, HALF)
    assert price(watches, (row(1), *ASKED, *CHANGED), ONE_EVENT, 5) == 2


@pytest.mark.parametrize("kind", ["above", "below"])
def test_a_watch_of_single_ticks_costs_its_one_noisy_count(kind: Any) -> None:
    """However often it is asked; and what is told of it is free."""
    changed = ("disarm", 0), ("arm", 0, "above", 1, True)
    for value in (None, HALF):
        watches = Watches((Place(kind, 2),), HALF, HALF, value, bound=2)
        assert price(watches, (row(1), *ASKED, *changed), ONE_EVENT, 4) == 2


def test_a_count_that_is_told_costs_its_share_more() -> None:
    watches = Watches((Place("since", 2),), HALF, Fraction(1, 8), QUARTER, bound=2)
    assert price(watches, (row(1), *ASKED[:2], *CHANGED), ONE_EVENT, 4) == 2 * 4


def test_two_watches_of_one_event_cost_twice_as_much_and_one_that_is_halted_nothing() -> None:
    both, first = (Place("since", 1), Place("below", 1)), (Place("since", 1), None)
    event = either_way(row(0, 0), row(1, 1))
    assert price(Watches(both, HALF, HALF, bound=2), ("tick", ("ask", 0, 2)), event, 4) == 4
    assert price(Watches(first, HALF, HALF), ("tick", ("arm", 1, "since", 1, False)), event, 3) == 4
    assert price(Watches(first, HALF, HALF), ("tick", ("ask", 0, 2)), event, 4) == 2


def test_a_moved_event_costs_both_its_watches() -> None:
    moved = either_way(row(1, 0), row(0, 1))
    watches = Watches((Place("since", 2), Place("since", 1)), HALF, HALF)
    assert price(watches, (row(1, 1), "tick", ("ask", 1, 2)), moved, 4) == 4


WINDOWED = ("tick", ("ask", 0, 1), row(0))


@pytest.mark.parametrize("kind", ["window", "under"])
@pytest.mark.parametrize(("window", "once"), [(1, False), (1, True), (2, False)])
def test_a_watch_over_a_window_costs_both_shares_and_no_more(
    kind: Any, window: int, once: bool
) -> None:
    """e1 + e2, met exactly: a comparison fails with the event in the window, another crosses when it has left."""
    watches = Watches((Place(kind, 1, once, window=window),), QUARTER, QUARTER, wide=HALF)
    changed = ("disarm", 0), ("arm", 0, kind, 1, once, window)
    assert price(watches, (*WINDOWED, row(1)), ONE_EVENT, 6 - (window == 1)) == 4
    assert price(watches, (*WINDOWED[:2], *changed), ONE_EVENT, 4) <= 4


@pytest.mark.parametrize(("value", "cost"), [(HALF, 4), (QUARTER, 8), (Fraction(1, 8), 16)])
def test_the_count_of_a_window_is_not_paid_for_beside_both_shares(
    value: Fraction, cost: int
) -> None:
    """max(e1 + e2, max(e1, e2) + e3): what crosses with the event in has not paid for one that left."""
    place = Place("window", 1, window=1)
    watches = Watches((place,), QUARTER, QUARTER, wide=HALF, wide_value=value, bound=2)
    assert price(watches, ("tick", row(0)), ONE_EVENT, 5) == cost


# --- the code that runs in production -----------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """The real monitor's answers in the oracle's form: a pair for each place, counts clamped."""

    machine: Enumerated
    bound: int

    def initial(self) -> Any:
        return self.machine.initial()

    def step(self, state: Hashable, query: Any) -> dict[tuple[Any, Any], Fraction]:
        law: dict[tuple[Any, Any], Fraction] = {}
        for (answer, after), chance in self.machine.step(state, query).items():
            key = self._said(answer, query), after
            law[key] = law.get(key, Fraction(0)) + chance
        return law

    def _said(self, answer: Any, query: Any) -> Any:
        if answer is None or isinstance(query, tuple | ArmQuery | DisarmQuery):
            return answer or (None if answer is None else "")
        places = 1 if isinstance(query, ThresholdQuery) else self.machine.mechanism.width
        told = answer[places:] or (0,) * places
        clamped = [max(-self.bound, min(self.bound, value)) for value in told]
        pairs = tuple(zip(answer[:places], clamped, strict=True))
        return pairs[0] if isinstance(query, ThresholdQuery) else pairs


def transcripts(machine: FiniteMachine[Any, Any], messages: Sequence[Any]) -> dict[Any, Fraction]:
    """The law of all answers to these messages."""
    found: dict[tuple[Any, Any], Fraction] = {
        ((), state): p for state, p in machine.initial().items()
    }
    for message in messages:
        then: dict[tuple[Any, Any], Fraction] = {}
        for (said, state), chance in found.items():
            for (answer, after), p in machine.step(state, message).items():
                key = (*said, answer), after
                then[key] = then.get(key, Fraction(0)) + chance * p
        found = then
    law: dict[Any, Fraction] = {}
    for (said, _), chance in found.items():
        law[said] = law.get(said, Fraction(0)) + chance
    return law


KINDS = {
    "since": (False, False),
    "above": (True, False),
    "below": (True, True),
    "window": (False, False),
    "under": (False, True),
}


def plain(message: Any) -> Any:
    """The oracle's message as the mechanism's."""
    match message:
        case "tick":
            return TICK
        case ("row", counts):
            return counts
        case ("ask", at, threshold):
            return ThresholdQuery(threshold, place=at)
        case ("arm", at, kind, threshold, once, *window):
            tick, below = KINDS[kind]
            watch = WatchTerms(
                threshold, tick=tick, below=below, rearm=not once, window=sum(window)
            )
            return ArmQuery(place=at, watch=watch)
        case ("disarm", at):
            return DisarmQuery(place=at)
    raise ValueError(message)


def has_the_law(mechanism: Any, oracle: Watches, script: Sequence[Any]) -> None:
    """The real answers have the oracle's chances, but for what is not enumerated."""
    expected = transcripts(oracle, script)
    real = Told(Enumerated(mechanism, BASE, 3), 2)
    found = transcripts(real, [plain(message) for message in script])
    missing = 1 - sum(found.values())
    assert 0 <= missing < Fraction(1, 1_000)
    for said, chance in expected.items():
        assert 0 <= chance - found.get(said, Fraction(0)) <= missing
    assert found.keys() <= expected.keys()


SCRIPTS = [
    ((row(1, 0), "tick", row(1, 2), "tick", row(0, 1), "tick"), None),
    ((row(1, 1), ("ask", 0, 1), ("ask", 0, 2), ("ask", 1, 1), "tick", ("ask", 1, 2)), None),
    ((row(2, 0), "tick", ("disarm", 0), row(3, 0), "tick", ("arm", 0, "since", 2, True)), None),
    ((("arm", 0, "since", 1, False), ("disarm", 0), ("ask", 0, 1), row(2, 2), "tick"), None),
    ((row(1, 2), "tick", ("ask", 0, 1), ("ask", 1, 1)), ONE),
]


@pytest.mark.parametrize(("script", "value"), SCRIPTS)
def test_the_real_monitor_has_the_oracles_law(
    script: Sequence[Any], value: Fraction | None
) -> None:
    watches = (WatchTerms(2), WatchTerms(1, tick=True, below=True, rearm=False))
    monitor = Monitor(2, ONE, ADD, watches, value_epsilon=value or Fraction(0))
    tick = BASE**2 if value else BASE
    start = (Place("since", 2), Place("below", 1, once=True))
    has_the_law(monitor, Watches(start, BASE, tick, value and BASE, bound=2), script)


WINDOW_SCRIPTS = [
    ((row(1, 1), ("ask", 0, 1), ("ask", 1, 2), row(0, 0), "tick", row(0, 0), "tick"), None),
    ((row(1, 3), row(2, 1), "tick", row(0, 0), ("ask", 1, 1), ("ask", 0, 1), "tick"), None),
    ((row(2, 0), ("disarm", 0), row(3, 0), ("arm", 0, "window", 2, True, 2), "tick"), None),
    ((row(2, 9), "tick", ("disarm", 1), ("arm", 1, "under", 1, False, 1), row(1, 1), "tick"), None),
    ((row(1, 2), row(1, 0), "tick", ("ask", 0, 1)), ONE),
    ((row(2, 0), ("ask", 0, 3), ("ask", 0, 1)), ONE),
]


@pytest.mark.parametrize(("script", "value"), WINDOW_SCRIPTS)
def test_the_real_monitor_has_the_oracles_law_over_windows(
    script: Sequence[Any], value: Fraction | None
) -> None:
    under = WatchTerms(1, below=True, rearm=False, window=2)
    epsilon, whole = 2 - (value or 0), BASE**2
    monitor = Monitor(
        2,
        Fraction(epsilon),
        ADD,
        (WatchTerms(2, window=2), under),
        value_epsilon=value or Fraction(0),
    )
    start = (Place("window", 2, window=2), Place("under", 1, once=True, window=2))
    oracle = Watches(start, whole, whole, None, 2, BASE, value and BASE)
    has_the_law(monitor, oracle, script)


def delta(
    monitor: Monitor,
    units: int,
    rounds: int,
    queries: Sequence[Any],
    different: Any,
    *,
    first: bool = False,
) -> Bracket:
    """Between which bounds the least delta lies at a claim of so many units; `first`: the event comes first of all."""
    same, event = tuple(map(plain, queries)), tuple((plain(a), plain(b)) for a, b in different)
    pairs = FirstPair(event, same) if first else DifferAtMost(same, event)
    return delta_bracket(Enumerated(monitor, BASE, RADIUS), pairs, BASE**-units, rounds)


TWO_WATCHES = (WatchTerms(1), WatchTerms(2))
SINGLE = (WatchTerms(1, tick=True, below=True),)
Make = Callable[..., Monitor]


def since(make: Make) -> Bracket:
    """One watch, thresholds asked at will."""
    queries = ("tick", ("ask", 0, 1), ("ask", 0, 2))
    return delta(make(1, ONE, ADD, (WatchTerms(1),)), 1, 4, queries, ONE_EVENT)


def changed(make: Make) -> Bracket:
    """One place whose watch is halted and created again."""
    queries = ("tick", ("disarm", 0), ("arm", 0, "since", 1, False))
    return delta(make(1, ONE, ADD, (WatchTerms(1),)), 1, 5, queries, ONE_EVENT)


def created(make: Make) -> Bracket:
    """An event that counts in two places, before there is a watch in the second."""
    queries, event = ("tick", ("arm", 1, "since", 1, False)), either_way(row(0, 0), row(1, 1))
    return delta(make(2, ONE, ADD, (WatchTerms(1),)), 1, 4, queries, event, first=True)


def ticks(make: Make) -> Bracket:
    """One watch of single ticks, asked at will."""
    return delta(make(1, ONE, ADD, SINGLE), 1, 4, ("tick", ("ask", 0, 1)), ONE_EVENT)


def told(make: Make) -> Bracket:
    """One watch that tells its count."""
    monitor = make(1, ONE, ADD, (WatchTerms(1),), value_epsilon=ONE)
    return delta(monitor, 2, 3, ("tick", ("ask", 0, 2)), ONE_EVENT)


def touching(make: Make) -> Bracket:
    event = either_way(row(0, 0), row(1, 1))
    return delta(make(2, 2 * ONE, ADD, TWO_WATCHES, 2), 2, 2, ("tick",), event)


def moving(make: Make) -> Bracket:
    """An event that moves from one watch to another."""
    event = either_way(row(1, 0), row(0, 1))
    return delta(make(2, 2 * ONE, REPLACE, TWO_WATCHES), 2, 2, ("tick",), event)


def left_behind(make: Make) -> Bracket:
    """A watch over one row: the event has left when it fires."""
    monitor = make(1, 2 * ONE, ADD, (WatchTerms(1, window=1),))
    return delta(monitor, 2, 4, ("tick", row(0)), ONE_EVENT)


def under(make: Make) -> Bracket:
    """The same for one that fires below."""
    monitor = make(1, 2 * ONE, ADD, (WatchTerms(1, window=1, below=True),))
    return delta(monitor, 2, 4, ("tick", row(0)), ONE_EVENT)


def within(make: Make) -> Bracket:
    """A watch over two rows, asked again after it has fired."""
    monitor = make(1, 2 * ONE, ADD, (WatchTerms(1, window=2),))
    return delta(monitor, 2, 4, ("tick", ("ask", 0, 2)), ONE_EVENT)


def told_of_windows(make: Make) -> Bracket:
    """A watch over one row that tells its count."""
    monitor = make(1, ONE, ADD, (WatchTerms(1, window=1),), value_epsilon=ONE)
    return delta(monitor, 2, 4, ("tick", row(0)), ONE_EVENT)


def begun_windows(make: Make) -> Bracket:
    """A watch over one row that begins while the monitor runs."""
    queries = (("arm", 0, "window", 1, False, 1), "tick", row(0))
    return delta(make(1, 2 * ONE, ADD, ()), 2, 5, queries, ONE_EVENT)


WINDOWS = [left_behind, under, within, told_of_windows, begun_windows]


@pytest.mark.parametrize(
    "attack", [since, changed, created, ticks, told, touching, moving, *WINDOWS]
)
def test_the_real_monitor_meets_its_claim(attack: Callable[[Make], Bracket]) -> None:
    assert attack(Monitor).upper < NEARLY_NOTHING


@pytest.mark.parametrize(
    ("attack", "twin"),
    [
        (since, broken.KeepsItsLift),
        (since, broken.AsksWithoutNoise),
        (changed, broken.KeepsCounting),
        (changed, broken.ArmsWithoutNoise),
        (created, broken.CountsWhereNothingRuns),
        (ticks, broken.CheapTicks),
        (told, broken.TellsTheComparison),
        (touching, broken.ForgetsTouch),
        (moving, broken.ForgetsTouch),
        (left_behind, broken.CheapWindows),
        (under, broken.CheapWindows),
        (within, broken.ForgetsNothing),
        (told_of_windows, broken.TellsWindowsTooWell),
        (begun_windows, broken.ArmsWithoutNoise),
    ],
    ids=lambda part: part.__name__,
)
def test_what_is_broken_is_caught(attack: Callable[[Make], Bracket], twin: Make) -> None:
    assert attack(twin).lower > 3 * NEARLY_NOTHING
