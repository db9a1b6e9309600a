"""Small HSS with Gaussian counters, exact in Renyi moments against adaptive adversaries: zCDP claim, broken twins.

The claim: rho adds up, e tanh(e/2) of the pure sparse vectors and ln(1 / node) of each column that an event touches.
Moments at whole orders are rational and nothing is sampled; what clamping loses makes them smaller. Twins: columns
calibrated one by one instead of jointly, half the variance, crossings decided by the exact count, the cheap scale.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.verify.exact.exact_delta import exact_moment
from stream_dp.verify.exact.exact_sparse_vector import SmallGaussianHSS, SmallHSS, clamped_gaussian
from stream_dp.verify.exact.finite import DifferAtMost

HALF, QUARTER, FINE, TINY = Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(1, 50)
ONE_COLUMN = DifferAtMost(
    ((0,), (1,), (3,)), (((0,), (1,)), ((2,), (3,)), ((1,), (0,)), ((3,), (2,)))
)
MOVED = DifferAtMost(((0, 0), (2, 2)), (((3, 2), (2, 3)), ((2, 3), (3, 2))))
SINGLE = SmallGaussianHSS(1, FINE, FINE, HALF, gamma=0, low=-4, high=9)
DOUBLE = SmallGaussianHSS(2, FINE, FINE, HALF, gamma=0, low=-2, high=5)


def pure(*decays: Fraction) -> float:
    """rho of a pure mechanism: e tanh(e/2), e the sum of these."""
    e = -math.log(math.prod(decays))
    return e * math.tanh(e / 2)


def rho(machine: Any, pairs: DifferAtMost, order: int, rounds: int) -> float:
    """D / order of the worst adversary, exact but for the logarithm."""
    return math.log(exact_moment(machine, pairs, order, rounds)) / (order - 1) / order


@pytest.mark.parametrize("decay", [HALF, Fraction(4, 5)])
def test_the_clamped_law_is_that_of_the_density_and_its_moments_are_the_closed_form(
    decay: Fraction,
) -> None:
    """exp(-x^2 / 2v) by floats; at whole orders e^(a (a - 1) / 2v) (CKS 2020), less what clamping takes."""
    law, moved = (clamped_gaussian(c, decay, -15, 16) for c in (0, 1))
    assert sum(law.values()) == sum(moved.values()) == 1
    weights = [math.exp(x * x * math.log(decay)) for x in range(-60, 61)]
    for x in (-7, -1, 0, 3):
        assert float(law[x]) == pytest.approx(weights[x + 60] / sum(weights), rel=1e-9)
    for order in (2, 3):
        result = sum(p**order / moved[x] ** (order - 1) for x, p in law.items())
        assert 0.999 < float(result * decay ** (order * (order - 1))) <= 1


@pytest.mark.parametrize("order", [2, 3, 5])
def test_add_remove_stays_within_the_sum_of_rhos(order: int) -> None:
    """Most of it is met: the event that decides a crossing is in the sum that is released then."""
    claim = pure(FINE, FINE) + math.log(2)
    assert 0.85 * claim < rho(SINGLE, ONE_COLUMN, order, 2) <= claim


def test_replace_stays_within_twice_a_columns_share_and_the_dear_scale() -> None:
    """s = 2 and L0 = 2: the decays of the same noise mean e1, 2 e2 and twice ln(1 / node)."""
    claim = pure(FINE, FINE, FINE) + 2 * math.log(2)
    assert 0.7 * claim < rho(DOUBLE, MOVED, 2, 1) <= claim


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(replace(SINGLE, node=QUARTER), id="half the variance"),
        pytest.param(replace(SINGLE, tau=TINY, nu=TINY), id="exact count"),
    ],
)
def test_too_little_noise_is_caught(twin: SmallHSS) -> None:
    assert rho(twin, ONE_COLUMN, 2, 2) > 1.5 * (pure(FINE, FINE) + math.log(2))


def test_columns_calibrated_one_by_one_are_caught() -> None:
    """Each column has the noise that all of rho = 2 ln 2 would buy for one alone."""
    claim = pure(FINE, FINE, FINE) + 2 * math.log(2)
    assert rho(replace(DOUBLE, node=QUARTER), MOVED, 2, 1) > 1.5 * claim
