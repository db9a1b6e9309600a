"""Conversions between measures against exact finite laws: never below, and equal where a mechanism attains it.

Equality: randomized response (pure to zCDP and to RDP), a coin of normal quantiles at the epsilon of its corner (GDP to
epsilon, delta), finely rounded Gaussian noise (GDP to zCDP, to 2%). The Renyi bound is only covered.
"""

import math
import random
from fractions import Fraction

import pytest
from oracles.deltas import renyi_delta, zcdp_delta
from oracles.divergences import (
    drifting_line,
    gaussian_coin,
    gdp,
    hockey_stick,
    moment,
    quantised_gaussian,
    random_line,
    renyi,
    worst_ratio,
    zcdp_bracket,
)

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.conversions import (
    pure_to_renyi,
    pure_to_zcdp,
    renyi_epsilon,
    zcdp_budget,
    zcdp_epsilon,
)
from stream_dp.accounting.gaussian_curve import gaussian_delta, gaussian_to_approx
from stream_dp.accounting.rules.renyi import concentrated
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP
from stream_dp.verify.exact_checks.instance import logarithm

UP = Fraction(1, 10**6)
RATIOS = [Fraction(1), Fraction(21, 20), Fraction(5, 4), Fraction(2)]
Law = dict[int, Fraction]


def pair(seed: int) -> tuple[Law, Law]:
    """Two laws on two to four outcomes, near or far."""
    rng = random.Random(seed)
    kind = (random_line, drifting_line)[seed % 2]
    zero, one = kind(rng, 2, rng.randint(2, 4))
    return zero, one


def log_down(odds: Fraction) -> Fraction:
    """ln(odds), rounded down: what is exact at `odds` is at most what is promised there."""
    return max(Interval.of(odds).ln().lower, Fraction(0))


@pytest.mark.parametrize("seed", range(12))
def test_every_conversion_covers_the_exact_laws(seed: int) -> None:
    p, q = pair(seed)
    pure = PureDP(logarithm(worst_ratio(p, q)))
    rho = ZCDP(Fraction(zcdp_bracket(p, q)[1]) + UP)
    mu = GaussianDP(Fraction(gdp(p, q)) + UP)
    assert zcdp_bracket(p, q)[0] <= pure_to_zcdp(pure).rho
    known = concentrated(mu)
    assert known is not None
    assert zcdp_bracket(p, q)[0] <= known.rho
    for alpha in (Fraction(3, 2), Fraction(2), Fraction(17, 3)):
        assert renyi(p, q, float(alpha)) <= float(pure_to_renyi(pure, alpha).epsilon) + 1e-12
    points = [RenyiDP(Fraction(a), logarithm(moment(p, q, a)) / (a - 1)) for a in (2, 3, 8)]
    for ratio in RATIOS:
        exact, epsilon = hockey_stick(p, q, ratio), log_down(ratio)
        assert exact <= zcdp_delta(rho, epsilon)
        assert exact <= gaussian_delta(mu, epsilon)
        assert all(exact <= renyi_delta(point, epsilon) for point in points)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 10**4)])
def test_every_price_at_a_delta_covers_the_exact_laws(seed: int, delta: Fraction) -> None:
    """The price, e^epsilon rounded down: the exact delta there is granted."""
    p, q = pair(seed)
    rho = Fraction(zcdp_bracket(p, q)[1]) + UP
    mu = Fraction(gdp(p, q)) + UP
    prices = [
        zcdp_epsilon(ZCDP(rho), delta),
        gaussian_to_approx(GaussianDP(mu), delta).epsilon,
        *(
            renyi_epsilon(RenyiDP(Fraction(a), logarithm(moment(p, q, a)) / (a - 1)), delta)
            for a in (2, 3, 8)
        ),
    ]
    for price in prices:
        ratio = Fraction(math.exp(float(price))).limit_denominator(10**9) + Fraction(1, 10**8)
        assert hockey_stick(p, q, ratio) <= delta


@pytest.mark.parametrize("odds", [Fraction(11, 10), Fraction(3), Fraction(40)])
def test_randomized_response_meets_the_pure_conversions(odds: Fraction) -> None:
    """Twin of the first: e^2/8, the rho of bounded range, which RR exceeds."""
    p, q = {0: odds / (1 + odds), 1: 1 / (1 + odds)}, {0: 1 / (1 + odds), 1: odds / (1 + odds)}
    pure = PureDP(logarithm(odds))
    rho = float(pure_to_zcdp(pure).rho)
    assert zcdp_bracket(p, q)[0] == pytest.approx(rho, rel=0.002)
    assert zcdp_bracket(p, q)[0] > float(pure.epsilon) ** 2 / 8 or odds > 20
    for order in (2, 3, 5):
        promised = Interval.of((order - 1) * pure_to_renyi(pure, Fraction(order)).epsilon).exp()
        exact = moment(p, q, order)
        assert exact <= promised.upper <= exact * (1 + UP)


def test_a_coin_of_normal_quantiles_meets_the_gaussian_curve() -> None:
    """Its one corner touches the curve where the slope is e^(-c mu - mu^2/2); a curve of .99 mu is exceeded there."""
    p, q = gaussian_coin(2, 0.5, -1.0)
    epsilon = Fraction(3, 8)
    ratio = Fraction(math.exp(0.375))
    exact = float(hockey_stick(p, q, ratio))
    assert exact == pytest.approx(float(gaussian_delta(GaussianDP(Fraction(1, 2)), epsilon)), abs=1e-12)  # fmt: skip
    assert exact > float(gaussian_delta(GaussianDP(Fraction(99, 200)), epsilon))


def test_rounded_gaussian_noise_nearly_meets_the_rho_of_gdp() -> None:
    """mu^2/2 to 2%; the twin mu^2/4 is caught."""
    mu = Fraction(1, 2)
    cuts = [0.25 + 0.1 * i for i in range(-50, 51)]
    p, q = (quantised_gaussian(mean, cuts) for mean in (0.0, 0.5))
    assert gdp(p, q) == pytest.approx(0.5, abs=1e-6)
    known = concentrated(GaussianDP(mu))
    assert known is not None
    exact = max(renyi(p, q, a) / a for a in (1.01, 1.5, 2.0))
    assert 0.98 * float(known.rho) < exact <= known.rho
    assert exact > mu**2 / 4


@pytest.mark.parametrize("seed", range(4))
def test_a_budget_is_the_largest_that_keeps_the_target(seed: int) -> None:
    """`zcdp_budget` and `zcdp_delta` choose their orders apart: they agree to 10^-12, and a little more is too much."""
    rng = random.Random(seed)
    target = ApproxDP(Fraction(rng.randint(5, 20), 20), Fraction(1, 10 ** rng.randint(2, 6)))
    rho = zcdp_budget(target)
    assert zcdp_delta(ZCDP(rho), target.epsilon) <= target.delta * (1 + UP**2)
    assert zcdp_delta(ZCDP(rho * (1 + UP)), target.epsilon) > target.delta
