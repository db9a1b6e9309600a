"""What a filter is: an entry's cost and a capacity, both integers, compared by addition.

Every filter here is additive in the right quantity (epsilon, epsilon^2, rho, mu^2): the theorem's inequality is solved
once, at creation, for the capacity (rounded down); an entry's cost is rounded up. So a charge is one addition and
two comparisons, and no rounding accumulates in favour of the analyst. This file knows no ledger.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from stream_dp.accounting.amounts import UNITS, cost_units, exact
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.budgets import exact_number
from stream_dp.core.guarantee import NAMES, ApproxDP, Measure, PureDP
from stream_dp.errors import BudgetRefused, InvalidCost

SQUARED = UNITS**2  # units of a squared amount: an epsilon in units has its exact square here


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount of what the filter adds up, and a delta in units of 10^-12."""

    amount: int = 0
    delta: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        """Return the sums of the amounts and of the deltas."""
        return Spend(self.amount + other.amount, self.delta + other.delta)

    def __sub__(self, other: "Spend") -> "Spend":
        """Return the differences of the amounts and of the deltas."""
        return Spend(self.amount - other.amount, self.delta - other.delta)

    def within(self, other: "Spend") -> bool:
        """Say whether neither the amount nor the delta exceeds the other's."""
        return self.amount <= other.amount and self.delta <= other.delta


class Filter(Protocol):
    """A filter ([HSV] Def 12.1) with a budget, named in `concurrent.CONCURRENT`."""

    def __hash__(self) -> int:
        """Hash by value: filters with equal budgets are equal."""
        ...

    @property
    def name(self) -> str:
        """The theorem's short name."""
        ...

    @property
    def unit(self) -> str:
        """What it adds up, in words."""
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
    def promise(self) -> Measure:
        """What holds for everything admitted."""
        ...

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """The entry for a mechanism with this measure, rounded up; `finite` as in `Guarantee`.

        Raises:
            BudgetRefused: no theorem of this filter covers the measure.
            InvalidCost: the measure's parameters are no cost.
        """
        ...

    def cost(self, entry: Entry) -> Spend:
        """What the entry uses up, rounded up; not decreasing in its epsilon and delta.

        Raises:
            BudgetRefused: a measure that this filter has no theorem for.
            InvalidCost: nothing, less than nothing, or no whole number of units.
        """
        ...

    def least(self, used: Spend) -> Measure:
        """The least promise of a filter of this family that would have admitted `used`, rounded up.

        The family has the same theorem and the same free parameters (order, delta'); within the capacity it is
        never above `promise`. It is what the truncated-view odometer shows (`accounting.truncated_odometer`).
        """
        ...


def charge(
    name: str, amount: Fraction, rule: str, *, delta: Fraction = Fraction(0), measure: str = DP
) -> Entry:
    """The entry of a mechanism with these parameters, rounded up to units.

    Raises:
        InvalidCost: a parameter is negative, infinite, NaN or a float, or both are 0.
    """
    for what, value in (("a cost", amount), ("a delta", delta)):
        if not exact_number(value) or value < 0:
            raise _no_cost(name, f"{what} of {value!r}")
    if not amount and not delta:
        raise _no_cost(name, "a cost of 0")
    return Entry(name, cost_units(amount), cost_units(delta), rule, measure)


def dp_entry(filter_: Filter, name: str, measure: Measure, rule: str) -> Entry:
    """The entry of a mechanism with (epsilon, delta); whether a delta is granted is asked when it is charged.

    Raises:
        BudgetRefused: another measure.
        InvalidCost: its parameters are no cost.
    """
    if not isinstance(measure, PureDP | ApproxDP):
        raise foreign(filter_, name, measure)
    return charge(name, measure.epsilon, rule, delta=measure.delta)


def checked_entry(filter_: Filter, entry: Entry, *measures: str) -> Entry:
    """`entry`, if its amounts are a cost and its measure is one of these.

    Raises:
        BudgetRefused: it has another measure.
        InvalidCost: nothing, less than nothing, or no whole number of units.
    """
    for units in (entry.epsilon, entry.delta):
        if type(units) is not int or units < 0:
            raise _no_cost(entry.name, f"{units!r} units of 10^-12")
    if entry.epsilon == entry.delta == 0:
        raise _no_cost(entry.name, "a cost of 0")
    if entry.measure not in measures:
        raise foreign(filter_, entry.name, entry.measure)
    return entry


def _no_cost(name: str, asked: str) -> InvalidCost:
    return InvalidCost(
        f"{name} asks for {asked}; a cost is an exact number greater than 0 (a decimal or a fraction, no float; one "
        "of epsilon and delta may be 0), and nothing is given back. Nothing was charged; name the epsilon of the "
        "mechanism as it runs"
    )


def without_delta(filter_: Filter, entry: Entry) -> None:
    """Refuse a delta.

    Raises:
        BudgetRefused: there is one.
    """
    if entry.delta:
        raise BudgetRefused(
            f"{entry.name} has a delta, and none is granted: a {filter_.name} ledger takes charges with delta = 0. "
            "Name a filter that has a delta for its parts (basic, tight_approximate), or ask for a pure mechanism"
        )


def foreign(filter_: Filter, name: str, measure: object) -> BudgetRefused:
    """The refusal of a measure that the filter has no theorem for."""
    said = measure if isinstance(measure, str) else NAMES.get(type(measure), str(measure))
    return BudgetRefused(
        f"{name}: the {filter_.name} filter has no theorem for {said}. Name a filter that has one (zcdp for Gaussian "
        "noise), or grant a delta at which it is (epsilon, delta)-DP, under a filter that has a delta for it (basic)"
    )


def largest(filter_: Filter, entry: Entry, left: Spend) -> Entry:
    """`entry` with the largest epsilon that fits into `left`, its delta cut to what is left.

    Raises:
        BudgetRefused: the filter takes no such entry at any price.
    """
    base = replace(entry, delta=min(entry.delta, left.delta))

    def fits(epsilon: int) -> bool:
        return filter_.cost(replace(base, epsilon=epsilon)).within(left)

    return replace(base, epsilon=_last(fits))


def largest_pure(filter_: Filter, left: Spend) -> int:
    """The largest epsilon, in units, with which one more pure mechanism fits into `left`; 0 if none does.

    Raises:
        BudgetRefused: the filter has no theorem for pure mechanisms.
    """

    def fits(epsilon: int) -> bool:
        return filter_.cost(filter_.entry("", PureDP(exact(epsilon)), "")).within(left)

    return _last(fits)


def _last(fits: Callable[[int], bool]) -> int:
    """The largest number that fits, of those from 1 on that do up to a point; 0 if none does."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
