"""Conversions: never below an independent computation, and close to it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.deltas import renyi_delta, zcdp_delta
from scipy import stats

from stream_dp.accounting import conversions as convert
from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.gaussian_curve import gaussian_delta, gaussian_to_approx, normal_cdf
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    ProbabilisticDP,
    PureDP,
    RenyiDP,
)
from stream_dp.errors import InvalidCost

MILLIONTH = Fraction(1, 10**6)
positive = st.fractions(Fraction(1, 1000), 10, max_denominator=10**6)


def rr_renyi(e: float, alpha: float) -> float:
    """The Renyi divergence of randomized response, from the definition."""
    p = 1 / (1 + math.exp(-e))
    q = 1 - p
    return math.log(p**alpha * q ** (1 - alpha) + q**alpha * p ** (1 - alpha)) / (alpha - 1)


@given(positive, st.fractions(Fraction(11, 10), 60, max_denominator=100))
def test_pure_dp_converts_exactly(epsilon: Fraction, alpha: Fraction) -> None:
    rho = convert.pure_to_zcdp(PureDP(epsilon)).rho
    exact = float(epsilon) * math.tanh(float(epsilon) / 2)
    assert float(rho) == pytest.approx(exact, rel=1e-12)
    divergence = rr_renyi(float(epsilon), float(alpha))
    assert divergence <= float(rho * alpha) * (1 + 1e-9)  # it is zCDP at every order
    found = float(convert.pure_to_renyi(PureDP(epsilon), alpha).epsilon)
    assert found == pytest.approx(divergence, rel=1e-7)


def test_the_zcdp_cost_of_pure_dp_is_attained_near_order_one() -> None:
    rho = float(convert.pure_to_zcdp(PureDP(Fraction(2))).rho)
    assert rr_renyi(2.0, 1.00001) / 1.00001 > 0.9999 * rho


def test_zcdp_gives_the_known_gaussian_scales() -> None:
    target = ApproxDP(Fraction(1), MILLIONTH)
    assert 1 / math.sqrt(2 * convert.zcdp_budget(target)) == pytest.approx(4.531, abs=5e-4)
    assert 1 / math.sqrt(2 * convert.standard_budget(target)) == pytest.approx(5.350, abs=5e-4)


@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(1, 10), Fraction(2)])
@pytest.mark.parametrize("delta", [Fraction(1, 100), MILLIONTH, Fraction(1, 10**12)])
def test_zcdp_is_the_infimum_over_a_grid_of_orders(rho: Fraction, delta: Fraction) -> None:
    orders = 1 + np.exp(np.linspace(-6, 12, 200_001))
    gain = orders * np.log1p(-1 / orders) - np.log(orders - 1)
    grid = np.min(orders * float(rho) + (gain - math.log(delta)) / (orders - 1))
    measure = convert.zcdp_to_approx(ZCDP(rho), delta)
    assert float(measure.epsilon) == pytest.approx(grid, rel=1e-7)
    assert zcdp_delta(ZCDP(rho), measure.epsilon) <= delta * (1 + Fraction(1, 10**9))
    budget = convert.zcdp_budget(measure)
    assert budget <= rho * (1 + Fraction(1, 10**9))
    assert zcdp_delta(ZCDP(budget), measure.epsilon) <= delta * (1 + Fraction(1, 10**9))
    assert convert.standard_budget(measure) <= budget


def test_renyi_and_its_inverse_agree_and_round_up() -> None:
    measure = RenyiDP(Fraction(8), Fraction(1, 2))
    found = convert.renyi_to_approx(measure, MILLIONTH)
    expected = 0.5 + (math.log(1e6) + 8 * math.log(7 / 8) - math.log(7)) / 7
    assert float(found.epsilon) == pytest.approx(expected, rel=1e-12)
    back = renyi_delta(measure, found.epsilon)
    assert float(back) == pytest.approx(1e-6, rel=1e-12)
    assert renyi_delta(measure, Fraction(0)) == 1
    assert convert.zcdp_to_renyi(ZCDP(Fraction(1, 3)), Fraction(3)) == RenyiDP(
        Fraction(3), Fraction(1)
    )


@pytest.mark.parametrize("x", [-30, -10, -9.5, -3, -0.25, 0, 1, 6.5, 12])
def test_the_normal_distribution_function_encloses_scipys(x: float) -> None:
    found = normal_cdf(Fraction(x))
    assert float(found.lower) <= stats.norm.cdf(x) * (1 + 1e-12)
    assert float(found.upper) >= stats.norm.cdf(x) * (1 - 1e-12)
    if abs(x) <= 10:
        assert float(found.upper - found.lower) < 1e-50


def test_gaussian_dp_is_the_analytic_gaussian_mechanism() -> None:
    found = gaussian_to_approx(GaussianDP(Fraction(1000, 4225)), MILLIONTH)
    assert float(found.epsilon) == pytest.approx(1, abs=2e-4)
    for mu, e in ((0.3, 1.0), (1.0, 2.0), (3.0, 4.0), (0.5, 0.0)):
        expected = stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
        delta = gaussian_delta(GaussianDP(Fraction(mu)), Fraction(e))
        assert float(delta) == pytest.approx(expected, rel=1e-8)
        assert delta <= zcdp_delta(ZCDP(Fraction(mu) ** 2 / 2), Fraction(e))
    assert gaussian_delta(GaussianDP(Fraction(0)), Fraction(0)) == 0
    assert gaussian_to_approx(GaussianDP(Fraction(1, 10**6)), Fraction(1, 2)).epsilon == 0


def two_point(epsilon: float, delta: float) -> tuple[float, float]:
    """P and Q on two points, (epsilon, delta)-DP and no better: the largest probability of a loss above 2 epsilon.

    P(1) = e^epsilon Q(1) + delta with P(1) = e^(2 epsilon) Q(1) (a hair more, in the limit).
    """
    q = delta / (math.exp(2 * epsilon) - math.exp(epsilon))
    return math.exp(2 * epsilon) * q, q


@pytest.mark.parametrize(
    ("epsilon", "factor", "printed"), [(1.0, 1.582, 0.736), (0.1, 10.508, 18.097)]
)
def test_lemma_2_as_printed_is_false_and_ours_holds(
    epsilon: float, factor: float, printed: float
) -> None:
    delta = 1e-6
    p, q = two_point(epsilon, delta)
    assert p - math.exp(epsilon) * q == pytest.approx(delta)  # tight (epsilon, delta)-DP, one side
    assert p / delta == pytest.approx(factor, abs=1e-3)
    claimed = 2 / (epsilon * math.exp(epsilon))
    assert claimed == pytest.approx(printed, abs=1e-3)
    ours = convert.approx_to_probabilistic(
        ApproxDP(Fraction(epsilon), Fraction(delta)), Fraction(epsilon)
    )
    both = p * (1 + math.exp(-2 * epsilon))  # the mirrored point as well: |L| > 2 epsilon
    assert both > claimed * delta  # the twin is caught
    assert float(ours.delta) == pytest.approx(both, rel=1e-9)  # and ours is met exactly
    assert ours.epsilon == 2 * Fraction(epsilon)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="slack"):
        convert.approx_to_probabilistic(ApproxDP(Fraction(1), MILLIONTH), Fraction(0))
    with pytest.raises(ValueError, match="probability"):
        convert.renyi_epsilon(RenyiDP(Fraction(2), Fraction(1)), Fraction(0))
    for delta in (Fraction(0), Fraction(-1)):
        with pytest.raises((ValueError, InvalidCost), match=r"probability|delta"):
            convert.zcdp_budget(ApproxDP(Fraction(1), delta))
    for make in (
        lambda: PureDP(Fraction(-1)),
        lambda: ApproxDP(Fraction(-1), Fraction(0)),
        lambda: ZCDP(Fraction(-1)),
        lambda: RenyiDP(Fraction(1), Fraction(1)),
        lambda: RenyiDP(Fraction(2), Fraction(-1)),
        lambda: GaussianDP(Fraction(-1)),
        lambda: ProbabilisticDP(Fraction(1), Fraction(1)),
    ):
        with pytest.raises(InvalidCost, match="must"):
            make()
    with pytest.raises(ZeroDivisionError):
        Interval.of(1) / (Interval.of(Fraction(1, 3)) - Fraction(1, 3))


def test_extreme_amounts_neither_overflow_nor_lose_their_direction() -> None:
    tiny = Fraction(1, 10**400)
    for epsilon in (Fraction(1, 10**12), Fraction(1), Fraction(10**4), Fraction(10**18)):
        rho = convert.pure_to_zcdp(PureDP(epsilon)).rho
        assert 0 < rho <= min(epsilon**2 / 2, epsilon) * (1 + Fraction(1, 10**40))
        for delta in (tiny, Fraction(1, 10**6), 1 - Fraction(1, 10**6)):
            target = ApproxDP(epsilon, delta)
            budget = convert.zcdp_budget(target)
            assert budget >= convert.standard_budget(target) >= 0
            if epsilon <= 10**4:
                assert zcdp_delta(ZCDP(budget), epsilon) <= delta * (1 + Fraction(1, 10**6))


@given(st.fractions(-20, 20, max_denominator=1000), st.fractions(-20, 20, max_denominator=1000))
def test_intervals_enclose(a: Fraction, b: Fraction) -> None:
    x, y = Interval.of(a), Interval.of(b)
    pairs = [(x + y, a + b), (x - y, a - b), (x * y, a * b), *([(x / y, a / b)] if b else [])]
    for interval, exact in pairs:
        assert interval.lower <= exact <= interval.upper
        assert interval.upper - interval.lower <= Fraction(1, 10**50)
    square = Interval.of(abs(a)).sqrt()
    assert square.lower**2 <= abs(a) <= square.upper**2
    round_trip = x.exp().ln()
    assert round_trip.lower <= a <= round_trip.upper
