"""The Renyi filter at one order, chosen before: the epsilons at that order add up ([HSV] Cor 13.8, [HSTV] Thm 4.10).

A grid of orders that stops only when all of them fail is not a filter at any of them; there is none here.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import UNITS, budget_units, cost_units, exact
from stream_dp.accounting.conversions import pure_to_renyi, zcdp_to_renyi
from stream_dp.accounting.entry import Entry, renyi
from stream_dp.accounting.filters.base import Spend, checked, foreign, without_delta
from stream_dp.core.guarantee import ZCDP, AnyMeasure, PureDP, RenyiDP


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """Everything admitted is (alpha, epsilon)-RDP, epsilon in units of 10^-12."""

    alpha: Fraction
    epsilon: int

    @classmethod
    def of(cls, budget: RenyiDP) -> "RenyiFilter":
        """The filter with this budget, rounded down, at its order."""
        return cls(budget.alpha, budget_units(budget.epsilon))

    @property
    def name(self) -> str:
        """Its name in `CONCURRENT`."""
        return "RDP"

    @property
    def scale(self) -> int:
        """Epsilon in units of 10^-12."""
        return UNITS

    @property
    def capacity(self) -> Spend:
        """The budget."""
        return Spend(self.epsilon)

    @property
    def promise(self) -> AnyMeasure:
        """RDP at the order and the budget."""
        return RenyiDP(self.alpha, exact(self.epsilon))

    def entry(self, name: str, measure: AnyMeasure, rule: str) -> Entry:
        """Takes RDP at its own order, zCDP and pure DP."""
        match measure:
            case RenyiDP(alpha) if alpha == self.alpha:
                here = measure
            case ZCDP():
                here = zcdp_to_renyi(measure, self.alpha)
            case PureDP():
                here = pure_to_renyi(measure, self.alpha)
            case _:
                raise foreign(self, name, measure)
        return Entry(name, cost_units(here.epsilon), 0, rule, renyi(self.alpha))

    def cost(self, entry: Entry) -> Spend:
        """Its epsilon at the order."""
        without_delta(self, checked(self, entry, renyi(self.alpha)))
        return Spend(entry.epsilon)
