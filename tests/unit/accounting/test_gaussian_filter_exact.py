"""The Gaussian filter against every adversary who chooses each next mu by past answers ([HSV] Cor 14.10), exactly.

mu-GDP of the whole is its delta at every epsilon (Dong, Roth, Su 2022, Cor. 2.13); exact deltas of coins of normal
quantiles, each mu-GDP with equality at its one corner. Twins: a capacity of mu where mu^2 is meant, and single charges.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from oracles.divergences import gaussian_coin, gaussian_delta, gdp
from oracles.filtered import Counts, Filtered, SecretBit
from oracles.static import Answering

from stream_dp.accounting.filters.filter import Spend
from stream_dp.accounting.filters.squares import GaussianFilter
from stream_dp.core.guarantee import GaussianDP
from stream_dp.verify.exact.exact_delta import exact_delta

MENU = (
    (0.5, -1.0),
    (0.5, -0.25),
    (0.3, 0.2),
)  # mu, and the quantile of the coin under the first data set
SLACK = Fraction(1, 10**6)
RATIOS = [Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3)]


def coin(mu: float, start: float) -> tuple[Answering, Fraction]:
    """The coin with short rational chances, and a mu it has."""
    laws = [
        {1: chance, 0: 1 - chance}
        for law in gaussian_coin(2, mu, start)
        for chance in [law[1].limit_denominator(200)]
    ]
    claim = Fraction(gdp(laws[0], laws[1])) + SLACK
    return Answering((tuple(laws[0].values()), tuple(laws[1].values()))), claim


COINS, MUS = zip(*(coin(*each) for each in MENU), strict=True)


def spent(filter_: GaussianFilter, counts: Counts) -> Spend:
    """What so many of each cost."""
    total = Spend()
    for n, mu in zip(counts, MUS, strict=True):
        for _ in range(n):
            total = total + filter_.cost(filter_.entry("coin", GaussianDP(mu), "r", finite=True))
    return total


def worst_excess(rule: Callable[[Counts], bool], mu: float) -> float:
    """The largest excess over mu-GDP of the best adversary behind the rule."""
    machine, pairs = Filtered(COINS, rule), SecretBit(len(COINS))
    return max(
        float(exact_delta(machine, pairs, ratio, 5)) - gaussian_delta(mu, math.log(ratio))
        for ratio in RATIOS
    )


@pytest.mark.parametrize("budget", [Fraction(9, 10), Fraction(6, 5)])
def test_adaptive_choices_stay_within_mu(budget: Fraction) -> None:
    filter_ = GaussianFilter.of(budget)
    rule: Callable[[Counts], bool] = lambda c: spent(filter_, c).within(filter_.capacity)  # noqa: E731
    assert rule((1, 1, 0))
    assert not rule((3, 3, 3))
    assert worst_excess(rule, float(budget)) <= 0
    assert worst_excess(rule, 0.7 * float(budget)) > 0.01  # and not far within


def test_squares_against_mu_and_single_charges_are_caught() -> None:
    budget = Fraction(3, 5)
    filter_ = GaussianFilter.of(budget)
    linear = Spend(int(budget * filter_.scale))
    assert worst_excess(lambda c: spent(filter_, c).within(linear), float(budget)) > 0.01
    alone = all(mu < budget for mu in MUS)
    assert alone
    assert worst_excess(lambda _: True, float(budget)) > 0.1
