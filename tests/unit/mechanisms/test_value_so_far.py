"""The value so far beside windows: the longest window as long as it covers all ticks with less noise, then the counter.

Oracle: sums by hand under no noise; the two mechanisms run beside it on the same noise.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, best_forest
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    GaussianAndEver,
    SumsAndEver,
    WindowsAndEver,
)
from stream_dp.mechanisms.serving import Differences
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, ONE, WIDTH, TICKS = Neighbors.ADD_REMOVE, Fraction(1), 2, 12
WINDOWS = (1, 5, 3)
FOREST = WindowForest(WIDTH, ONE, ADD, WINDOWS, FLAT)
MADE: dict[str, Callable[[], Any]] = {
    "counts": lambda: WindowsAndEver(FOREST, Counter(WIDTH, ONE / 3, ADD, TICKS)),
    "endless": lambda: WindowsAndEver(FOREST, HybridCounter(WIDTH, ONE / 3, ADD)),
    "sums": lambda: SumsAndEver(
        SumForest(WIDTH, ONE, ADD, WINDOWS, FLAT, -3, 9),
        SumCounter(WIDTH, ONE / 3, ADD, TICKS, -3, 9),
    ),
    "gaussian": lambda: GaussianAndEver(
        GaussianForest(WIDTH, ONE / 2, ADD, WINDOWS, FLAT),
        GaussianCounter(WIDTH, ONE / 20, ADD, TICKS),
    ),
}
every = pytest.mark.parametrize("make", MADE.values(), ids=MADE)


def answers(made: Any, noise: Any) -> list[np.ndarray[Any, Any]]:
    """The answer after each tick, shape (windows + 1, width); row t is (t, 1)."""
    state, found = made.init(noise), []
    for tick in range(TICKS):
        state, _ = made.step(state, Update(np.array([tick, 1])), noise)
        state, answer = made.step(state, Query(), noise)
        found.append(answer.reshape(-1, WIDTH))
    return found


def right_so_far(made: Any) -> bool:
    """Whether under no noise the value so far is that of all ticks."""
    told = [answer[-1].tolist() for answer in answers(made, ZeroNoise())]
    return told == [[tick * (tick + 1) // 2, tick + 1] for tick in range(TICKS)]


@every
def test_it_is_the_longest_window_while_that_covers_all_ticks(make: Callable[[], Any]) -> None:
    made = make()
    assert made.covered == 5
    assert right_so_far(made)
    for tick, answer in enumerate(answers(made, SeededNoise(3))):
        assert (answer[-1].tolist() == answer[1].tolist()) == (tick < 5)


@every
def test_its_band_is_that_of_what_is_told(make: Callable[[], Any]) -> None:
    made = make()
    for updates in range(1, TICKS + 1):
        public = made.view_public(3, updates, None)
        window = made.forest.view_band(1, updates, 0.95) if updates <= 5 else None
        counter = made.ever.band(updates, 0.95)
        assert made.view_band(3, public, 0.95) == (counter if window is None else window)
        assert window is None or window < counter
        apart = Differences(made, 3).band(public, 0.95)
        other = Differences(made.ever) if window is None else Differences(made.forest, 1)
        if not isinstance(made, SumsAndEver):  # no ranks are read off sums
            assert apart == other.band(updates, 0.95)


class Later(WindowsAndEver):
    """A broken twin: it tells the window one tick longer than that covers all."""

    @cached_property
    def covered(self) -> int:
        """One too many."""
        return max(self.forest.windows) + 1


def test_a_window_that_covers_no_longer_all_is_found() -> None:
    right = MADE["counts"]()
    assert not right_so_far(Later(right.forest, right.ever))


def test_a_window_with_more_noise_than_the_counter_is_not_told() -> None:
    """Long windows of single ticks have more noise than a tree: the switch comes as soon as it has less."""
    forest = WindowForest(1, ONE / 4, ADD, (1, 4000), FLAT)
    made = WindowsAndEver(forest, Counter(1, ONE, ADD, 4000))
    assert made.covered == 0
    even = WindowsAndEver(forest, Counter(1, ONE / 4, ADD, 4000))
    assert 0 < even.covered < 4000
    at = even.covered
    assert forest.view_band(1, at, 0.95) < even.ever.band(at, 0.95)
    assert forest.view_band(1, at + 1, 0.95) >= even.ever.band(at + 1, 0.95)


def test_of_a_long_window_few_ticks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at would hold up the first tick: all of a month of minutes are 43,200."""
    asked, less = list[int](), WindowsAndEver._less_noise

    def counted(made: WindowsAndEver, updates: int) -> bool:
        asked.append(updates)
        return less(made, updates)

    monkeypatch.setattr(WindowsAndEver, "_less_noise", counted)
    windows = (60, 1440, 43_200)
    forest = WindowForest(1, ONE * 3 / 4, ADD, windows, best_forest(windows))
    assert WindowsAndEver(forest, HybridCounter(1, ONE / 4, ADD)).covered == 43_200
    assert len(asked) < 400
    assert asked[:256] == list(range(1, 257))
    assert asked[-1] == 43_200


@pytest.mark.parametrize("until", [0, 1, 255, 256, 257, 300, 2_999, 3_999, 4_000])
def test_the_switch_is_found_whichever_ticks_are_looked_at(
    until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowsAndEver, "_less_noise", lambda _, updates: updates <= until)
    made = WindowsAndEver(WindowForest(1, ONE, ADD, (1, 4000), FLAT), HybridCounter(1, ONE, ADD))
    assert made.covered == until
