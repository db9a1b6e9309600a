"""The (epsilon, delta) filter: [WRRW] Thm 1 with the exact zCDP cost of pure DP.

An (e, d)-DP mechanism is d-approximate (e tanh(e/2))-zCDP (it is a post-processing of RR_(e,d)), so by [WRRW] Thm 1
everything is delta''-approximate R-zCDP with R the sum of those, and R may grow to the largest rho that is
(epsilon, delta')-DP: the optimum over all orders. [WRRW] Thm 2, which adds up squares of epsilon, never admits more:
e tanh(e/2) <= e^2/2, and the optimum is at least its (sqrt(L+epsilon) - sqrt(L))^2 with L = ln(1/delta').
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import pure_zcdp, zcdp_budget, zcdp_epsilon
from stream_dp.accounting.directed import ceil_units, floor_units
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
class TightApproximateFilter:
    """All admitted mechanisms together are (epsilon, delta' + delta'')-DP, by [WRRW] Thm 1. Amounts are sums of rho."""

    promise: ApproxDP
    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("a capacity", self.capacity.amount)

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "TightApproximateFilter":
        """Return the filter; `slack` is delta', the price of the theorem, and `spent` is delta'', for the
        mechanisms' deltas.

        Raises:
            InvalidCost: a number is not exact or out of range.
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
        """Name of the added quantity."""
        return "rho"

    @property
    def scale(self) -> int:
        """Rho is in units of 10^-24."""
        return SQUARED

    @property
    def slack(self) -> Fraction:
        """delta', the part of the promised delta that is reserved for the theorem, not for own deltas."""
        return self.promise.delta - exact(self.capacity.delta)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of a pure or approximate DP mechanism."""
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
