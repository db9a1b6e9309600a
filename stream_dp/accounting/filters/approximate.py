"""The (epsilon, delta) filters: [WRRW] Thm 2, and the same with the exact zCDP cost of pure DP.

Thm 2 admits while sqrt(2 L V) + V/2 <= epsilon and the deltas sum to at most delta'', with V the sum of squares and
L = ln(1/delta'). The left side grows with V, so this is V <= 2 (sqrt(L+epsilon) - sqrt(L))^2.
Tighter: an (e, d)-DP mechanism is d-approximate (e tanh(e/2))-zCDP (it is a post-processing of RR_(e,d)), so by
[WRRW] Thm 1 everything is delta''-approximate R-zCDP with R the sum of those, and R may grow to the largest rho
that is (epsilon, delta')-DP: the optimum over all orders, at least (sqrt(L+epsilon) - sqrt(L))^2, where
R + 2 sqrt(R L) = epsilon.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import pure_zcdp, standard_budget, zcdp_budget, zcdp_epsilon
from stream_dp.accounting.directed import ceil_units, floor_units, ln_inverse
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.budgets import budget, deltas, whole_units
from stream_dp.accounting.filters.filter import (
    SQUARED,
    Spend,
    checked_entry,
    dp_entry,
)
from stream_dp.core.guarantee import ZCDP, ApproxDP, Measure


@dataclass(frozen=True, slots=True)
class _ApproximateBudget:
    """What the two share: (epsilon, delta' + delta'')-DP mechanisms in and out."""

    promise: ApproxDP
    capacity: Spend

    def __post_init__(self) -> None:
        """Refuse an empty budget."""
        whole_units("a capacity", self.capacity.amount)

    @property
    def scale(self) -> int:
        """Squares of epsilon, or rho: units of 10^-24."""
        return SQUARED

    @property
    def slack(self) -> Fraction:
        """delta', the part of the promise that the mechanisms' own deltas cannot use up."""
        return self.promise.delta - exact(self.capacity.delta)

    def covered(self, used: Spend, epsilon: Fraction) -> ApproxDP:
        """(epsilon, delta' + the deltas spent)-DP, and the promise where that is better; (0, 0) for nothing."""
        if used == Spend():
            return ApproxDP(Fraction(0), Fraction(0))
        if used.within(self.capacity):
            epsilon = min(epsilon, self.promise.epsilon)
        if not used.amount:
            epsilon = Fraction(0)
        return ApproxDP(epsilon, self.slack + exact(used.delta))


@dataclass(frozen=True, slots=True)
class ApproximateFilter(_ApproximateBudget):
    """Everything admitted is (epsilon, delta' + delta'')-DP by [WRRW] Thm 2. Amounts are sums of squares."""

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "ApproximateFilter":
        """`slack` is delta', the price of the theorem; `spent` is delta'', for the mechanisms' own deltas.

        Raises:
            InvalidCost: no exact numbers, or out of their range.
        """
        budget("the epsilon", epsilon)
        deltas(slack, spent)
        squares = 2 * standard_budget(ApproxDP(epsilon, slack))
        capacity = Spend(floor_units(squares, SQUARED), budget_units(spent))
        return cls(ApproxDP(epsilon, slack + spent), capacity)

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return "approximate"

    @property
    def unit(self) -> str:
        """What it adds up."""
        return "epsilon squared"

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Takes pure and approximate DP."""
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Epsilon squared, exactly, and delta."""
        checked_entry(self, entry, DP)
        return Spend(entry.epsilon**2, entry.delta)

    def least(self, used: Spend) -> Measure:
        """sqrt(2 L V) + V/2 at delta' plus the deltas spent: the accumulator of [HSTV] Thm B.4."""
        squares = Fraction(used.amount, SQUARED)
        root = (ln_inverse(self.slack) * (2 * squares)).sqrt()
        return self.covered(used, (root + squares / 2).upper)


@dataclass(frozen=True, slots=True)
class TightApproximateFilter(_ApproximateBudget):
    """Everything admitted is (epsilon, delta' + delta'')-DP, by [WRRW] Thm 1. Amounts are sums of rho."""

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "TightApproximateFilter":
        """`slack` is delta', the price of the theorem; `spent` is delta'', for the mechanisms' own deltas.

        Raises:
            InvalidCost: no exact numbers, or out of their range.
        """
        budget("the epsilon", epsilon)
        deltas(slack, spent)
        rho = zcdp_budget(ApproxDP(epsilon, slack))
        return cls(
            ApproxDP(epsilon, slack + spent), Spend(floor_units(rho, SQUARED), budget_units(spent))
        )

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return "tight approximate"

    @property
    def unit(self) -> str:
        """What it adds up."""
        return "rho"

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Takes pure and approximate DP."""
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Epsilon tanh(epsilon/2), rounded up, and delta."""
        checked_entry(self, entry, DP)
        return Spend(zcdp_units(entry.epsilon), entry.delta)

    def least(self, used: Spend) -> Measure:
        """The epsilon of R-zCDP at delta', at delta' plus the deltas spent."""
        rho = ZCDP(Fraction(max(used.amount, 1), SQUARED))
        return self.covered(used, zcdp_epsilon(rho, self.slack))


def zcdp_units(epsilon: int) -> int:
    """The zCDP cost, in units of 10^-24, of pure DP with epsilon in units of 10^-12."""
    if epsilon == 0:
        return 0
    return ceil_units(pure_zcdp(Fraction(epsilon, 10**12)).upper, SQUARED)
