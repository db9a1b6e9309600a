"""The zCDP filter: the rhos add up ([WRRW] Thm 1), and the deltas of approximate zCDP with them.

Without deltas it is proven for concurrent continual mechanisms: at each order alpha it is the RDP filter with
budget rho alpha ([HSV] Cor 13.8). With deltas it is not proven, and `concurrent` refuses it.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import UNITS, budget_units, exact
from stream_dp.accounting.directed import floor_units
from stream_dp.accounting.entry import DP, ZERO_CONCENTRATED, Entry
from stream_dp.accounting.filters.approximate import zcdp_units
from stream_dp.accounting.filters.budgets import budget, own_delta, whole_units
from stream_dp.accounting.filters.filter import SQUARED, Spend, charge, checked_entry, foreign
from stream_dp.core.guarantee import ZCDP, ApproxDP, Measure, PureDP


@dataclass(frozen=True, slots=True)
class ZCDPFilter:
    """All admitted mechanisms together are rho-zCDP, or `delta`-approximate rho-zCDP where `delta` is not 0."""

    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("a rho", self.capacity.amount)

    @classmethod
    def of(cls, rho: Fraction, delta: Fraction = Fraction(0)) -> "ZCDPFilter":
        """Return the filter with these budgets, rounded down.

        Raises:
            InvalidCost: a number is not exact or out of range.
        """
        amount = floor_units(budget("the rho", rho), SQUARED)
        return cls(Spend(amount, budget_units(own_delta(delta))))

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`; it depends on whether deltas may be spent."""
        return "approximate zCDP" if self.capacity.delta else "zCDP"

    @property
    def unit(self) -> str:
        """Name of the added quantity."""
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
        """Return the entry's rho and delta."""
        checked_entry(self, entry, DP, ZERO_CONCENTRATED)
        if entry.measure == DP:
            return Spend(zcdp_units(entry.epsilon), entry.delta)
        return Spend(entry.epsilon * UNITS, entry.delta)

    def least(self, used: Spend) -> Measure:
        """Return zCDP at the exact sum; `used.delta` is the probability with which it may fail."""
        return ZCDP(Fraction(used.amount, SQUARED))
