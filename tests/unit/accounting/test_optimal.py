"""Optimal composition: against all answers listed in Fractions, the closed form and dp_accounting."""

import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from oracles.compositions import closed_form
from oracles.universal import composed_delta

from stream_dp.accounting import optimal
from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.optimal import (
    grid_epsilon,
    joint_delta,
    least_epsilon,
    listed_epsilon,
    precision,
    spare,
)
from stream_dp.errors import NotDerivable

TIGHT = Fraction(1, 10**12)
DELTAS = [Fraction(1, 10**n) for n in (1, 4, 7)]
ODDS = [
    [Fraction(3)],
    [Fraction(3)] * 4,
    [Fraction(3), Fraction(7, 2), Fraction(11, 10)],
    [Fraction(21, 20)] * 3 + [Fraction(2)] * 2 + [Fraction(9, 8)],
]


def logarithm(odds: Fraction) -> Fraction:
    """ln(odds), rounded up: RR at it is no better than RR at the odds."""
    return Interval.of(odds).ln().upper


def ratio(epsilon: Fraction) -> Fraction:
    """e^epsilon, rounded down, so that the exact delta at it is not below the one at epsilon."""
    return max(Interval.of(epsilon).exp().lower, Fraction(1))


@pytest.mark.parametrize("odds", ODDS, ids=str)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_least_epsilon_is_the_least(odds: list[Fraction], delta: Fraction) -> None:
    """Against every answer in Fractions: never below, and 10^-12 less would not do."""
    result = least_epsilon([logarithm(o) for o in odds], delta)
    parts = [(o, Fraction(0)) for o in odds]
    assert composed_delta(parts, ratio(result)) <= delta * (1 + Fraction(1, 10**40))
    if result > TIGHT:
        assert composed_delta(parts, ratio(result - TIGHT)) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "k", "target", "expected"),
    [  # the numbers of dp_accounting, at parts' deltas of 1e-6, 0, 1e-8
        ("0.1", "1e-6", 30, "1.5", 0.000938424819768),
        ("0.1", "0", 100, "3", 0.00136139869483),
        ("0.5", "1e-8", 20, "5", 0.0544205817),
    ],
)
def test_kairouz_oh_viswanath(
    epsilon: str, delta: str, k: int, target: str, expected: float
) -> None:
    """At the closed form's delta the least epsilon is the target again."""
    own = [Fraction(delta)] * k
    closed = closed_form(float(epsilon), float(delta), k, float(target))
    assert closed == pytest.approx(expected, rel=1e-9)
    left = spare(Fraction(closed), joint_delta(own))
    for result in (
        least_epsilon([Fraction(epsilon)] * k, left),
        grid_epsilon(Counter([Fraction(epsilon)] * k), left),
    ):
        assert float(result) == pytest.approx(float(target), rel=1e-7)
    assert 1 - (1 - left) * (1 - joint_delta(own)) == Fraction(closed)


def different(seed: int, k: int) -> list[Fraction]:
    """k epsilons up to 1, none alike."""
    rng = random.Random(seed)
    return [Fraction(rng.randrange(1, 10**9), 10**9) for _ in range(k)]


def test_the_grid_is_never_below_the_list_and_close() -> None:
    """Different epsilons off the grid: losses are rounded up, by at most one step each."""
    epsilons = Counter(different(0, 9))
    for delta in (Fraction(1, 100), Fraction(1, 10**5)):
        exact = listed_epsilon(epsilons, delta)
        assert exact <= grid_epsilon(epsilons, delta) <= exact * Fraction(1005, 1000)
        parts = [(Fraction(math.exp(e)), Fraction(0)) for e in epsilons]
        listed = composed_delta(parts, Fraction(math.exp(exact)))
        assert float(listed) == pytest.approx(float(delta), rel=1e-9)


def test_losses_rounded_down_to_the_grid_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: the same grid, each epsilon in whole steps from below."""
    epsilons, delta = Counter(different(1, 9)), Fraction(1, 100)

    def down(parts: Counter[Fraction], points: int) -> tuple[Fraction, Counter[int]]:
        step = sum(parts.elements(), Fraction(0)) / points
        return step, Counter(math.floor(e / step) for e in parts.elements())

    monkeypatch.setattr(optimal, "_grid", down)
    assert grid_epsilon(epsilons, delta) < listed_epsilon(epsilons, delta)


def test_many_different_epsilons_go_by_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilons, delta = different(5, 12), Fraction(48003, 10**6)
    with monkeypatch.context() as patched:
        patched.setattr(optimal, "listed_epsilon", None)  # 2^12 answers are too many
        result = least_epsilon(epsilons, delta)
    exact = listed_epsilon(Counter(epsilons), delta)
    assert exact <= result <= exact * Fraction(101, 100)
    with pytest.raises(NotDerivable, match="beyond what floats resolve"):
        grid_epsilon(Counter(epsilons), Fraction(1, 10**12))
    assert least_epsilon(epsilons, Fraction(1, 10**12)) == sum(epsilons)
    assert precision(epsilons, Fraction(1, 10**12)).endswith("the sum")
    assert "of the delta set aside for floats" in precision(epsilons, delta)
    assert precision([Fraction(1)] * 9, delta).startswith("all 10 answers listed")


def test_never_looser_than_basic_and_corners() -> None:
    epsilons = [Fraction(1, 3), Fraction(1, 7), Fraction(0)]
    assert least_epsilon(epsilons, Fraction(0)) == Fraction(10, 21)
    assert least_epsilon(epsilons, Fraction(1, 10**300)) <= Fraction(10, 21)
    assert least_epsilon(epsilons, Fraction(1, 2)) == 0
    assert least_epsilon([], Fraction(1, 100)) == least_epsilon([Fraction(0)], Fraction(0)) == 0
    huge = [Fraction(20_000), Fraction(1)]
    assert least_epsilon(huge, Fraction(1, 2)) == 20_001
    assert least_epsilon([Fraction(200)], 1 - Fraction(1, 10**70)) <= 200  # p rounds to 1
    assert spare(Fraction(1, 100), Fraction(1, 50)) < 0
    assert spare(Fraction(1, 10), Fraction(1, 10)) == 0
