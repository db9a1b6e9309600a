"""The group rule in every measure against exact laws: never below, and equal where a mechanism attains it.

Oracles: `oracles.divergences`, laws on a line of data sets whose steps are the neighbours. Equality: clamped discrete
Laplace (pure), a climbing coin (delta), the discrete Gaussian at whole orders (zCDP), a coin of normal quantiles (GDP).
Known-broken twins are caught beside each: k rho, k delta, sqrt(k) mu, e^((k-1)e) delta.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
from oracles.divergences import (
    Law,
    climbing_coin,
    discrete_gaussian_moment,
    drifting_line,
    gaussian_coin,
    gdp,
    geometric_line,
    hockey_stick,
    moment,
    random_line,
    worst_ratio,
    zcdp_bracket,
)

from stream_dp.accounting.amounts import Interval
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Group
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    PureDP,
    RenyiCurve,
    RenyiDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.verify.exact_checks.instance import logarithm

Line = list[dict[int, Fraction]]
ONE = Fraction(1)
UP = Fraction(1, 10**6)  # a float's parameter, made a claim that certainly holds
LINES: dict[str, Callable[[random.Random, int, int], Line]] = {
    "random": random_line,
    "drifting": drifting_line,
}
CASES = [(kind, seed, k) for kind in LINES for seed in range(2) for k in (2, 3, 5)]


def group_of(measure: Measure, k: int) -> Measure:
    """What the package derives for k events of this measure each."""
    premise = leaf("one event", Guarantee(measure, Neighbors.ADD_REMOVE), "its proof")
    return derive((premise,), Group("user", k)).guarantee.measure


def above(number: float) -> Fraction:
    """A claim that this float, off by far less than 1e-6, satisfies."""
    return Fraction(number) + UP


def line_of(kind: str, seed: int, k: int) -> Line:
    """k + 1 laws on two to five outcomes."""
    rng = random.Random(f"{kind} {seed} {k}")
    return LINES[kind](rng, k + 1, rng.randint(2, 5))


def steps(line: Line) -> Iterator[tuple[Law, Law]]:
    return itertools.pairwise(line)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pure_groups_are_met_by_discrete_laplace(k: int) -> None:
    line, decay = geometric_line(k + 1, Fraction(1, 2), 3), Fraction(1, 2)
    assert {worst_ratio(p, q) for p, q in steps(line)} == {1 / decay}
    exact = worst_ratio(line[0], line[k])
    result = group_of(PureDP(logarithm(1 / decay)), k)
    assert isinstance(result, PureDP)
    assert exact == decay**-k <= Interval.of(result.epsilon).exp().upper <= exact * (1 + UP)


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
@pytest.mark.parametrize("odds", [ONE, Fraction(11, 10)])
def test_approximate_groups_cover_every_line(kind: str, seed: int, k: int, odds: Fraction) -> None:
    line = line_of(kind, seed, k)
    delta = max(hockey_stick(p, q, odds) for p, q in steps(line))
    exact = hockey_stick(line[0], line[k], odds**k)
    epsilon = logarithm(odds)
    if delta * sum(odds**i for i in range(k)) >= 1:  # says nothing, and is refused
        with pytest.raises(NotDerivable, match="delta below 1"):
            group_of(ApproxDP(epsilon, delta), k)
        return
    result = differential_privacy(group_of(ApproxDP(epsilon, delta), k))
    assert result.epsilon == k * epsilon
    assert exact <= result.delta


@pytest.mark.parametrize("k", [2, 3, 5])
def test_approximate_groups_are_met_and_the_twins_are_caught(k: int) -> None:
    """Twins: k delta (the factor forgotten), and e^((k-1)e) delta (the sum forgotten)."""
    odds, delta = Fraction(3, 2), Fraction(1, 1000)
    line = climbing_coin(k + 1, odds, delta)
    assert {hockey_stick(p, q, odds) for p, q in steps(line)} == {delta}
    exact = hockey_stick(line[0], line[k], odds**k)
    assert exact == delta * sum(odds**i for i in range(k))
    assert exact > k * delta
    assert exact > odds ** (k - 1) * delta
    result = differential_privacy(group_of(ApproxDP(logarithm(odds), delta), k))
    assert exact <= result.delta <= exact * (1 + UP)


def test_zcdp_groups_as_k_rho_are_caught_by_a_drifting_mechanism() -> None:
    """The twin is below the exact rho; even .9 k^2 rho is."""
    k, line = 5, drifting_line(random.Random(1), 6, 3)
    rho = max(zcdp_bracket(p, q)[1] for p, q in steps(line))
    exact = zcdp_bracket(line[0], line[k])[0]
    assert 0.7 * k * k * rho < exact
    assert k * rho < exact <= k * k * rho


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("order", [2, 5])
def test_zcdp_groups_are_met_by_the_discrete_gaussian(order: int, k: int) -> None:
    """D_order between shifts 0 and k is order k^2 / (2 sigma^2), exactly: e^(-1/(2 sigma^2)) = 9/10."""
    decay = Fraction(9, 10)
    rho = logarithm(1 / decay)  # 1 / (2 sigma^2)
    low, high = discrete_gaussian_moment(decay, k, order, 25)
    claimed = group_of(ZCDP(rho), k)
    assert isinstance(claimed, ZCDP)
    exact = decay ** (-order * (order - 1) * k * k)
    assert low <= exact <= high <= low * (1 + UP)
    assert low <= Interval.of((order - 1) * order * claimed.rho).exp().upper <= high * (1 + UP)
    if k > 1:  # the twin
        assert low > Interval.of((order - 1) * order * k * rho).exp().upper


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
def test_pure_zcdp_and_gaussian_groups_cover_every_line(kind: str, seed: int, k: int) -> None:
    """Exact ratios; rho by its supremum over all orders (Bun, Steinke 2016, Prop. 1.9); mu from the corners of the
    trade-off functions (Dong, Roth, Su 2022, Thm 2.14)."""
    line = line_of(kind, seed, k)
    step = max(worst_ratio(p, q) for p, q in steps(line))
    assert group_of(PureDP(logarithm(step)), k) == PureDP(k * logarithm(step))
    assert worst_ratio(line[0], line[k]) <= step**k
    rho = group_of(ZCDP(above(max(zcdp_bracket(p, q)[1] for p, q in steps(line)))), k)
    assert isinstance(rho, ZCDP)
    assert zcdp_bracket(line[0], line[k])[0] <= rho.rho
    mu = max(gdp(p, q) for p, q in steps(line))
    result = group_of(GaussianDP(above(mu)), k)
    assert isinstance(result, GaussianDP)
    assert gdp(line[0], line[k]) <= result.mu


@pytest.mark.parametrize("k", [1, 2, 4])
def test_gaussian_groups_are_met_by_a_coin_of_normal_quantiles(k: int) -> None:
    """Twin: sqrt(k) mu, as if the events were composed."""
    line, mu = gaussian_coin(k + 1, 0.5, -1.0), Fraction(1, 2)
    assert {round(gdp(p, q), 8) for p, q in steps(line)} == {0.5}
    exact, result = gdp(line[0], line[k]), group_of(GaussianDP(mu), k)
    assert isinstance(result, GaussianDP)
    assert exact == pytest.approx(float(result.mu), abs=1e-8)
    assert k == 1 or exact > math.sqrt(k) * 0.5 + 0.2


def test_one_renyi_order_has_no_group_rule_and_is_refused() -> None:
    """At order 2 two steps of the same cost may be any distance apart, so no bound in terms of the cost holds.

    p_0 = x, p_1 = x^2, p_2 = x^4 of a coin: each step's moment stays below 3, that of both grows like 1 / x^2.
    """
    two = Fraction(2)
    for x in (Fraction(1, 10), Fraction(1, 1000)):
        coins = [{1: p, 0: 1 - p} for p in (x, x**2, x**4)]
        assert all(moment(p, q, 2) < 3 for p, q in steps(coins))
        assert moment(coins[0], coins[2], 2) > 1 / x**2 / 2
    for measure in (RenyiDP(two, ONE), RenyiCurve((RenyiDP(two, ONE), RenyiDP(2 * two, ONE)))):
        for k in (1, 2):
            with pytest.raises(NotDerivable, match="no group rule is known for RDP"):
                group_of(measure, k)


def test_a_tiny_epsilon_is_priced_and_not_divided_by() -> None:
    """e^e - 1 is 0 to sixty digits; the factor is still at least k."""
    for epsilon in (Fraction(1, 10**30), Fraction(1, 10**70), Fraction(1, 10**200)):
        result = group_of(ApproxDP(epsilon, Fraction(1, 1000)), 3)
        assert isinstance(result, ApproxDP)
        assert 3 * Fraction(1, 1000) <= result.delta <= 3 * Fraction(1, 1000) * (1 + UP)
