"""The basic filter and pure DP as Gaussian DP: closed forms, what a halt frees, and twins that an adversary beats.

Oracles: Dong, Roth, Su's trade-off functions at RR's corner (scipy); exact deltas of randomized responses one after the
other. Twins: a ledger that frees a delta with its mechanism, one that counts no delta, mu = epsilon.
"""

import dataclasses
import math
from fractions import Fraction

import pytest
from oracles.compositions import FiniteComposition, SparsePairs
from scipy.stats import norm

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.filters.filter import Entry, Spend
from stream_dp.accounting.filters.linear import BasicFilter
from stream_dp.accounting.filters.squares import GaussianFilter
from stream_dp.accounting.gaussian_curve import gaussian_budget, gaussian_delta, pure_to_gaussian
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.guarantee import ApproxDP, GaussianDP, PureDP
from stream_dp.errors import BudgetRefused
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.finite import BIT_PAIRS
from stream_dp.verify.exact.finite import FirstPair as First
from stream_dp.verify.exact.randomized_response import RandomizedResponse

ONE, TENTH, SLACK = Fraction(1), Fraction(1, 10), Fraction(1, 1000)
EPSILONS = [Fraction(1, 100), ONE, Fraction(39)]


def asked(ledger: Ledger, epsilon: Fraction, delta: Fraction = Fraction(0)) -> Entry:
    return ledger.ask("m", ApproxDP(epsilon, delta) if delta else PureDP(epsilon), "r")


def test_both_add_up_and_each_is_refused_alone() -> None:
    ledger = Ledger.under(BasicFilter.of(ONE, 2 * SLACK))
    ledger = ledger.charge(asked(ledger, TENTH, SLACK)).charge(asked(ledger, ONE / 2))
    assert ledger.used == Spend(6 * UNITS // 10, UNITS // 1000)
    for epsilon, delta in ((Fraction(1, 2), Fraction(0)), (TENTH, SLACK * 3 / 2)):
        before = ledger.used
        with pytest.raises(BudgetRefused, match="under the basic filter this costs"):
            ledger.charge(asked(ledger, epsilon, delta))
        assert ledger.used == before
    full = ledger.charge(asked(ledger, Fraction(2, 5), SLACK))
    assert full.left == 0
    assert full.remaining.delta == 0
    assert full.filter.promise == ApproxDP(ONE, 2 * SLACK)


def test_a_halt_frees_every_epsilon_and_no_delta() -> None:
    empty = Ledger.under(BasicFilter.of(ONE, 2 * SLACK))
    pure, rough = asked(empty, Fraction(9, 10)), asked(empty, TENTH, SLACK)
    ledger = empty.charge(pure).halt(pure, 3)
    assert ledger.left == UNITS
    ledger = ledger.charge(rough, 3).halt(rough, 5)
    assert ledger.used == Spend(0, UNITS // 1000)
    with pytest.raises(BudgetRefused, match="freed the privacy loss only from tick"):
        ledger.charge(asked(ledger, TENTH), 2)
    shown = bound_at(ledger.filter, ledger.peak, ONE / 2)
    assert shown == ApproxDP(Fraction(9, 10), SLACK)  # of two ticks: the largest of each


def exact(parts: int, delta: Fraction) -> Fraction:
    """The delta of so many RR_(0, delta), one bit each and all of them different, at epsilon 0."""
    machines = FiniteComposition((RandomizedResponse(Fraction(1), delta),))
    pairs = SparsePairs((First(BIT_PAIRS),), (parts,), parts)
    return exact_delta(machines, pairs, Fraction(1), 2 * parts)


def test_a_ledger_that_frees_or_counts_no_delta_is_beaten() -> None:
    """Three failures of 1/10 where 1/5 is promised."""
    ledger, admitted = Ledger.under(BasicFilter.of(ONE, Fraction(1, 5))), 0
    freeing, forgetful = ledger, ledger
    for tick in range(3):
        entry = asked(ledger, TENTH, TENTH)
        try:
            ledger = ledger.charge(entry, tick).halt(entry, tick + 1)
            admitted += 1
        except BudgetRefused:
            pass
        charged = freeing.charge(entry)
        freeing = dataclasses.replace(charged, loads=freeing.loads, used=freeing.used)
        forgetful = forgetful.charge(dataclasses.replace(entry, delta=0))
    assert admitted == 2
    assert exact(admitted, TENTH) <= Fraction(1, 5)
    assert freeing.count == forgetful.count == 3
    assert exact(3, TENTH) > Fraction(1, 5)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_pure_dp_as_gaussian_dp_touches_randomized_response(epsilon: Fraction) -> None:
    mu = pure_to_gaussian(PureDP(epsilon)).mu
    lie = 1 / (1 + math.exp(float(epsilon)))
    assert float(mu) == pytest.approx(-2 * float(norm.ppf(lie)), abs=2e-12)
    assert norm.cdf(norm.isf(lie) - float(mu)) <= lie * (1 + 1e-9)  # G_mu at the corner


def test_no_smaller_mu_will_do() -> None:
    """RR(ln 3) is not (epsilon)-GDP, nor at one unit less than mu: its delta at epsilon 0 is TV = 1/2."""
    mu = pure_to_gaussian(PureDP(Fraction(math.log(3)))).mu
    assert gaussian_delta(GaussianDP(mu), Fraction(0)) >= Fraction(1, 2) - Fraction(1, 10**12)
    for less in (Fraction(math.log(3)), mu - Fraction(1, 10**6)):
        assert gaussian_delta(GaussianDP(less), Fraction(0)) < Fraction(1, 2)


def test_large_epsilons_are_bounded() -> None:
    mus = [pure_to_gaussian(PureDP(Fraction(e))).mu for e in (39, 40, 41, 1000)]
    assert mus == sorted(mus)
    assert float(mus[-1]) == pytest.approx(math.sqrt(8000))
    assert pure_to_gaussian(PureDP(Fraction(0))).mu == 0


@pytest.mark.parametrize(
    "target", [ApproxDP(ONE, SLACK**2), ApproxDP(ONE / 50, SLACK), ApproxDP(8 * ONE, SLACK**3)]
)
def test_the_budget_of_a_gaussian_ledger_is_the_largest_that_implies_the_target(
    target: ApproxDP,
) -> None:
    mu = gaussian_budget(target)
    assert gaussian_delta(GaussianDP(mu), target.epsilon) <= target.delta
    more = GaussianDP(mu + Fraction(1, 10**11))
    assert gaussian_delta(more, target.epsilon) > target.delta


def test_a_gaussian_ledger_takes_pure_mechanisms_and_finite_gaussian_ones() -> None:
    filter_ = GaussianFilter.of(ONE)
    ledger = Ledger.under(filter_)
    ledger = ledger.charge(ledger.ask("pure", PureDP(ONE / 20), "r"))
    mu = pure_to_gaussian(PureDP(ONE / 20)).mu
    assert ledger.used == Spend(int(mu * UNITS) ** 2)
    ledger = ledger.charge(ledger.ask("noisy", GaussianDP(ONE / 2), "r", finite=True))
    assert ledger.used == Spend(int(mu * UNITS) ** 2 + (UNITS // 2) ** 2)
    with pytest.raises(BudgetRefused, match="takes only charges with delta = 0"):
        ledger.charge(ledger.ask("rough", ApproxDP(TENTH, SLACK), "r"))
