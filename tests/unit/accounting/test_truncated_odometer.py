"""The truncated-view odometer against the exact privacy of truncated views, for several epsilons at once; its twins.

Oracle: `exact_delta` of small compositions of randomized response, behind the rule "until the odometer exceeds
epsilon", against every adaptive adversary. Twins: one that lags by one charge, and one that does not truncate.
"""

import math
from fractions import Fraction

import pytest
from oracles.filtered import Counts, Filtered, Rule, SecretBit, always, below_log, least_epsilon
from scipy.stats import norm

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.filters.filter import Entry, Filter, Spend
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.ledger import truncated_odometer as bound
from stream_dp.accounting.ledger import truncated_odometer_at as bound_at
from stream_dp.core.guarantee import ApproxDP, GaussianDP, PureDP, RenyiDP
from stream_dp.errors import NotDerivable
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.randomized_response import RandomizedResponse

ONE = Fraction(1)
DELTA = Fraction(1, 20)
FILTERS: dict[str, Filter] = {
    f.name: f
    for f in (
        PureFilter.of(ONE * 4),
        TightApproximateFilter.of(ONE * 4, DELTA, Fraction(1, 100)),
        ZCDPFilter.of(ONE),
        RenyiFilter.of(RenyiDP(Fraction(3), ONE * 4)),
    )
}
MENU = (Fraction(3, 2), Fraction(11, 5))  # odds of randomized response
TARGETS = tuple(map(Fraction, (2, 3, 6, 14)))  # e^epsilon at which the view is truncated
ROUNDS = 12


def spend(filter_: Filter, counts: Counts, odds: tuple[Fraction, ...] = MENU) -> Spend:
    """What so many randomized responses of these odds cost."""
    total = Spend()
    for number, o in zip(counts, odds, strict=True):
        cost = filter_.cost(filter_.entry("rr", PureDP(least_epsilon(o)), "leaf"))
        total = total + Spend(number * cost.amount, number * cost.delta)
    return total


def until(filter_: Filter, epsilon: Fraction, odds: tuple[Fraction, ...] = MENU) -> Rule:
    """Goes on while the odometer is at most epsilon."""
    known: dict[Counts, bool] = {}

    def rule(counts: Counts) -> bool:
        if counts not in known:
            used = spend(filter_, counts, odds)
            known[counts] = bound_at(filter_, used, DELTA).epsilon <= epsilon
        return known[counts]

    return rule


def lagging(rule: Rule) -> Rule:
    """The twin that looks at the odometer before the charge: the first mechanism too many still answers."""

    def twin(counts: Counts) -> bool:
        smaller = ((*counts[:i], n - 1, *counts[i + 1 :]) for i, n in enumerate(counts) if n)
        return any(rule(before) for before in smaller)

    return twin


def exact(rule: Rule, ratio: Fraction, rounds: int = ROUNDS) -> Fraction:
    """The least delta of the truncated view at ln(ratio)."""
    machine = Filtered(tuple(RandomizedResponse(o) for o in MENU), rule)
    return exact_delta(machine, SecretBit(len(MENU)), ratio, rounds)


@pytest.mark.parametrize("name", FILTERS)
def test_a_view_truncated_at_any_epsilon_is_that_private(name: str) -> None:
    filter_ = FILTERS[name]
    claimed = Fraction(0) if name == "pure" else DELTA
    caught = 0
    for ratio in TARGETS:
        rule = until(filter_, below_log(ratio))
        assert exact(rule, ratio) <= claimed
        caught += exact(lagging(rule), ratio) > claimed
    assert caught or name == "RDP"  # one order, fixed, is far from tight here


def test_a_view_truncated_at_epsilon_and_delta_is_that_private() -> None:
    """Mechanisms with a delta of their own: the odometer shows delta' plus the deltas so far, and may exceed either."""
    own, filter_, slack = Fraction(1, 50), FILTERS["tight approximate"], Fraction(1, 20)
    kinds = (RandomizedResponse(MENU[0]), RandomizedResponse(ONE, own))
    measures = (PureDP(least_epsilon(MENU[0])), ApproxDP(Fraction(0), own))
    costs = [filter_.cost(filter_.entry("m", m, "r")) for m in measures]

    def spent(counts: Counts) -> ApproxDP:
        pairs = list(zip(counts, costs, strict=True))
        amount, delta = sum(n * c.amount for n, c in pairs), sum(n * c.delta for n, c in pairs)
        return bound_at(filter_, Spend(amount, delta), DELTA)

    for ratio, revealed in ((Fraction(3), 1), (Fraction(6), 2)):
        limit = ApproxDP(below_log(ratio), slack + revealed * own)

        def rule(counts: Counts, limit: ApproxDP = limit) -> bool:
            result = spent(counts)
            return result.epsilon <= limit.epsilon and result.delta <= limit.delta

        def blind(counts: Counts, limit: ApproxDP = limit) -> bool:
            return spent(counts).epsilon <= limit.epsilon  # the twin: the deltas are not looked at

        machine, twin = Filtered(kinds, rule), Filtered(kinds, blind)
        assert own <= exact_delta(machine, SecretBit(2), ratio, 6) <= limit.delta
        assert exact_delta(twin, SecretBit(2), ratio, 6) > limit.delta


def test_without_truncation_nothing_holds() -> None:
    for ratio in (TARGETS[0], TARGETS[-1]):
        assert exact(always, ratio, rounds=7) > DELTA


def test_the_pure_odometer_is_met_exactly() -> None:
    third = Fraction(1, 3)
    for n in range(1, 6):
        ratio = MENU[0] ** n
        rule = until(FILTERS["pure"], n * least_epsilon(MENU[0]))
        assert rule((n, 0))
        assert not rule((n + 1, 0))
        assert exact(rule, ratio, rounds=n) == 0
        assert exact(rule, ratio * (1 - third / 100), rounds=n) > 0
        assert exact(lagging(rule), ratio, rounds=n + 1) > 0


def test_nothing_is_lost_before_the_first_charge_and_deltas_count_as_they_are_spent() -> None:
    for filter_ in FILTERS.values():
        assert bound_at(filter_, Spend(), DELTA) == ApproxDP(Fraction(0), Fraction(0))
    filter_ = FILTERS["tight approximate"]
    ledger = Ledger.under(filter_)
    ledger = ledger.charge(ledger.ask("m", ApproxDP(ONE / 4, Fraction(1, 300)), "r"))
    result = bound(ledger.filter, ledger.used)
    assert isinstance(result, ApproxDP)
    assert result.delta == DELTA + Fraction(ledger.used.delta, UNITS)
    ledger = ledger.charge(ledger.ask("m", ApproxDP(Fraction(0), Fraction(1, 300)), "r"))
    assert bound(ledger.filter, ledger.used) == ApproxDP(
        result.epsilon, DELTA + Fraction(ledger.used.delta, UNITS)
    )
    only = filter_.cost(Entry("reveals", 0, 10**9, "r"))
    assert bound(filter_, only) == ApproxDP(Fraction(0), DELTA + Fraction(1, 1000))


def test_gaussian_budgets_are_shown_by_their_root() -> None:
    filter_ = GaussianFilter.of(ONE)
    assert bound(filter_, Spend(2 * UNITS**2 // 4)) == GaussianDP(Fraction(707106781187, UNITS))
    assert bound(filter_, filter_.capacity) == GaussianDP(ONE)
    at = bound_at(filter_, filter_.capacity, Fraction(1, 10**6))
    e = float(at.epsilon)  # the analytic Gaussian mechanism
    assert norm.cdf(0.5 - e) - math.exp(e) * norm.cdf(-0.5 - e) == pytest.approx(1e-6, rel=1e-6)


def test_what_is_not_proven_for_concurrent_mechanisms_is_not_shown() -> None:
    with pytest.raises(NotDerivable, match="approximate zCDP"):
        bound(ZCDPFilter.of(ONE, DELTA), Spend(1))
