"""Conversions, compositions, filters and odometers against other people's: dp_accounting and OpenDP 0.16.

Tolerances: relative, as stated at each comparison. Where a peer searches a grid of orders or discretises losses, its
result may only be above ours, by what its grid costs; where both evaluate one formula they agree to 10^-9.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import dp_accounting
import opendp.prelude as dp
import pytest
from dp_accounting import rdp
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from stream_dp.accounting.conversions import pure_to_renyi, renyi_epsilon, zcdp_epsilon
from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.gaussian_curve import gaussian_delta, gaussian_to_approx
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.ledger import truncated_odometer as bound
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.guarantee import ZCDP, GaussianDP, Measure, PureDP, RenyiDP

MILLIONTH = Fraction(1, 10**6)
STEP = 1e-4  # of dp_accounting's discretised losses
ORDERS = [1 + 2 ** (i / 16) for i in range(-96, 160)]
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE


def charged(filter_: Filter, measures: list[Measure]) -> Spend:
    """What a ledger under this filter has used after these."""
    ledger = Ledger.under(filter_)
    for measure in measures:
        ledger = ledger.charge(ledger.ask("m", measure, "r"))
    return ledger.used


@pytest.mark.parametrize("rhos", [(0.01, 0.02, 0.3), (0.001,) * 50])
def test_zcdp_ledgers_agree_with_the_rdp_accountant(rhos: tuple[float, ...]) -> None:
    """Its grid of 256 orders costs at most 10^-3."""
    accountant = rdp.RdpAccountant(ORDERS)
    for rho in rhos:
        accountant.compose(dp_accounting.ZCDpEvent(rho))
    filter_ = ZCDPFilter.of(Fraction(2))
    used = charged(filter_, [ZCDP(Fraction(rho)) for rho in rhos])
    ours = float(bound_at(filter_, used, MILLIONTH).epsilon)
    theirs = accountant.get_epsilon(1e-6)
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("alpha", [1.5, 64.0])
def test_renyi_ledgers_agree_with_the_rdp_accountant(alpha: float) -> None:
    """One order, one formula: randomized response with odds 3 and 7, three times each."""
    accountant = rdp.RdpAccountant([alpha], REPLACE_ONE)
    for flip in (0.5, 0.25):  # the true bit is kept with probability 1 - flip / 2
        event = dp_accounting.RandomizedResponseDpEvent(flip, 2)
        accountant.compose(event, 3)
    order = Fraction(alpha)
    filter_ = RenyiFilter.of(RenyiDP(order, Fraction(100)))
    steps = [PureDP(Fraction(math.log(odds))) for odds in (3, 7)]
    used = charged(filter_, [*steps * 3])
    result = bound(filter_, used)
    assert isinstance(result, RenyiDP)
    single = sum(float(pure_to_renyi(step, order).epsilon) for step in steps)
    assert float(result.epsilon) == pytest.approx(3 * single, rel=1e-9)
    theirs = accountant.get_epsilon(1e-6)
    assert float(renyi_epsilon(result, MILLIONTH)) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("mus", [(0.5, 0.25, 1.0), (0.1,) * 12])
def test_gaussian_ledgers_agree_with_privacy_loss_distributions(mus: tuple[float, ...]) -> None:
    """Discretised losses are rounded up: theirs is above ours, by at most 10^-3."""
    composed = pld.from_gaussian_mechanism(1 / mus[0], value_discretization_interval=STEP)
    for mu in mus[1:]:
        part = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=STEP)
        composed = composed.compose(part)
    filter_ = GaussianFilter.of(Fraction(2))
    ledger = Ledger.under(filter_)
    for mu in mus:
        entry = filter_.entry("m", GaussianDP(Fraction(mu)), "clamped", finite=True)
        ledger = ledger.charge(entry)
    result = bound(filter_, ledger.used)
    assert isinstance(result, GaussianDP)
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(2)):
        ours = float(gaussian_delta(result, epsilon))
        theirs = composed.get_delta_for_epsilon(float(epsilon))
        assert ours <= theirs * (1 + 1e-6)
        assert ours == pytest.approx(theirs, rel=1e-3)
    ours = float(gaussian_to_approx(result, MILLIONTH).epsilon)
    assert ours == pytest.approx(composed.get_epsilon_for_delta(1e-6), rel=1e-4)


def discretised(epsilon: float, delta: float) -> pld.PrivacyLossDistribution:
    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=STEP)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2)])
def test_what_a_filter_admits_is_within_its_promise_by_privacy_loss_distributions(
    epsilon: Fraction,
) -> None:
    """And ten times as many are not; the filter promises for adaptive choices, theirs counts fixed ones."""
    target = Fraction(3)
    filter_ = TightApproximateFilter.of(target, MILLIONTH, MILLIONTH)
    cost = filter_.cost(filter_.entry("m", PureDP(epsilon), "r"))
    admitted = filter_.capacity.amount // cost.amount
    one = discretised(float(epsilon), 0)
    assert one.self_compose(admitted).get_delta_for_epsilon(3.0) <= 1e-6
    assert one.self_compose(10 * admitted).get_delta_for_epsilon(3.0) > 1e-6


@pytest.fixture(scope="module")
def opendp() -> Iterator[None]:
    """OpenDP's fully adaptive odometers and filters."""
    dp.enable_features("contrib", "honest-but-curious")
    yield
    dp.disable_features("contrib", "honest-but-curious")


def space() -> tuple[dp.Domain, dp.Metric]:
    return dp.atom_domain(T=int), dp.absolute_distance(T=int)


def at_distance_one(measurement: Any) -> Any:
    """Its privacy loss between inputs at distance 1."""
    return measurement.map(1)


@pytest.mark.usefixtures("opendp")
def test_their_pure_odometer_adds_up_as_ours() -> None:
    """To the float error of their sum, 10^-12."""
    their_odometer = dp.c.make_fully_adaptive_composition(
        *space(), output_measure=dp.max_divergence()
    )
    asked = their_odometer(0)
    filter_ = PureFilter.of(Fraction(3))
    measures: list[Measure] = []
    for scale in (1, 3, 7, 10, 11):
        asked(dp.m.make_laplace(*space(), scale=float(scale)))
        measures.append(PureDP(Fraction(1, scale)))
        result = bound(filter_, charged(filter_, measures))
        assert isinstance(result, PureDP)
        assert float(result.epsilon) == pytest.approx(asked.privacy_loss(1), rel=1e-11)


@pytest.mark.usefixtures("opendp")
def test_their_zcdp_odometer_and_conversion_agree_with_ours() -> None:
    """One formula each: 10^-9."""
    their_odometer = dp.c.make_fully_adaptive_composition(
        *space(), output_measure=dp.zero_concentrated_divergence()
    )
    asked = their_odometer(0)
    filter_ = ZCDPFilter.of(Fraction(3))
    measures: list[Measure] = []
    for scale in (1, 2, 10):
        gaussian = dp.m.make_gaussian(*space(), scale=float(scale))
        asked(gaussian)
        rho = Fraction(1, 2 * scale**2)
        measures.append(ZCDP(rho))
        result = bound(filter_, charged(filter_, measures))
        assert isinstance(result, ZCDP)
        assert float(result.rho) == pytest.approx(asked.privacy_loss(1), rel=1e-9)
        theirs = at_distance_one(dp.c.make_zCDP_to_approxDP(gaussian)).epsilon(1e-6)
        assert float(zcdp_epsilon(ZCDP(rho), MILLIONTH)) == pytest.approx(theirs, rel=1e-9)
