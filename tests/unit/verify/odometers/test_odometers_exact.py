"""Odometers against every adversary who chooses each next mechanism by past answers: exact, by backward recursion.

The oracle maximises the probability that the loss ever exceeds the bound ([WRRW] Def 6) over all choices from a menu of
coins with a pure epsilon: randomized response, and lopsided coins, for a post-processing may lose more often. Twin:
advanced composition at one fixed time, read at all times.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest

from stream_dp.core.guarantee import PureDP
from stream_dp.verify.odometers import (
    Boundary,
    FilterBoundary,
    MixtureBoundary,
    Odometer,
    OneSidedMixtureBoundary,
    StitchedBoundary,
)

Taken = tuple[tuple[int, int], ...]  # of each coin: how often tossed, how often the loss went up
Coin = tuple[
    float, float, float
]  # loss upwards, loss downwards (as a number above 0), chance of up
DELTA = Fraction(1, 4)
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)


def coin(up: float, down: float) -> Coin:
    """The coin whose losses are `up` and -`down`: the chances are those with which E exp(-L) = 1."""
    return up, down, math.expm1(down) / (math.exp(down) - math.exp(-up))


def menu(epsilon: Fraction) -> tuple[Coin, ...]:
    """RR, a coin that rarely loses much, one that often loses a little: all of this epsilon."""
    e = float(epsilon)
    return coin(e, e), coin(e, e / 5), coin(e / 5, e)


def worst(coins: tuple[Coin, ...], bound: Callable[[int], float], depth: int) -> float:
    """The largest probability, over all adversaries, that the loss exceeds the bound after some toss."""

    @cache
    def best(taken: Taken) -> float:
        tosses = sum(n for n, _ in taken)
        loss = sum(k * c[0] - (n - k) * c[1] for (n, k), c in zip(taken, coins, strict=True))
        if tosses and loss > bound(tosses):
            return 1.0
        if tosses == depth:
            return 0.0
        found = 0.0
        for i, (_, _, chance) in enumerate(coins):
            n, k = taken[i]
            up, down = (best((*taken[:i], (n + 1, k + more), *taken[i + 1 :])) for more in (1, 0))
            found = max(found, chance * up + (1 - chance) * down)
        return found

    return best(((0, 0),) * len(coins))


def repeated(one: Coin, bound: Callable[[int], float], depth: int) -> float:
    """The same for one coin, forward: the mass that has exceeded the bound."""
    up, down, chance = one
    running, gone = {0: 1.0}, 0.0
    for tosses in range(1, depth + 1):
        after: dict[int, float] = {}
        for k, mass in running.items():
            for more, share in ((1, chance), (0, 1 - chance)):
                after[k + more] = after.get(k + more, 0.0) + mass * share
        over = [k for k in after if k * up - (tosses - k) * down > bound(tosses)]
        gone += sum(after.pop(k) for k in over)
        running = after
    return gone


def shown(boundary: Boundary, epsilon: Fraction, *, tight: bool) -> Callable[[int], float]:
    """What the odometer shows after so many of this epsilon; infinity where nothing finite holds."""
    kept = [Odometer.of(boundary, tight=tight)]

    @cache
    def bound(tosses: int) -> float:
        while len(kept) <= tosses:
            kept.append(kept[-1].observe(PureDP(epsilon)))
        found = kept[tosses].bound()
        return math.inf if found is None else float(found) + 1e-9

    return bound


BOUNDARIES: dict[str, Boundary] = {
    "filter": FilterBoundary.tuned(Fraction(2), DELTA),
    "mixture": MixtureBoundary(DELTA, HALF),
    "one-sided mixture": OneSidedMixtureBoundary(DELTA, HALF),
    "stitched": StitchedBoundary(DELTA, HALF),
}


@pytest.mark.parametrize("name", BOUNDARIES)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("epsilon", [HALF, Fraction(1)])
def test_the_loss_exceeds_the_odometer_with_probability_delta_at_most(
    name: str, tight: bool, epsilon: Fraction
) -> None:
    bound = shown(BOUNDARIES[name], epsilon, tight=tight)
    assert worst(menu(epsilon), bound, 12) <= DELTA
    assert repeated(menu(epsilon)[0], bound, 120) <= DELTA


def test_the_two_oracles_agree() -> None:
    one = menu(HALF)[1]
    assert worst((one,), lambda n: 0.1 * n, 20) == pytest.approx(
        repeated(one, lambda n: 0.1 * n, 20)
    )


def test_the_tight_filter_odometer_is_nearly_met_over_time() -> None:
    """Not vacuous: at 400 tosses of RR(1/10) more than half of delta' is used up."""
    bound = shown(FilterBoundary.tuned(Fraction(1), DELTA), TENTH, tight=True)
    assert DELTA / 2 < repeated(menu(TENTH)[0], bound, 400) <= DELTA


def test_advanced_composition_read_at_all_times_is_caught() -> None:
    """The twin sqrt(2 L V) + V/2 holds at one time only."""
    bits = math.log(1 / DELTA)

    def fixed_time(tosses: int) -> float:
        variance = tosses * 0.01
        return math.sqrt(2 * bits * variance) + variance / 2

    assert repeated(menu(TENTH)[0], fixed_time, 400) > 0.35 > DELTA
