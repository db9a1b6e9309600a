"""The all-time bound on the loss of pure mechanisms that run at once: exact chances of crossing it, interleaved.

Each mechanism gives up its epsilon in two answers; all first answers come before all second ones, so that half of what
was paid for is still to come. Chances by a walk over the numbers of lies (floats, 1e-12). Twins: the price of half the
epsilon, and a load that forgets mechanisms which the event was in.
"""

import math
from fractions import Fraction

import pytest

from stream_dp.accounting.situations import Alive
from stream_dp.verify.odometers import loss_bound

HALF, FIFTH = Fraction(1, 2), Fraction(1, 5)


def crossing(bound: float, each: float, parts: int) -> float:
    """The chance that the loss of `parts` mechanisms, two answers of each / 2, is ever above `bound`."""
    step, truth = each / 2, 1 / (1 + math.exp(-each / 2))
    heights, crossed = {0: 1.0}, 0.0
    for _ in range(2 * parts):
        after: dict[int, float] = {}
        for height, chance in heights.items():
            for move, p in ((1, truth), (-1, 1 - truth)):
                if (height + move) * step > bound:
                    crossed += chance * p
                else:
                    after[height + move] = after.get(height + move, 0.0) + chance * p
        heights = after
    return crossed


@pytest.mark.parametrize(("each", "parts"), [(HALF, 12), (Fraction(1, 10), 60), (Fraction(1), 6)])
def test_the_bound_is_crossed_seldom_enough(each: Fraction, parts: int) -> None:
    for fails in (FIFTH, Fraction(1, 20)):
        bound = loss_bound([each] * parts, fails=fails)
        assert crossing(float(bound), float(each), parts) <= fails
        assert bound <= parts * each


def test_the_price_of_half_the_epsilon_is_caught() -> None:
    """As if each of the two answers were another mechanism of which only one is counted."""
    less = loss_bound([Fraction(1, 40)] * 200, fails=FIFTH)
    assert crossing(float(less), 0.1, 200) > FIFTH


def test_a_load_that_forgets_what_was_halted_is_caught() -> None:
    """Sixty mechanisms saw the event; six are still there."""
    less = loss_bound([Fraction(1, 10)] * 6, fails=FIFTH)
    assert crossing(float(less), 0.1, 60) > FIFTH


def test_only_what_is_alive_at_one_tick_counts_and_the_sum_is_never_exceeded() -> None:
    epsilons = [Fraction(1, 20)] * 40
    at_once = loss_bound(epsilons)
    assert loss_bound(epsilons, [Alive(0, None)] * 40) == at_once
    assert 1.75 < at_once < 1.85  # of 2
    in_turn = [Alive(n, n) for n in range(40)]
    assert loss_bound(epsilons, in_turn) == Fraction(1, 20)
    assert loss_bound([Fraction(1)]) == 1
    assert loss_bound([]) == 0
