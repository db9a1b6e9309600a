"""The Renyi filter at one order, chosen before: the epsilons at that order add up ([HSV] Cor 13.8, [HSTV] Thm 4.10).

A grid of orders that stops only when all of them fail is not a filter at any of them; there is none here.
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
    """Everything admitted is (alpha, epsilon)-RDP, epsilon in units of 10^-12."""

    alpha: Fraction

    @classmethod
    def of(cls, limit: RenyiDP) -> "RenyiFilter":
        """The filter with this budget, rounded down, at its order.

        Raises:
            InvalidCost: not an exact epsilon of at least 10^-12, or the order is no exact number.
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
        """Takes RDP at its own order, zCDP and pure DP."""
        match measure:
            case RenyiDP(alpha) if alpha == self.alpha:
                here = measure
            case ZCDP():
                here = zcdp_to_renyi(measure, self.alpha)
            case PureDP():
                charge(name, measure.epsilon, rule)  # refuses what is no cost, unconverted
                here = pure_to_renyi(measure, self.alpha)
            case _:
                raise foreign(self, name, measure)
        return charge(name, here.epsilon, rule, measure=renyi(self.alpha))

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's epsilon at the order."""
        return epsilon_spend(self, entry, renyi(self.alpha))

    def least(self, used: Spend) -> Measure:
        """RDP at the order and the sum, exactly."""
        return RenyiDP(self.alpha, exact(used.amount))
