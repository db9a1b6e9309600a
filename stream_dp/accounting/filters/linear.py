"""What filters share that add up epsilons in units of 10^-12: the pure and the Renyi filter, and in part the basic one.

This file knows no theorem; each filter names its own.
"""

from dataclasses import dataclass

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.budgets import whole_units
from stream_dp.accounting.filters.filter import Filter, Spend, checked_entry, without_delta


class EpsilonUnits:
    """Epsilons add up, in units of 10^-12."""

    __slots__ = ()

    @property
    def unit(self) -> str:
        """What it adds up."""
        return "epsilon"

    @property
    def scale(self) -> int:
        """Epsilon in units of 10^-12."""
        return UNITS


@dataclass(frozen=True, slots=True)
class EpsilonBudget(EpsilonUnits):
    """A budget of epsilon, in units of 10^-12.

    Raises:
        InvalidCost: it is not at least one unit.
    """

    epsilon: int

    def __post_init__(self) -> None:
        """Refuse an empty budget."""
        whole_units("an epsilon", self.epsilon)

    @property
    def capacity(self) -> Spend:
        """The budget."""
        return Spend(self.epsilon)


def epsilon_spend(filter_: Filter, entry: Entry, measure: str = DP) -> Spend:
    """The entry's epsilon.

    Raises:
        BudgetRefused: it has a delta, or another measure.
        InvalidCost: it is no cost.
    """
    without_delta(filter_, checked_entry(filter_, entry, measure))
    return Spend(entry.epsilon)
