"""The table of decays: what privacy is computed from is exact, error is near its optimum, and bands use the right law.

The oracle is `oracles.blt`: power series in Fractions. Optimum: that of the square-root Toeplitz strategy, whose
squared norm is (ln t + 0.5772 + ln 16) / pi up to 1e-4 from t = 16 on; its mean square error times rho is half the
norm's square.
"""

import math
from fractions import Fraction

import pytest
from oracles.blt import coefficients, inverse_sums, squares

from stream_dp.mechanisms.linear.gaussian_counter import ENDLESS, TUNED, Decays, decays_for

SMALL = [Decays((1,), (64,)), Decays((3, 1), (150, 11)), Decays(*TUNED[4]), Decays(*TUNED[6])]


def optimum(steps: int) -> float:
    """The least mean square error at `steps`, times rho."""
    return ((math.log(steps) + 0.577215665 + math.log(16)) / math.pi) ** 2 / 2


def error(decays: Decays, steps: int, horizon: int | None) -> float:
    """Mean square error at `steps`, times rho, without roundings."""
    return float(decays.squared_norm(horizon)) * decays.growth(steps) / 2


@pytest.mark.parametrize("decays", SMALL, ids=str)
def test_norm_and_growth_are_those_of_the_definitions(decays: Decays) -> None:
    for steps in (1, 2, 3, 7, 40):
        c = coefficients(decays, steps)
        exact, computed = squares(c), decays.squared_norm(steps)
        assert exact <= computed <= exact + Fraction(1, 1 << 120)
        growth = float(squares(inverse_sums(c)))
        assert decays.growth(steps) == pytest.approx(growth, rel=1e-12)


@pytest.mark.parametrize("decays", SMALL, ids=str)
def test_the_endless_norm_is_above_every_other(decays: Decays) -> None:
    norms = [decays.squared_norm(steps) for steps in (1, 2, 10, 1000, 10**6, 1 << 40)]
    assert norms == sorted(norms)
    assert norms[-1] <= decays.squared_norm(None) <= norms[-1] + Fraction(1, 1 << 100)


def test_every_line_is_near_its_optimum() -> None:
    for bits, line in TUNED.items():
        steps = 1 << bits
        assert decays_for(steps) == Decays(*line)
        assert error(decays_for(steps), steps, steps) < optimum(steps) * (
            1.02 if bits < 26 else 1.06
        )


def test_without_a_horizon_every_step_is_within_1_8_of_its_own_optimum() -> None:
    endless = decays_for(None)
    for bits in range(4, 33):
        for steps in (1 << bits, min(3 << bits - 1, 1 << 32)):
            assert error(endless, steps, None) < 1.8 * optimum(steps)


def test_a_horizon_takes_the_next_line() -> None:
    assert decays_for(1) == decays_for(2) == Decays(*TUNED[1])
    assert decays_for(1024) == Decays(*TUNED[10])
    assert decays_for(1025) == Decays(*TUNED[11])
    assert decays_for((1 << max(TUNED)) + 1) == Decays(*ENDLESS)


def test_no_gain_outgrows_64_bits() -> None:
    for halvings, gains in (*TUNED.values(), ENDLESS):
        assert 1 <= min(halvings) <= max(halvings) < 40
        assert all(1 <= gain < 1 << 23 for gain in gains)  # what products leave room for
