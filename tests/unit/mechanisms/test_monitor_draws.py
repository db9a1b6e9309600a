"""Which noise a monitor draws for what: how much, at which scale, and never for anything that is decided already."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire_of
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.watches.kinds import Alerts, CountWatchers, Monitor
from stream_dp.mechanisms.watches.monitor_state import (
    ArmQuery,
    DisarmQuery,
    LevelsQuery,
    ThresholdQuery,
    WatchTerms,
)
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

WATCHES = (
    WatchTerms(50),
    WatchTerms(5, 2, rearm=False),
    WatchTerms(3, tick=True, below=True),
    WatchTerms(10, tick=True),
)
MONITOR = Monitor(
    7, Fraction(1, 5), Neighbors.ADD_REMOVE, WATCHES, ones=3, value_epsilon=Fraction(1, 10)
)
SINCE, TICK, VALUE = Fraction(15), Fraction(10), Fraction(30)  # 3 / 0.2, 3 / 0.3, 3 / 0.1


class Noted(ZeroNoise):
    """No noise, and a note of each draw: its law, its scale and how many."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, Fraction, int]] = []

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Note it."""
        self.drawn += [("geometric", scale, size)] * (size > 0)
        return super().geometric(scale, size)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Note it."""
        self.drawn += [("laplace", scale, size)] * (size > 0)
        return super().laplace(scale, size)


COMPARED = [("geometric", SINCE, 3), ("laplace", TICK, 2)]
STEPS: dict[str, tuple[tuple[int, ...], Message, list[tuple[str, Fraction, int]]]] = {
    "nothing fires": ((9, 1, 1, 5, 1), Query(), COMPARED),
    "one re-arms, one has ended": (
        (50, 5, 1, 5, 1),
        Query(),
        [*COMPARED, ("laplace", VALUE, 2), ("geometric", SINCE, 1)],
    ),
    "ticks fire": ((9, 1, 1, 1, 11), Query(), COMPARED),
    "asked, and does not fire": ((9,), ThresholdQuery(10, place=0), [("geometric", SINCE, 1)]),
    "asked, and fires": (
        (9,),
        ThresholdQuery(9, place=0),
        [("geometric", SINCE, 1), ("laplace", VALUE, 1), ("geometric", SINCE, 1)],
    ),
    "begun": ((), ArmQuery(place=5, watch=WatchTerms(9, 2)), [("geometric", SINCE, 2)]),
    "begun, of ticks": ((), ArmQuery(place=5, watch=WatchTerms(9, 2, tick=True)), []),
    "ended": ((), DisarmQuery(place=0), []),
}


@pytest.mark.parametrize("name", STEPS)
def test_each_message_draws_what_it_needs_at_its_own_scale(name: str) -> None:
    counts, message, expected = STEPS[name]
    noise = Noted()
    state = MONITOR.init(noise)
    assert noise.drawn == [("geometric", SINCE, 3)]
    row = np.array([*counts, *[0] * (7 - len(counts))], dtype=np.int64)
    state, _ = MONITOR.step(state, Update(row), noise)
    noise.drawn.clear()
    MONITOR.step(state, message, noise)
    assert noise.drawn == expected


def test_what_is_asked_of_a_tick_draws_nothing() -> None:
    noise = Noted()
    state, _ = MONITOR.step(MONITOR.init(noise), Query(), noise)
    noise.drawn.clear()
    for threshold in (1, 10):
        state, _ = MONITOR.step(state, ThresholdQuery(threshold, place=4), noise)
    assert noise.drawn == []


def test_a_free_place_counts_nothing_and_a_watch_begins_from_zero() -> None:
    noise = ZeroNoise()
    state, _ = MONITOR.step(MONITOR.init(noise), Update(np.full(7, 4)), noise)
    assert state.count.tolist() == [4] * 5 + [0] * 2
    full = replace(state, count=np.full(7, 4))
    begun, _ = MONITOR.step(full, ArmQuery(place=5, watch=WatchTerms(9, 2)), noise)
    assert begun.count.tolist() == [4] * 5 + [0] * 2


def test_windows_draw_at_their_own_scales_and_only_where_they_are_compared() -> None:
    """0.3 in all, 0.15 for each of two noises of a comparison and as much for the count; of the share one of 3."""
    watches = (WatchTerms(5, 2, window=2), WatchTerms(3, below=True, window=3), WatchTerms(50))
    monitor = replace(MONITOR, watches=watches)
    compared, told = ("geometric", Fraction(20)), ("laplace", Fraction(20))
    noise = Noted()
    state = monitor.init(noise)
    assert noise.drawn == [("geometric", SINCE, 1), (*compared, 3)]
    for window, fired in ((2, 0), (2, 0), (3, 1), (2, 0)):
        noise.drawn.clear()
        state, _ = monitor.step(state, Update(np.zeros(7, dtype=np.int64)), noise)
        state, _ = monitor.step(state, Query(), noise)
        again = [(*told, 1), (*compared, 1)] * fired
        assert noise.drawn == [("geometric", SINCE, 1), (*compared, window), *again]
    noise.drawn.clear()
    monitor.step(state, ThresholdQuery(9, place=0), noise)
    assert noise.drawn == [(*compared, 1)]


def test_what_is_told_is_the_count_and_the_noise_that_is_drawn_for_it() -> None:
    """A watch since its last crossing, one of ticks, one over a window: the comparisons' draws are others."""
    watches = (WatchTerms(5), WatchTerms(5, tick=True), WatchTerms(5, window=2))
    monitor = replace(MONITOR, width=3, watches=watches)
    noise = ScriptedNoise([1, 2, *(4, -1, 4), *(30, -40), *(1, 2)])
    state, _ = monitor.step(monitor.init(noise), Update(np.array([6, 6, 6])), noise)
    _, answer = monitor.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist() == [1, 1, 1, 36, 5, -34]
    assert noise.used == len(noise.values)


def played(block: Any, levels: Callable[[int], IntArray]) -> list[Any]:
    """Answers, counts, noise on thresholds and draws over 60 ticks with these levels."""
    noise, seen = SeededNoise(7), list[Any]()
    state = block.init(noise)
    for tick in range(60):
        row = np.array([(tick * (place + 3) + place) % 11 for place in range(9)])
        state, _ = block.step(state, Update(row), noise)
        if isinstance(block, Monitor):
            state = replace(state, threshold=levels(tick))
        state, answer = block.step(state, LevelsQuery(levels=levels(tick)), noise)
        seen += [answer.tolist(), state.count.tolist(), state.lift.tolist()]
    assert sum(map(sum, seen[::3])) > 10
    return [*seen, [draw for draw in noise.calls if draw.size]]


@pytest.mark.parametrize("relation", [Neighbors.ADD_REMOVE, Neighbors.REPLACE])
@pytest.mark.parametrize("ones", [1, 2])
def test_alerts_and_count_watchers_draw_as_a_monitor_does(relation: Neighbors, ones: int) -> None:
    """So all that is exact of a monitor is exact of them."""
    shape = 9, Fraction(1, 5), relation
    monitor = Monitor(*shape, (WatchTerms(30, 9),), ones)
    watchers = CountWatchers(*shape, ones)

    def changing(tick: int) -> IntArray:
        return np.roll(np.arange(9), tick) + 20 - tick % 7

    assert played(watchers, changing) == played(monitor, changing)
    alerts = Alerts(*shape, 30, ones)
    assert played(alerts, lambda _: np.full(9, 30)) == played(monitor, lambda _: np.full(9, 30))


@pytest.mark.parametrize("query", [Query(), LevelsQuery(levels=np.zeros(2, dtype=np.int64))])
def test_count_watchers_need_a_level_for_each_column(query: Query) -> None:
    watchers = CountWatchers(3, Fraction(1), Neighbors.ADD_REMOVE)
    with pytest.raises(RejectedMessage, match="needs 3 public levels, one per column"):
        watchers.step(watchers.init(ZeroNoise()), query, ZeroNoise())


def test_states_have_the_kinds_that_journals_hold() -> None:
    """From the first on, and after a step that crosses."""
    shape, kinds = (3, Fraction(1), Neighbors.ADD_REMOVE), list[str]()
    for block in (Alerts(*shape, 1), CountWatchers(*shape)):
        state = block.init(ZeroNoise())
        query = LevelsQuery(levels=np.zeros(3, dtype=np.int64))
        after, _ = block.step(state, query, ZeroNoise())
        kinds += [wire_of(type(state)).kind, wire_of(type(after)).kind]
    assert kinds == ["alerts-state"] * 2 + ["count-watchers-state"] * 2


def test_queries_of_other_levels_differ() -> None:
    low, high, same = (LevelsQuery(levels=np.full(2, level)) for level in (1, 2, 1))
    assert low == same != high
    assert len({low, same, high}) == 2
