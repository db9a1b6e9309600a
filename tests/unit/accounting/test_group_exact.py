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
    ProbabilisticDP,
    PureDP,
    RenyiCurve,
    RenyiDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.verify.exact_checks.instance import logarithm

Line = list[dict[int, Fraction]]
ONE, ZERO = Fraction(1), Fraction(0)
UP = Fraction(1, 10**6)  # a float's parameter, made a claim that certainly holds
LINES: dict[str, Callable[[random.Random, int, int], Line]] = {
    "random": random_line,
    "drifting": drifting_line,
}
CASES = [(kind, seed, k) for kind in LINES for seed in range(6) for k in (2, 3, 5)]


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
    """The neighbouring pairs."""
    return itertools.pairwise(line)


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
def test_pure_groups_cover_every_line(kind: str, seed: int, k: int) -> None:
    line = line_of(kind, seed, k)
    each = max(worst_ratio(p, q) for p, q in steps(line))
    assert group_of(PureDP(logarithm(each)), k) == PureDP(k * logarithm(each))
    assert worst_ratio(line[0], line[k]) <= each**k


@pytest.mark.parametrize("k", [1, 2, 4])
def test_pure_groups_are_met_by_discrete_laplace(k: int) -> None:
    line, decay = geometric_line(k + 1, Fraction(1, 2), 3), Fraction(1, 2)
    assert {worst_ratio(p, q) for p, q in steps(line)} == {1 / decay}
    exact = worst_ratio(line[0], line[k])
    found = group_of(PureDP(logarithm(1 / decay)), k)
    assert isinstance(found, PureDP)
    assert exact == decay**-k <= Interval.of(found.epsilon).exp().upper <= exact * (1 + UP)


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
@pytest.mark.parametrize("odds", [ONE, Fraction(11, 10), Fraction(5, 4)])
def test_approximate_groups_cover_every_line(kind: str, seed: int, k: int, odds: Fraction) -> None:
    line = line_of(kind, seed, k)
    delta = max(hockey_stick(p, q, odds) for p, q in steps(line))
    exact = hockey_stick(line[0], line[k], odds**k)
    epsilon = logarithm(odds)
    if delta * sum(odds**i for i in range(k)) >= 1:  # says nothing, and is refused
        with pytest.raises(NotDerivable, match="delta below 1"):
            group_of(ApproxDP(epsilon, delta), k)
        return
    found = differential_privacy(group_of(ApproxDP(epsilon, delta), k))
    assert found.epsilon == k * epsilon
    assert exact <= found.delta


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
    found = differential_privacy(group_of(ApproxDP(logarithm(odds), delta), k))
    assert exact <= found.delta <= exact * (1 + UP)


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
def test_probabilistic_groups_cover_every_line(kind: str, seed: int, k: int) -> None:
    """pDP: the loss of one step exceeds the second largest one with probability delta, under either data set."""
    line = line_of(kind, seed, k)
    ratios = {max(p[o] / q[o], q[o] / p[o]) for p, q in steps(line) for o in p}
    odds = sorted(ratios)[-2]
    delta = max(
        sum((law[o] for o in law if not 1 / odds <= p[o] / q[o] <= odds), ZERO)
        for p, q in steps(line)
        for law in (p, q)
    )
    assert 0 < delta < 1
    if delta * sum(odds**i for i in range(k)) >= 1:
        with pytest.raises(NotDerivable, match="delta below 1"):
            group_of(ProbabilisticDP(logarithm(odds), delta), k)
        return
    found = group_of(ProbabilisticDP(logarithm(odds), delta), k)
    assert isinstance(found, ApproxDP)  # pDP of a group is not claimed
    assert hockey_stick(line[0], line[k], odds**k) <= found.delta


@pytest.mark.parametrize(("kind", "seed", "k"), CASES)
def test_zcdp_groups_cover_every_line(kind: str, seed: int, k: int) -> None:
    """Bun, Steinke 2016, Prop. 1.9 (xi = 0), for any mechanism: rho is the exact supremum over all orders."""
    line = line_of(kind, seed, k)
    rho = max(zcdp_bracket(p, q)[1] for p, q in steps(line))
    found = group_of(ZCDP(above(rho)), k)
    assert isinstance(found, ZCDP)
    assert zcdp_bracket(line[0], line[k])[0] <= found.rho


def test_zcdp_groups_as_k_rho_are_caught_by_a_drifting_mechanism() -> None:
    """The twin is below the exact rho; even .9 k^2 rho is."""
    k, line = 5, drifting_line(random.Random(1), 6, 3)
    rho = max(zcdp_bracket(p, q)[1] for p, q in steps(line))
    exact = zcdp_bracket(line[0], line[k])[0]
    assert 0.7 * k * k * rho < exact
    assert k * rho < exact <= k * k * rho


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("order", [2, 3, 5])
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
def test_gaussian_groups_cover_every_line(kind: str, seed: int, k: int) -> None:
    """Dong, Roth, Su 2022, Thm 2.14: mu is exact, from the corners of the trade-off functions."""
    line = line_of(kind, seed, k)
    mu = max(gdp(p, q) for p, q in steps(line))
    found = group_of(GaussianDP(above(mu)), k)
    assert isinstance(found, GaussianDP)
    assert gdp(line[0], line[k]) <= found.mu


@pytest.mark.parametrize("k", [1, 2, 4])
def test_gaussian_groups_are_met_by_a_coin_of_normal_quantiles(k: int) -> None:
    """Twin: sqrt(k) mu, as if the events were composed."""
    line, mu = gaussian_coin(k + 1, 0.5, -1.0), Fraction(1, 2)
    assert {round(gdp(p, q), 8) for p, q in steps(line)} == {0.5}
    exact, found = gdp(line[0], line[k]), group_of(GaussianDP(mu), k)
    assert isinstance(found, GaussianDP)
    assert exact == pytest.approx(float(found.mu), abs=1e-8)
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
        found = group_of(ApproxDP(epsilon, Fraction(1, 1000)), 3)
        assert isinstance(found, ApproxDP)
        assert 3 * Fraction(1, 1000) <= found.delta <= 3 * Fraction(1, 1000) * (1 + UP)


# --- adaptive: two rounds, every deterministic adversary, changes in both rounds


def strategies(
    answers: int, changes: int
) -> Iterator[tuple[tuple[int, int], tuple[tuple[int, int], ...]]]:
    """A first pair of bits, and a second for each answer; at most `changes` pairs of different bits on a path."""
    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    for first in pairs:
        left = changes - (first[0] != first[1])
        allowed = [p for p in pairs if p[0] == p[1] or left > 0]
        for second in itertools.product(allowed, repeat=answers):
            if left >= 0:
                yield first, second


def views(seed: int, answers: int, changes: int) -> Iterator[tuple[Law, Law]]:
    """The view's two laws under a random two-round mechanism whose second law depends on all that came before."""
    rng = random.Random(seed)

    def draw() -> list[Fraction]:
        weights = [rng.randint(4, 9) for _ in range(answers)]
        return [Fraction(w, sum(weights)) for w in weights]

    early = {bit: draw() for bit in (0, 1)}
    late = {(a, x, y): draw() for a in range(answers) for x in (0, 1) for y in (0, 1)}
    for first, second in strategies(answers, changes):
        laws = [
            {
                (a, c): early[first[b]][a] * late[a, first[b], second[a][b]][c]
                for a in range(answers)
                for c in range(answers)
            }
            for b in (0, 1)
        ]
        yield laws[0], laws[1]


@pytest.mark.parametrize("seed", range(4))
def test_groups_hold_against_every_adaptive_adversary(seed: int) -> None:
    """One change is measured over all adversaries; the rule covers two changes, in all four measures."""
    one, two = (list(views(seed, 2, changes)) for changes in (1, 2))
    ratio = max(worst_ratio(p, q) for p, q in one)
    assert max(worst_ratio(p, q) for p, q in two) <= ratio**2
    rho = group_of(ZCDP(above(max(zcdp_bracket(p, q, 1.05)[1] for p, q in one))), 2)
    assert isinstance(rho, ZCDP)
    assert max(zcdp_bracket(p, q, 1.05)[0] for p, q in two) <= rho.rho
    mu = group_of(GaussianDP(above(max(gdp(p, q) for p, q in one))), 2)
    assert isinstance(mu, GaussianDP)
    assert max(gdp(p, q) for p, q in two) <= mu.mu
    for odds in (ONE, Fraction(21, 20)):
        delta = max(hockey_stick(p, q, odds) for p, q in one)
        exact = max(hockey_stick(p, q, odds**2) for p, q in two)
        assert exact > 0
        assert max(hockey_stick(p, q, odds) for p, q in two) >= delta  # two may be one
        epsilon = logarithm(odds)
        assert exact <= differential_privacy(group_of(ApproxDP(epsilon, delta), 2)).delta
