"""The basic filter: epsilons and deltas add up, at each tick over the mechanisms that are alive at it.

Admitted while the sum of the epsilons is at most epsilon and that of the deltas at most delta. Proof, for
concurrent continual mechanisms with adaptively chosen parameters: each is d E + (1 - d) N of two systems, of which
N is pure ([Lyu] Thm 3; `verify.exact.decomposition` constructs them). Where every mechanism runs as its N, the odds
of a transcript are a product of factors of at most e^(epsilon_j), so at most e^epsilon in all, as the ledger says
of every transcript; that some mechanism runs as its E has probability at most the sum of the deltas, at most delta.

A pure mechanism gives answers of equal law to equal pairs, so mechanisms that are not alive at an event's tick
contribute a factor of exactly 1: a halt frees later ticks, as under the pure filter. A mechanism with a delta may
fail at a tick that it does not count ([HSV] Thm 5.2), so its ticks are never freed.
"""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, exact
from stream_dp.accounting.entry import DP, Entry
from stream_dp.accounting.filters.budgets import budget, whole_units
from stream_dp.accounting.filters.filter import Filter, Spend, checked_entry, dp_entry
from stream_dp.accounting.filters.linear import EpsilonUnits
from stream_dp.accounting.filters.pure import PURE
from stream_dp.core.guarantee import ApproxDP, Measure

BASIC = "basic"


@dataclass(frozen=True, slots=True)
class BasicFilter(EpsilonUnits):
    """All admitted mechanisms together are (epsilon, delta)-DP, both in units of 10^-12."""

    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("an epsilon", self.capacity.amount)

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction) -> "BasicFilter":
        """Return the filter with these budgets, rounded down.

        Raises:
            InvalidCost: a number is not exact or out of range.
        """
        amount = budget_units(budget("the epsilon", epsilon))
        return cls(Spend(amount, budget_units(budget("the delta", delta, below=Fraction(1)))))

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return BASIC

    @property
    def promise(self) -> Measure:
        """(epsilon, delta)-DP at the budgets."""
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of a pure or approximate DP mechanism."""
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's epsilon and delta."""
        checked_entry(self, entry, DP)
        return Spend(entry.epsilon, entry.delta)

    def least(self, used: Spend) -> Measure:
        """Return (epsilon, delta)-DP at the exact sums."""
        return ApproxDP(exact(used.amount), exact(used.delta))


def by_ticks(filter_: Filter) -> bool:
    """Say whether pure mechanisms add up by ticks, over those alive at a tick, so that a halt frees later ticks."""
    return filter_.name in (PURE, BASIC)
