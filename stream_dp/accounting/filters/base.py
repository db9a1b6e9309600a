"""What a filter is: an entry's cost and a capacity, both integers, compared by addition.

Every filter here is additive in the right quantity (epsilon, epsilon^2, rho, mu^2): the theorem's inequality is solved
once, at creation, for the capacity (rounded down); an entry's cost is rounded up. So a charge is one addition and
two comparisons, and no rounding accumulates in favour of the analyst. This file knows no ledger.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.entry import Entry
from stream_dp.core.guarantee import AnyMeasure
from stream_dp.errors import BudgetRefused

SQUARED = UNITS**2  # units of a squared amount: an epsilon in units has its exact square here


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount of what the filter adds up, and a delta in units of 10^-12."""

    amount: int = 0
    delta: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        """Both sums."""
        return Spend(self.amount + other.amount, self.delta + other.delta)

    def __sub__(self, other: "Spend") -> "Spend":
        """Both differences."""
        return Spend(self.amount - other.amount, self.delta - other.delta)

    def within(self, other: "Spend") -> bool:
        """Whether neither part exceeds the other's."""
        return self.amount <= other.amount and self.delta <= other.delta


class Filter(Protocol):
    """A filter ([HSV] Def 12.1) with a budget, named in `concurrent.CONCURRENT`."""

    def __hash__(self) -> int:
        """A filter is a value."""
        ...

    @property
    def name(self) -> str:
        """The theorem's short name."""
        ...

    @property
    def scale(self) -> int:
        """How many units of `Spend.amount` are one."""
        ...

    @property
    def capacity(self) -> Spend:
        """What may be spent, rounded down."""
        ...

    @property
    def promise(self) -> AnyMeasure:
        """What holds for everything admitted."""
        ...

    def entry(self, name: str, measure: AnyMeasure, rule: str) -> Entry:
        """The entry for a mechanism with this measure, rounded up.

        Raises:
            BudgetRefused: no theorem of this filter covers the measure.
        """
        ...

    def cost(self, entry: Entry) -> Spend:
        """What the entry uses up, rounded up; not decreasing in its epsilon and delta.

        Raises:
            BudgetRefused: a negative amount, or a measure that this filter has no theorem for.
        """
        ...


def checked(filter_: Filter, entry: Entry, *measures: str) -> Entry:
    """`entry`, if it has no negative part and one of these measures.

    Raises:
        BudgetRefused: otherwise.
    """
    if entry.epsilon < 0 or entry.delta < 0:
        raise BudgetRefused(f"{entry.name}: a charge must not be negative; nothing is given back")
    if entry.measure not in measures:
        raise foreign(filter_, entry.name, entry.measure)
    return entry


def without_delta(filter_: Filter, entry: Entry) -> None:
    """Refuse a delta.

    Raises:
        BudgetRefused: there is one.
    """
    if entry.delta:
        raise BudgetRefused(
            f"{entry.name}: a {filter_.name} ledger takes charges with epsilon >= 0, delta = 0"
        )


def foreign(filter_: Filter, name: str, measure: object) -> BudgetRefused:
    """The refusal of a measure that the filter has no theorem for."""
    return BudgetRefused(
        f"{name}: the {filter_.name} filter has no theorem for {measure}; convert it first "
        "(accounting.conversions), or name another filter when the ledger is created"
    )


def largest(filter_: Filter, entry: Entry, left: Spend) -> Entry:
    """`entry` with the largest epsilon that fits into `left`, its delta cut to what is left.

    Raises:
        BudgetRefused: the filter takes no such entry at any price.
    """
    low, high = 0, 1
    base = replace(entry, delta=min(entry.delta, left.delta))

    def fits(epsilon: int) -> bool:
        return filter_.cost(replace(base, epsilon=epsilon)).within(left)

    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return replace(base, epsilon=low)
