"""The pure filter: the epsilons add up ([HSV] Thm 12.4 over basic composition)."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import UNITS, budget_units, cost_units, exact
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.base import Spend, checked, foreign, without_delta
from stream_dp.core.guarantee import AnyMeasure, ApproxDP, PureDP


@dataclass(frozen=True, slots=True)
class PureFilter:
    """Everything admitted is epsilon-DP, epsilon in units of 10^-12."""

    epsilon: int

    @classmethod
    def of(cls, epsilon: Fraction) -> "PureFilter":
        """The filter with this budget, rounded down."""
        return cls(budget_units(epsilon))

    @property
    def name(self) -> str:
        """Its name in `CONCURRENT`."""
        return "pure"

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
        """Pure DP at the budget."""
        return PureDP(exact(self.epsilon))

    def entry(self, name: str, measure: AnyMeasure, rule: str) -> Entry:
        """Takes DP; a delta is refused when it is charged."""
        if not isinstance(measure, PureDP | ApproxDP):
            raise foreign(self, name, measure)
        return Entry(name, cost_units(measure.epsilon), cost_units(measure.delta), rule)

    def cost(self, entry: Entry) -> Spend:
        """Its epsilon."""
        without_delta(self, checked(self, entry, DP))
        return Spend(entry.epsilon)
