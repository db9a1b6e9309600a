"""Counters released at public deadlines: what is held, when it changes, its noise, its band, its exact loss; a twin."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from statistical.attack import Attack, added

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError
from stream_dp.mechanisms.linear.coarse_counter import CoarseCounter, CoarseState
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.hybrid_counter import HybridCounter
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD = Neighbors.ADD_REMOVE
TWO = Fraction(2)


def answers(mechanism: Any, counts: list[int], noise: Noise) -> list[int]:
    """The answer after each count."""
    state, found = mechanism.init(noise), []
    for count in counts:
        state, _ = mechanism.step(state, Update(np.array([count])), noise)
        state, answer = mechanism.step(state, Query(), noise)
        found.append(int(answer[0]))
    return found


def test_the_last_deadlines_count_is_held_and_the_last_tick_is_a_deadline() -> None:
    counter = CoarseCounter(1, TWO, ADD, 8, 3)
    shown = answers(counter, [1, 2, 3, 4, 5, 6, 7, 8], ZeroNoise())
    assert shown == [0, 0, 6, 6, 6, 21, 21, 36]
    assert [counter.deadlines(t) for t in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 3]
    held = [None, None, None, 3, 3, 3, 6, 6, 8]
    assert [counter.told_at(t) for t in range(9)] == held
    endless = CoarseCounter(1, TWO, ADD, None, 3)
    assert answers(endless, [1, 2, 3, 4, 5, 6, 7, 8], ZeroNoise()) == [0, 0, 6, 6, 6, 21, 21, 21]


@pytest.mark.parametrize("horizon", [8, None])
def test_the_noise_is_that_of_a_counter_over_deadlines(horizon: int | None) -> None:
    coarse = CoarseCounter(1, TWO, ADD, horizon, 3)
    plain: Any = HybridCounter(1, TWO, ADD) if horizon is None else Counter(1, TWO, ADD, 3)
    assert coarse.counter == plain
    shown = answers(coarse, [5] * 8, SeededNoise(4))
    right = answers(plain, [15, 15, 10] if horizon else [15, 15], SeededNoise(4))
    assert shown[2::3] + shown[7:] * bool(horizon) == right
    assert coarse.derivation().guarantee == coarse.guarantee


def test_a_band_is_that_of_the_last_deadline() -> None:
    coarse = CoarseCounter(1, TWO, ADD, 8, 3)
    bands = [coarse.band(coarse.public(t, coarse.init(ZeroNoise())), 0.95) for t in range(1, 9)]
    right = [0, *(Counter(1, TWO, ADD, 3).band(n, 0.95) for n in (1, 2, 3))]
    assert bands == [right[n] for n in (0, 0, 1, 1, 1, 2, 2, 3)]


class PeeksBetween(CoarseCounter):
    """Adds what is pending, exactly, to what is held."""

    def step(
        self, state: CoarseState, message: Message, noise: Noise
    ) -> tuple[CoarseState, IntArray | None]:
        """Fresher, and not private."""
        after, answer = super().step(state, message, noise)
        return after, None if answer is None else answer + state.pending


def worst(kind: Callable[..., CoarseCounter], epsilon: Fraction) -> float:
    """A loss that certainly occurs, over all streams of three ticks, released every second one."""
    attack = Attack(partial(kind, 1, epsilon, ADD, 3, 2), mass=1e-4)
    return attack.worst(added(3, (0, 1))).least


def test_its_exact_loss_is_its_claim() -> None:
    assert 4 - 0.5 < worst(CoarseCounter, Fraction(4)) <= 4 + 1e-9
    assert worst(PeeksBetween, Fraction(4)) > 3 * 4


def test_deadlines_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="every 1 or more"):
        CoarseCounter(1, TWO, ADD, 8, 0)
