"""Shared code of filters that add up epsilons in units of 10^-12: pure, Renyi and, in part, basic.

This file knows no theorem; each filter names its own.
"""

from dataclasses import dataclass

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.budgets import whole_units
from stream_dp.accounting.filters.filter import Filter, Spend, checked_entry, without_delta


class EpsilonUnits:
    """Mixin for filters whose epsilons add up, in units of 10^-12."""

    __slots__ = ()

    @property
    def unit(self) -> str:
        """Name of the added quantity."""
        return "epsilon"

    @property
    def scale(self) -> int:
        """Epsilon is in units of 10^-12."""
        return UNITS


@dataclass(frozen=True, slots=True)
class EpsilonBudget(EpsilonUnits):
    """A budget of epsilon, in units of 10^-12.

    Raises:
        InvalidCost: the budget is below one unit.
    """

    epsilon: int

    def __post_init__(self) -> None:
        whole_units("an epsilon", self.epsilon)

    @property
    def capacity(self) -> Spend:
        """The budget, as the amount that may be spent."""
        return Spend(self.epsilon)


def epsilon_spend(filter_: Filter, entry: Entry, measure: str = DP) -> Spend:
    """Return the entry's epsilon.

    Raises:
        BudgetRefused: the entry has a delta, or another measure.
        InvalidCost: the entry is not a valid cost.
    """
    without_delta(filter_, checked_entry(filter_, entry, measure))
    return Spend(entry.epsilon)
