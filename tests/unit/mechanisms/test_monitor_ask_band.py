"""What a yes and a no to a threshold mean: right up to the band, at the stated confidence, by exact enumeration.

The noise is enumerated, draw by draw, through the monitor's own code; what lies beyond is cut off and counted as wrong.
A band of half the size does not hold.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.watches.kinds import Monitor
from stream_dp.mechanisms.watches.monitor_state import ThresholdQuery, WatchTerms
from stream_dp.noise import NoiseStream
from stream_dp.testing.noise import ZeroNoise

SCALE, CONFIDENCE, THRESHOLD = 4, 0.95, 1000
DECAY = math.exp(-1 / SCALE)
FAR = 90  # decay ** 90 = 2e-10


class Given:
    """Noise that was chosen."""

    def __init__(self, *draws: int) -> None:
        self.draws = np.array(draws, dtype=np.int64)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """The chosen draws."""
        assert scale == SCALE
        return self.draws[:size]

    laplace = gaussian = geometric


def monitor(tick: bool) -> Monitor:
    """One watch in each of many places, which no event shares."""
    watch = (WatchTerms(10**9, FAR, tick),)
    return Monitor(FAR, Fraction(1, SCALE), Neighbors.ADD_REMOVE, watch)


def yes(one: Monitor, state: object, at: int, noise: Given) -> bool:
    """Whether the watch in a place answers yes."""
    _, answer = one.step(state, ThresholdQuery(THRESHOLD, place=at), noise)  # type: ignore[arg-type]
    assert answer is not None
    return bool(answer[0])


def wrong_since_firing(count: int, wrong: bool) -> float:
    """P[the first answer of a watch is `wrong`] at this count: over the draw on its threshold, one in each place."""
    one = monitor(tick=False)
    state = one.init(Given(*range(FAR)))
    state, _ = one.step(state, Update(np.full(FAR, count)), Given())
    chance = DECAY**FAR  # of what is not enumerated
    for lift in range(FAR):
        for draw in range(FAR):
            if yes(one, state, lift, Given(draw)) == wrong:
                chance += (1 - DECAY) ** 2 * DECAY ** (lift + draw)
    return chance


def wrong_in_a_tick(count: int, wrong: bool) -> float:
    """P[the answers about a tick are `wrong`] at this count: over its one draw, one in each place, of either sign."""
    chance = DECAY**FAR
    for sign in (1, -1):
        one = monitor(tick=True)
        state, _ = one.step(one.init(Given()), Update(np.full(FAR, count)), Given())
        state, _ = one.step(state, Query(), Given(*(sign * np.arange(FAR))))
        for size in range(FAR):
            if yes(one, state, size, Given(0)) == wrong and (size or sign > 0):
                chance += (1 - DECAY) / (1 + DECAY) * DECAY**size
    return chance


def worst(tick: bool, band: int) -> float:
    """The largest chance of an answer that is wrong by more than the band, on either side."""
    chance = wrong_in_a_tick if tick else wrong_since_firing
    return max(chance(THRESHOLD - band - 1, True), chance(THRESHOLD + band, False))


@pytest.mark.parametrize("tick", [False, True])
def test_an_answer_is_right_up_to_its_band_and_not_up_to_half_of_it(tick: bool) -> None:
    one = monitor(tick)
    band = one.ask_band(0, 0, one.init(Given(*[0] * FAR)), CONFIDENCE)
    assert worst(tick, band) <= 1 - CONFIDENCE
    assert worst(tick, band // 2) > 1 - CONFIDENCE


def test_the_band_grows_with_what_was_compared_and_with_that_alone() -> None:
    one = monitor(tick=False)
    state = one.init(Given(*[0] * FAR))
    bands = [one.ask_band(0, updates, state, CONFIDENCE) for updates in (0, 10, 1000)]
    assert bands == [math.ceil(SCALE * math.log((n + 2) / 0.05)) for n in (0, 10, 1000)]
    for _ in range(9):
        state, _ = one.step(state, ThresholdQuery(THRESHOLD, place=3), Given(0))
    assert one.ask_band(0, 1, state, CONFIDENCE) == bands[1]
    ticks = monitor(tick=True)
    state = ticks.init(Given())
    assert {ticks.ask_band(0, updates, state, CONFIDENCE) for updates in (1, 1000)} == {12}


def test_a_window_is_asked_at_its_own_scale() -> None:
    """Both of its noises are twice as wide."""
    watch = WatchTerms(9, window=2)
    block = Monitor(1, Fraction(1, SCALE), Neighbors.ADD_REMOVE, (watch,))
    state = block.init(ZeroNoise())
    assert block.ask_band(0, 10, state, CONFIDENCE) == math.ceil(2 * SCALE * math.log(12 / 0.05))


HIGH, ROUNDS, PLACES = 20, 25, 4000


def test_it_holds_for_the_instances_that_are_left_after_many_comparisons() -> None:
    """Whoever has not fired for long has a high threshold, perhaps: also then no more than 5% are wrong, at each tick.

    4,000 watches of equal counts, re-armed; 5% would be 200, and at a true 5% more than 275 has probability < 1e-7.
    """
    watch = (WatchTerms(HIGH, PLACES),)
    one = Monitor(PLACES, Fraction(1, SCALE), Neighbors.ADD_REMOVE, watch)
    noise = NoiseStream(b"n" * 32, 0)
    state, wrong, narrow = one.init(noise), list[int](), list[int]()
    for tick in range(ROUNDS):
        state, _ = one.step(state, Update(np.full(PLACES, 9)), noise)
        counted, band = state.count, one.ask_band(0, tick, state, CONFIDENCE)
        state, fired = one.step(state, Query(), noise)
        assert fired is not None
        for found, size in ((wrong, band), (narrow, band // 4)):
            early = (fired == 1) & (counted < HIGH - size)
            late = (fired == 0) & (counted >= HIGH + size)
            found.append(int((early | late).sum()))
    assert max(wrong) <= 275
    assert max(narrow) > 275  # the twin: a quarter of it
