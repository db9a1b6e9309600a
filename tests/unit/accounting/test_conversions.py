"""Conversions: never below an independent computation, and close to it."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from scipy import stats

from stream_dp.accounting import conversions as convert
from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.conversions import (
    pure_to_renyi,
    pure_to_zcdp,
    renyi_epsilon,
    zcdp_budget,
    zcdp_epsilon,
)
from stream_dp.accounting.gaussian_curve import gaussian_delta, gaussian_to_approx, normal_cdf
from stream_dp.accounting.rules.renyi import concentrated
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP
from stream_dp.errors import InvalidCost
from stream_dp.verify.exact_checks.instance import logarithm

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
    result = float(convert.pure_to_renyi(PureDP(epsilon), alpha).epsilon)
    assert result == pytest.approx(divergence, rel=1e-7)


@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(2)])
@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**12)])
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
    result = convert.renyi_to_approx(measure, MILLIONTH)
    expected = 0.5 + (math.log(1e6) + 8 * math.log(7 / 8) - math.log(7)) / 7
    assert float(result.epsilon) == pytest.approx(expected, rel=1e-12)
    back = renyi_delta(measure, result.epsilon)
    assert float(back) == pytest.approx(1e-6, rel=1e-12)
    assert renyi_delta(measure, Fraction(0)) == 1
    assert convert.zcdp_to_renyi(ZCDP(Fraction(1, 3)), Fraction(3)) == RenyiDP(
        Fraction(3), Fraction(1)
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "order"),
    [
        ("2", "1e-6", 13),
        ("1", "1e-6", 23),
        ("0.1", "1e-9", 322),
        ("8", "1e-3", 3),
        ("100", "1e-3", 43),
    ],
)
def test_the_best_order_holds_most_small_pure_costs(epsilon: str, delta: str, order: int) -> None:
    target, small = ApproxDP(Fraction(epsilon), Fraction(delta)), Fraction(epsilon) / 40
    assert convert.best_order(target) == order

    def held(alpha: int) -> float:
        gain = alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)
        left = float(epsilon) - (gain - math.log(float(delta))) / (alpha - 1)
        return left / rr_renyi(float(small), alpha)

    assert max(range(2, 3 * order + 10), key=held) == order


@pytest.mark.parametrize("x", [-30, -9.5, -0.25, 0, 6.5, 12])
def test_the_normal_distribution_function_encloses_scipys(x: float) -> None:
    result = normal_cdf(Fraction(x))
    assert float(result.lower) <= stats.norm.cdf(x) * (1 + 1e-12)
    assert float(result.upper) >= stats.norm.cdf(x) * (1 - 1e-12)
    if abs(x) <= 10:
        assert float(result.upper - result.lower) < 1e-50


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
    with pytest.raises(ZeroDivisionError):
        Interval.of(1) / (Interval.of(Fraction(1, 3)) - Fraction(1, 3))


def test_extreme_amounts_neither_overflow_nor_lose_their_direction() -> None:
    assert gaussian_delta(GaussianDP(Fraction(0)), Fraction(0)) == 0
    assert gaussian_to_approx(GaussianDP(Fraction(1, 10**6)), Fraction(1, 2)).epsilon == 0
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


# --- against exact finite laws --------------------------------------------------------------------


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


@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.parametrize("seed", range(2))
def test_a_budget_is_the_largest_that_keeps_the_target(seed: int) -> None:
    """`zcdp_budget` and `zcdp_delta` choose their orders apart: they agree to 10^-12, and a little more is too much."""
    rng = random.Random(seed)
    target = ApproxDP(Fraction(rng.randint(5, 20), 20), Fraction(1, 10 ** rng.randint(2, 6)))
    rho = zcdp_budget(target)
    assert zcdp_delta(ZCDP(rho), target.epsilon) <= target.delta * (1 + UP**2)
    assert zcdp_delta(ZCDP(rho * (1 + UP)), target.epsilon) > target.delta
