"""The pure filter: the epsilons add up ([HSV] Thm 12.4 over basic composition)."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.entry import Entry
from stream_dp.accounting.filters.budgets import budget
from stream_dp.accounting.filters.filter import Spend, dp_entry
from stream_dp.accounting.filters.linear import EpsilonBudget, epsilon_spend
from stream_dp.core.guarantee import Measure, PureDP

PURE = "pure"


@dataclass(frozen=True, slots=True)
class PureFilter(EpsilonBudget):
    """All admitted mechanisms together are epsilon-DP, epsilon in units of 10^-12."""

    @classmethod
    def of(cls, epsilon: Fraction) -> "PureFilter":
        """Return the filter with this budget, rounded down.

        Raises:
            InvalidCost: epsilon is not an exact number of at least 10^-12.
        """
        return cls(budget_units(budget("the epsilon", epsilon)))

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return PURE

    @property
    def promise(self) -> Measure:
        """Pure DP at the budget."""
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of a DP mechanism; a delta is refused when it is charged."""
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's epsilon."""
        return epsilon_spend(self, entry)

    def least(self, used: Spend) -> Measure:
        """Return pure DP at the exact sum."""
        return PureDP(exact(used.amount))
