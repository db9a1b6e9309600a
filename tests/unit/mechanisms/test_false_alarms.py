"""Watches beside their thresholds: the chance of a false alarm, and what a yes and a no to a threshold mean.

Chances are closed forms, checked by exact sums and as often as real watches fire. The noise behind an answer is
enumerated, draw by draw, through the monitor's own code; what lies beyond is cut off and counted as wrong.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from unit.mechanisms.shifted_noise import answers

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.watches.block import (
    WIDEST,
    ThresholdQuery,
    WatchTerms,
    crossing_chance,
    exceeding,
)
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor
from stream_dp.noise import NoiseStream
from stream_dp.noise.stream import MAX_SCALE
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD = Neighbors.ADD_REMOVE
KEYS, DAY = 4_000, 24  # as many independent runs, each of a day of hours
ERROR = 1e-6  # each test of real watches fails with this probability where the chance is right


def summed(margin: int, decay: float, comparisons: int) -> float:
    """The chance by its definition: over the draw on the threshold, each comparison on its own."""
    chance = 0.0
    for lift in range(2_000):
        above = decay ** max(margin + lift, 0)
        chance += (1 - decay) * decay**lift * (1 - (1 - above) ** comparisons)
    return chance


@pytest.mark.parametrize("scale", [1, 40])
@pytest.mark.parametrize("margin", [-3, 0, 20, 200])
@pytest.mark.parametrize("comparisons", [1, 1440])
def test_the_chance_is_that_of_the_noise(scale: int, margin: int, comparisons: int) -> None:
    decay = float(np.exp(-1 / scale))
    chance = crossing_chance(margin, Fraction(scale), comparisons)
    assert chance == pytest.approx(summed(margin, decay, comparisons), rel=1e-9, abs=1e-12)
    if comparisons == 1 and margin >= 0:
        assert chance == pytest.approx(exceeding(margin, Fraction(scale)), rel=1e-9)


def test_wide_noise_is_looked_at_in_steps_and_rounded_up() -> None:
    decay, lifts = np.exp(-1 / 5_000), np.arange(400_000)
    above = decay ** (30_000 + lifts)
    exact = float(((1 - decay) * decay**lifts) @ -np.expm1(24 * np.log1p(-above)))
    assert exact <= crossing_chance(30_000, Fraction(5_000), 24) <= 1.002 * exact


def test_a_single_draw_is_beyond_a_margin_on_either_side() -> None:
    a = float(np.exp(-1 / 2))
    law = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-200, 201)}
    for margin in (-4, -1, 0, 3):
        expected = sum(chance for x, chance in law.items() if x >= margin)
        assert exceeding(margin, Fraction(2)) == pytest.approx(expected)


def test_a_tick_below_its_threshold_fires_where_the_noise_is_below_nothing() -> None:
    tick, a = Monitor(1, Fraction(1), ADD, (WatchTerms(3, tick=True),)), np.exp(-1.0)
    beneath = sum((1 - a) / (1 + a) * a**x for x in range(1, 200))
    below = WatchTerms(3, tick=True, below=True)
    assert tick.false_alarm(below, 3, 1) == pytest.approx(beneath)
    both = Monitor(9, Fraction(1), ADD, (WatchTerms(3, 4), below))
    assert both.false_alarms() == pytest.approx(4 * exceeding(3, Fraction(1)))


def fired(mechanism: Any, usual: int, window: int, before: int = 0) -> int:
    """How many keys fire on a day at this level, `before` being ticks that nothing is compared in."""
    rows = [
        np.full(KEYS, usual if (tick % window if window else tick) == 0 else 0)
        for tick in range(before + DAY)
    ]
    return int(answers(mechanism, SeededNoise(12), rows).any(axis=0).sum())


CASES: dict[str, tuple[WatchTerms, int, int]] = {
    "since the one before": (WatchTerms(50, KEYS), 30, 0),
    "window": (WatchTerms(80, KEYS, window=6), 40, 0),
    "window below": (WatchTerms(40, KEYS, below=True, window=6), 80, 5),
    "tick": (WatchTerms(50, KEYS, tick=True), 30, 0),
    "tick below": (WatchTerms(30, KEYS, tick=True, below=True), 50, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_watches_fire_falsely_as_often_as_is_said_beforehand(name: str) -> None:
    """Of 4,000 independent keys; a chance that is a third off either way is told apart."""
    watch, usual, before = CASES[name]
    mechanism = Monitor(KEYS, Fraction(1, 4), ADD, (watch,))  # keys that no event shares
    chance = mechanism.false_alarm(watch, usual, DAY)
    alarms = fired(mechanism, usual, 1 if watch.tick else watch.window, before)
    low, high = (binom.ppf(q, KEYS, chance) for q in (ERROR / 2, 1 - ERROR / 2))
    assert low <= alarms <= high
    for wrong in (2 * chance / 3, 4 * chance / 3):
        likely = binom.ppf(ERROR, KEYS, wrong), binom.ppf(1 - ERROR, KEYS, wrong)
        assert not likely[0] <= chance * KEYS <= likely[1]


def test_a_day_that_does_not_begin_with_the_instance_is_quieter() -> None:
    """An instance that has not fired has a larger draw on its threshold: what is said is the most of all days."""
    first, two = (crossing_chance(20, Fraction(4), days * DAY) for days in (1, 2))
    assert (two - first) / (1 - first) < first


TINY = Fraction(1, 10**13)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Alerts(2, TINY, ADD, 5),
        lambda: Monitor(2, TINY, ADD, (WatchTerms(5),)),
        lambda: Monitor(2, Fraction(1), ADD, (WatchTerms(5),), value_epsilon=TINY),
        lambda: Monitor(10**7, Fraction(1, 10**6), ADD, (WatchTerms(5),), 10**7),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_beforehand(make: Callable[[], Any]) -> None:
    assert WIDEST == MAX_SCALE
    with pytest.raises(UsageError, match=r"too wide for 64 bits\. Give more epsilon"):
        make()


# --- answers to a threshold ------------------------------------------------------------------------

SCALE, CONFIDENCE, THRESHOLD = 4, 0.95, 1000
DECAY = math.exp(-1 / SCALE)
FAR = 90  # decay ** 90 = 2e-10


class Given:
    """Noise that was chosen."""

    def __init__(self, *draws: int) -> None:
        self.draws = np.array(draws, dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        assert scale == SCALE
        return self.draws[:size]

    laplace = gaussian = geometric


def monitor(tick: bool) -> Any:
    """One watch in each of many places, which no event shares."""
    return Monitor(FAR, Fraction(1, SCALE), ADD, (WatchTerms(10**9, FAR, tick),))


def yes(watches: Any, state: Any, at: int, noise: Given) -> bool:
    return bool(watches.step(state, ThresholdQuery(THRESHOLD, place=at), noise)[1][0])


def wrong_since_firing(count: int, wrong: bool) -> float:
    """P[the first answer of a watch is `wrong`] at this count: over the draw on its threshold, one in each place."""
    watches = monitor(tick=False)
    state, _ = watches.step(watches.init(Given(*range(FAR))), Update(np.full(FAR, count)), Given())
    chance = DECAY**FAR  # of what is not enumerated
    for lift in range(FAR):
        for draw in range(FAR):
            if yes(watches, state, lift, Given(draw)) == wrong:
                chance += (1 - DECAY) ** 2 * DECAY ** (lift + draw)
    return chance


def wrong_in_a_tick(count: int, wrong: bool) -> float:
    """P[the answers about a tick are `wrong`] at this count: over its one draw, one in each place, of either sign."""
    chance, watches = DECAY**FAR, monitor(tick=True)
    for sign in (1, -1):
        state, _ = watches.step(watches.init(Given()), Update(np.full(FAR, count)), Given())
        state, _ = watches.step(state, Query(), Given(*(sign * np.arange(FAR))))
        for size in range(FAR):
            if yes(watches, state, size, Given(0)) == wrong and (size or sign > 0):
                chance += (1 - DECAY) / (1 + DECAY) * DECAY**size
    return chance


@pytest.mark.parametrize("tick", [False, True])
def test_an_answer_is_right_up_to_its_band_and_not_up_to_half_of_it(tick: bool) -> None:
    watches, chance = monitor(tick), wrong_in_a_tick if tick else wrong_since_firing
    band = watches.ask_band(0, 0, watches.init(Given(*[0] * FAR)), CONFIDENCE)
    for size, holds in ((band, True), (band // 2, False)):
        worst = max(chance(THRESHOLD - size - 1, True), chance(THRESHOLD + size, False))
        assert (worst <= 1 - CONFIDENCE) == holds


def test_the_band_grows_with_what_was_compared_and_with_that_alone() -> None:
    watches = monitor(tick=False)
    state = watches.init(Given(*[0] * FAR))
    bands = [watches.ask_band(0, updates, state, CONFIDENCE) for updates in (0, 10, 1000)]
    assert bands == [math.ceil(SCALE * math.log((n + 2) / 0.05)) for n in (0, 10, 1000)]
    for _ in range(9):
        state, _ = watches.step(state, ThresholdQuery(THRESHOLD, place=3), Given(0))
    assert watches.ask_band(0, 1, state, CONFIDENCE) == bands[1]
    ticks = monitor(tick=True)
    state = ticks.init(Given())
    assert {ticks.ask_band(0, updates, state, CONFIDENCE) for updates in (1, 1000)} == {12}
    window = Monitor(1, Fraction(1, SCALE), ADD, (WatchTerms(9, window=2),))  # noise twice as wide
    band = window.ask_band(0, 10, window.init(ZeroNoise()), CONFIDENCE)
    assert band == math.ceil(2 * SCALE * math.log(12 / 0.05))


HIGH, ROUNDS = 20, 25


def test_the_band_holds_for_the_instances_that_are_left_after_many_comparisons() -> None:
    """Whoever has not fired for long has a high threshold, perhaps: also then no more than 5% are wrong, at each tick.

    4,000 watches of equal counts, re-armed; 5% would be 200, and at a true 5% more than 275 has probability < 1e-7.
    """
    watches = Monitor(KEYS, Fraction(1, SCALE), ADD, (WatchTerms(HIGH, KEYS),))
    noise = NoiseStream(b"n" * 32, 0)
    state, wrong, narrow = watches.init(noise), list[int](), list[int]()
    for tick in range(ROUNDS):
        state, _ = watches.step(state, Update(np.full(KEYS, 9)), noise)
        counted, band = state.count, watches.ask_band(0, tick, state, CONFIDENCE)
        state, crossed = watches.step(state, Query(), noise)
        assert crossed is not None
        for misses, size in ((wrong, band), (narrow, band // 4)):
            early = (crossed == 1) & (counted < HIGH - size)
            late = (crossed == 0) & (counted >= HIGH + size)
            misses.append(int((early | late).sum()))
    assert max(wrong) <= 275
    assert max(narrow) > 275  # the twin: a quarter of it
