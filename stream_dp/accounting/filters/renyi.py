"""The Renyi filter at one order, chosen before: the epsilons at that order add up ([HSV] Cor 13.8, [HSTV] Thm
4.10).

A grid of orders that stops only when all orders fail is not a filter at any of them; this package has none.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.conversions import pure_to_renyi, zcdp_to_renyi
from stream_dp.accounting.entry import Entry, renyi
from stream_dp.accounting.filters.budgets import budget
from stream_dp.accounting.filters.filter import Spend, charge, foreign
from stream_dp.accounting.filters.linear import EpsilonBudget, epsilon_spend
from stream_dp.core.guarantee import ZCDP, Measure, PureDP, RenyiDP


@dataclass(frozen=True, slots=True)
class RenyiFilter(EpsilonBudget):
    """All admitted mechanisms together are (alpha, epsilon)-RDP, epsilon in units of 10^-12."""

    alpha: Fraction

    @classmethod
    def of(cls, limit: RenyiDP) -> "RenyiFilter":
        """Return the filter at the order of `limit` with its epsilon as budget, rounded down.

        Raises:
            InvalidCost: epsilon is not an exact number of at least 10^-12, or the order is not exact.
        """
        budget("the order", limit.alpha)
        return cls(budget_units(budget("the epsilon", limit.epsilon)), limit.alpha)

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return "RDP"

    @property
    def promise(self) -> Measure:
        """RDP at the order and the budget."""
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of RDP at the filter's order, zCDP or pure DP."""
        match measure:
            case RenyiDP(alpha) if alpha == self.alpha:
                here = measure
            case ZCDP():
                here = zcdp_to_renyi(measure, self.alpha)
            case PureDP():
                charge(name, measure.epsilon, rule)  # refuses an invalid cost before the conversion
                here = pure_to_renyi(measure, self.alpha)
            case _:
                raise foreign(self, name, measure)
        return charge(name, here.epsilon, rule, measure=renyi(self.alpha))

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's epsilon at the order."""
        return epsilon_spend(self, entry, renyi(self.alpha))

    def least(self, used: Spend) -> Measure:
        """Return RDP at the filter's order and the exact sum."""
        return RenyiDP(self.alpha, exact(used.amount))
