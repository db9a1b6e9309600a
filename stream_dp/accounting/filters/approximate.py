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

from stream_dp.accounting.amounts import budget_units, cost_units
from stream_dp.accounting.conversions import pure_zcdp, standard_budget, zcdp_budget
from stream_dp.accounting.directed import ceil_units, floor_units
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.base import SQUARED, Filter, Spend, checked, foreign
from stream_dp.core.guarantee import AnyMeasure, ApproxDP, PureDP


def _entry(filter_: Filter, name: str, measure: AnyMeasure, rule: str) -> Entry:
    if not isinstance(measure, PureDP | ApproxDP):
        raise foreign(filter_, name, measure)
    return Entry(name, cost_units(measure.epsilon), cost_units(measure.delta), rule)


@dataclass(frozen=True, slots=True)
class ApproximateFilter:
    """Everything admitted is (epsilon, delta' + delta'')-DP by [WRRW] Thm 2. Amounts are sums of squares."""

    promise: ApproxDP
    capacity: Spend

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "ApproximateFilter":
        """`slack` is delta', the price of the theorem; `spent` is delta'', for the mechanisms' own deltas."""
        squares = 2 * standard_budget(ApproxDP(epsilon, slack))
        capacity = Spend(floor_units(squares, SQUARED), budget_units(spent))
        return cls(ApproxDP(epsilon, slack + spent), capacity)

    @property
    def name(self) -> str:
        """Its name in `CONCURRENT`."""
        return "approximate"

    @property
    def scale(self) -> int:
        """Squares of epsilon: units of 10^-24."""
        return SQUARED

    def entry(self, name: str, measure: AnyMeasure, rule: str) -> Entry:
        """Takes pure and approximate DP."""
        return _entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Epsilon squared, exactly, and delta."""
        checked(self, entry, DP)
        return Spend(entry.epsilon**2, entry.delta)


@dataclass(frozen=True, slots=True)
class TightApproximateFilter:
    """Everything admitted is (epsilon, delta' + delta'')-DP, by [WRRW] Thm 1. Amounts are sums of rho."""

    promise: ApproxDP
    capacity: Spend

    @classmethod
    def of(cls, epsilon: Fraction, slack: Fraction, spent: Fraction) -> "TightApproximateFilter":
        """`slack` is delta', the price of the theorem; `spent` is delta'', for the mechanisms' own deltas."""
        rho = zcdp_budget(ApproxDP(epsilon, slack))
        return cls(
            ApproxDP(epsilon, slack + spent), Spend(floor_units(rho, SQUARED), budget_units(spent))
        )

    @property
    def name(self) -> str:
        """Its name in `CONCURRENT`."""
        return "tight approximate"

    @property
    def scale(self) -> int:
        """rho in units of 10^-24."""
        return SQUARED

    def entry(self, name: str, measure: AnyMeasure, rule: str) -> Entry:
        """Takes pure and approximate DP."""
        return _entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Epsilon tanh(epsilon/2), rounded up, and delta."""
        checked(self, entry, DP)
        return Spend(zcdp_units(entry.epsilon), entry.delta)


def zcdp_units(epsilon: int) -> int:
    """The zCDP cost, in units of 10^-24, of pure DP with epsilon in units of 10^-12."""
    if epsilon == 0:
        return 0
    return ceil_units(pure_zcdp(Fraction(epsilon, 10**12)).upper, SQUARED)
