"""The chance of a false alarm: its closed form, by exact sums, and as often as real watches fire."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.watches.kinds import Alerts, Monitor
from stream_dp.mechanisms.watches.monitor_state import WatchTerms
from stream_dp.mechanisms.watches.watch_noise import WIDEST, crossing_chance, exceeding
from stream_dp.noise.samplers import MAX_SCALE
from stream_dp.testing.noise import SeededNoise

ADD = Neighbors.ADD_REMOVE
KEYS, DAY = 4_000, 24  # as many independent runs, each of a day of hours
ERROR = 1e-6  # each test below fails with this probability where the chance is right


def summed(margin: int, decay: float, comparisons: int) -> float:
    """The same by its definition: over the draw on the threshold, each comparison on its own."""
    found = 0.0
    for lift in range(2_000):
        above = decay ** max(margin + lift, 0)
        found += (1 - decay) * decay**lift * (1 - (1 - above) ** comparisons)
    return found


@pytest.mark.parametrize("scale", [1, 5, 40])
@pytest.mark.parametrize("margin", [-3, 0, 1, 20, 200])
@pytest.mark.parametrize("comparisons", [1, 24, 1440])
def test_the_chance_is_that_of_the_noise(scale: int, margin: int, comparisons: int) -> None:
    decay = float(np.exp(-1 / scale))
    found = crossing_chance(margin, Fraction(scale), comparisons)
    assert found == pytest.approx(summed(margin, decay, comparisons), rel=1e-9, abs=1e-12)
    if comparisons == 1 and margin >= 0:
        assert found == pytest.approx(exceeding(margin, Fraction(scale)), rel=1e-9)


def test_wide_noise_is_looked_at_in_steps_and_rounded_up() -> None:
    wide, exact = crossing_chance(30_000, Fraction(5_000), 24), 0.0
    decay = np.exp(-1 / 5_000)
    lifts = np.arange(400_000)
    above = decay ** (30_000 + lifts)
    exact = float(((1 - decay) * decay**lifts) @ -np.expm1(24 * np.log1p(-above)))
    assert exact <= wide <= 1.002 * exact


@pytest.mark.parametrize("margin", [-4, -1, 0, 3])
def test_a_single_draw_is_beyond_a_margin_on_either_side(margin: int) -> None:
    a = float(np.exp(-1 / 2))
    law = {x: (1 - a) / (1 + a) * a ** abs(x) for x in range(-200, 201)}
    expected = sum(chance for x, chance in law.items() if x >= margin)
    assert exceeding(margin, Fraction(2)) == pytest.approx(expected)


def held(usual: int, window: int) -> Iterator[IntArray]:
    """Rows whose last `window` add up to `usual`, or all of them where that is 0."""
    for tick in range(1_000):
        now = tick % window == 0 if window else tick == 0
        yield np.full(KEYS, usual if now else 0, dtype=np.int64)


def fired(mechanism: Any, usual: int, window: int, before: int = 0) -> int:
    """How many keys fire on a day at this level, `before` being ticks that nothing is compared in."""
    noise = SeededNoise(12)
    state, found = mechanism.init(noise), np.zeros(KEYS, dtype=bool)
    rows = held(usual, window)
    for _ in range(before + DAY):
        state, _ = mechanism.step(state, Update(next(rows)), noise)
        state, answer = mechanism.step(state, Query(), noise)
        found |= answer != 0
    return int(found.sum())


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
    window = 1 if watch.tick else watch.window
    said = mechanism.false_alarm(watch, usual, DAY)
    found = fired(mechanism, usual, window, before)
    low, high = (binom.ppf(q, KEYS, said) for q in (ERROR / 2, 1 - ERROR / 2))
    assert low <= found <= high
    for wrong in (2 * said / 3, 4 * said / 3):
        assert not binom.ppf(ERROR, KEYS, wrong) <= said * KEYS <= binom.ppf(1 - ERROR, KEYS, wrong)


def test_a_day_that_does_not_begin_with_the_instance_is_quieter() -> None:
    """An instance that has not fired has a larger draw on its threshold: what is said is the most of all days."""
    first = crossing_chance(20, Fraction(4), DAY)
    two = crossing_chance(20, Fraction(4), 2 * DAY)
    assert (two - first) / (1 - first) < first


@pytest.mark.parametrize(
    "make",
    [
        lambda: Alerts(2, Fraction(1, 10**13), ADD, 5),
        lambda: Monitor(2, Fraction(1, 10**13), ADD, (WatchTerms(5),)),
        lambda: Monitor(2, Fraction(1), ADD, (WatchTerms(5),), value_epsilon=Fraction(1, 10**13)),
        lambda: Monitor(10**7, Fraction(1, 10**6), ADD, (WatchTerms(5),), 10**7),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_beforehand(make: Callable[[], Any]) -> None:
    assert WIDEST == MAX_SCALE
    with pytest.raises(UsageError, match="too wide for 64 bits: give more epsilon"):
        make()
