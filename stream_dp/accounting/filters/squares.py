"""Filters that add up squares: rho of zero-concentrated DP, mu^2 of Gaussian DP, and (epsilon, delta) by way of rho.

Each filter's docstring names its theorem and says whether it is proven for concurrent continual mechanisms.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from stream_dp.accounting.amounts import UNITS, budget_units, ceil_units, exact, floor_units
from stream_dp.accounting.conversions import pure_zcdp, zcdp_budget, zcdp_epsilon
from stream_dp.accounting.filters.filter import (
    DP,
    GAUSSIAN,
    GAUSSIAN_FINITE,
    SQUARED,
    ZERO_CONCENTRATED,
    Additive,
    Entry,
    Spend,
    budget,
    charge,
    checked_entry,
    deltas,
    dp_entry,
    foreign,
    own_delta,
    whole_units,
    without_delta,
)
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, Measure, PureDP
from stream_dp.errors import BudgetRefused


@dataclass(frozen=True, slots=True)
class TightApproximateFilter(Additive):
    """All admitted mechanisms together are (epsilon, delta' + delta'')-DP, by [WRRW] Thm 1. Amounts are sums of rho.

    An (e, d)-DP mechanism is a post-processing of RR_(e,d), so d-approximate (e tanh(e/2))-zCDP. By [WRRW] Thm 1 all
    together are delta''-approximate R-zCDP, R the sum of those. R may grow to the largest rho that is (epsilon,
    delta')-DP: the optimum over all orders. [WRRW] Thm 2, which adds up squares of epsilon, never admits more: e
    tanh(e/2) <= e^2/2, and the optimum is at least its (sqrt(L+epsilon) - sqrt(L))^2 with L = ln(1/delta').
    """

    promise: ApproxDP
    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("a capacity", self.capacity.amount)

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "TightApproximateFilter":
        """Return the filter; `slack` is delta', the price of the theorem, `spent` is delta'' (else InvalidCost)."""
        budget("the epsilon", epsilon)
        deltas(slack, spent)
        rho = zcdp_budget(ApproxDP(epsilon, slack))
        return cls(
            ApproxDP(epsilon, slack + spent), Spend(floor_units(rho, SQUARED), budget_units(spent))
        )

    @property
    def name(self) -> str:
        return "tight approximate"

    @property
    def unit(self) -> str:
        return "rho"

    @property
    def scale(self) -> int:
        """rho is in units of 10^-24."""
        return SQUARED

    @property
    def slack(self) -> Fraction:
        """delta', the part of the promised delta that is reserved for the theorem, not for own deltas."""
        return self.promise.delta - exact(self.capacity.delta)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Return (epsilon tanh(epsilon/2), rounded up; delta)."""
        checked_entry(self, entry, DP)
        return Spend(zcdp_units(entry.epsilon), entry.delta)

    def least(self, used: Spend) -> ApproxDP:
        """Return (epsilon, delta' + deltas spent)-DP, or the promise if better; (0, 0) if nothing was used."""
        if used == Spend():
            return ApproxDP(Fraction(0), Fraction(0))
        epsilon = Fraction(0)
        if used.amount:
            epsilon = zcdp_epsilon(ZCDP(Fraction(used.amount, SQUARED)), self.slack)
        if used.within(self.capacity):
            epsilon = min(epsilon, self.promise.epsilon)
        return ApproxDP(epsilon, self.slack + exact(used.delta))


def zcdp_units(epsilon: int) -> int:
    """Return the zCDP cost in units of 10^-24 of pure DP with epsilon in units of 10^-12."""
    if epsilon == 0:
        return 0
    return ceil_units(pure_zcdp(Fraction(epsilon, 10**12)).upper, SQUARED)


@dataclass(frozen=True, slots=True)
class ZCDPFilter(Additive):
    """All admitted mechanisms together are rho-zCDP, or `delta`-approximate rho-zCDP where `delta` is not 0.

    The rhos add up ([WRRW] Thm 1), and the deltas with them. Without deltas the filter is proven for concurrent
    continual mechanisms: at each order alpha it is the RDP filter with budget rho alpha ([HSV] Cor 13.8). With
    deltas it is not proven, and `ledger.proven` refuses it.
    """

    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("a rho", self.capacity.amount)

    @classmethod
    def of(cls, rho: Fraction, delta: Fraction = Fraction(0)) -> "ZCDPFilter":
        """Return the filter with these budgets, rounded down (InvalidCost: one is not exact or out of range)."""
        amount = floor_units(budget("the rho", rho), SQUARED)
        return cls(Spend(amount, budget_units(own_delta(delta))))

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`; it depends on whether deltas may be spent."""
        return "approximate zCDP" if self.capacity.delta else "zCDP"

    @property
    def unit(self) -> str:
        return "rho"

    @property
    def scale(self) -> int:
        """rho is in units of 10^-24."""
        return SQUARED

    @property
    def promise(self) -> Measure:
        """rho-zCDP; `capacity.delta` is the probability with which it may fail ([WRRW] Def 3)."""
        return self.least(self.capacity)

    @property
    def failure(self) -> Fraction:
        """The delta of approximate zCDP."""
        return exact(self.capacity.delta)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of zCDP, or of DP, which is charged at its exact zCDP cost."""
        match measure:
            case ZCDP(rho):
                return charge(name, rho, rule, measure=ZERO_CONCENTRATED)
            case PureDP() | ApproxDP():
                return charge(name, measure.epsilon, rule, delta=measure.delta)
            case _:
                raise foreign(self, name, measure)

    def cost(self, entry: Entry) -> Spend:
        checked_entry(self, entry, DP, ZERO_CONCENTRATED)
        if entry.measure == DP:
            return Spend(zcdp_units(entry.epsilon), entry.delta)
        return Spend(entry.epsilon * UNITS, entry.delta)

    def least(self, used: Spend) -> Measure:
        """Return zCDP at the exact sum; `used.delta` is the probability with which it may fail."""
        return ZCDP(Fraction(used.amount, SQUARED))


@dataclass(frozen=True, slots=True)
class GaussianFilter(Additive):
    """All admitted mechanisms together are mu-GDP, mu in units of 10^-12. Amounts are sums of squares.

    Squares of mu add up, for Gaussian DP and pure DP (Smith, Thakurta, arXiv 2210.17520). For concurrent continual
    mechanisms this is proven with finite communication only ([HSV] Def 14.4, Cor 14.10): finitely many queries and
    answers, and a last step. A GDP mechanism is refused unless its guarantee says so; unbounded noise without
    clamping, and a mechanism without a horizon, do not qualify. A pure mechanism needs no such condition: it is a
    post-processing of one randomized response, a bit that is asked for once ([HSV] Lemma 4.7), and the proof of Cor
    14.10 needs no more.
    """

    mu: int

    def __post_init__(self) -> None:
        whole_units("a mu", self.mu)

    @classmethod
    def of(cls, mu: Fraction) -> "GaussianFilter":
        """Return the filter with this budget, rounded down (InvalidCost: no exact number of at least 10^-12)."""
        return cls(budget_units(budget("the mu", mu)))

    @property
    def name(self) -> str:
        return "GDP"

    @property
    def unit(self) -> str:
        return "mu squared"

    @property
    def scale(self) -> int:
        """Squares of mu are in units of 10^-24."""
        return SQUARED

    @property
    def capacity(self) -> Spend:
        return Spend(self.mu**2)

    @property
    def promise(self) -> Measure:
        return GaussianDP(exact(self.mu))

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of pure DP or finite-communication GDP; other GDP is refused when priced or charged."""
        if isinstance(measure, PureDP | ApproxDP):
            return charge(name, measure.epsilon, rule, delta=measure.delta)
        if not isinstance(measure, GaussianDP):
            raise foreign(self, name, measure)
        return charge(name, measure.mu, rule, measure=GAUSSIAN_FINITE if finite else GAUSSIAN)

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's mu squared; for pure DP, mu is rounded up to a unit (`pure_to_gaussian`)."""
        if entry.measure == GAUSSIAN:
            raise BudgetRefused(
                f"{entry.name}: the GDP filter needs finite communication ([HSV] Def 14.4). Clamp "
                "the answers to a finite set and declare a horizon, or use a zCDP ledger"
            )
        without_delta(self, checked_entry(self, entry, GAUSSIAN_FINITE, DP))
        if entry.measure == DP:
            mu = pure_to_gaussian(PureDP(exact(entry.epsilon))).mu
            return Spend(ceil_units(mu, UNITS) ** 2)
        return Spend(entry.epsilon**2)

    def least(self, used: Spend) -> Measure:
        """Return GDP at the root of the sum of squares, rounded up to a unit."""
        root = isqrt(used.amount)
        return GaussianDP(exact(root + (root**2 < used.amount)))
