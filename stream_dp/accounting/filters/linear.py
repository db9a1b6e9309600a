"""Filters that add up epsilons in units of 10^-12: pure, Renyi and basic. Each class names its theorem."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.amounts import UNITS, budget_units, exact
from stream_dp.accounting.conversions import pure_to_renyi, zcdp_to_renyi
from stream_dp.accounting.filters.filter import (
    DP,
    Additive,
    Entry,
    Filter,
    Spend,
    budget,
    charge,
    checked_entry,
    dp_entry,
    foreign,
    renyi,
    whole_units,
    without_delta,
)
from stream_dp.core.guarantee import ZCDP, ApproxDP, Measure, PureDP, RenyiDP


class EpsilonUnits(Additive):
    """Mixin for filters whose epsilons add up, in units of 10^-12."""

    __slots__ = ()

    @property
    def unit(self) -> str:
        return "epsilon"

    @property
    def scale(self) -> int:
        return UNITS


@dataclass(frozen=True, slots=True)
class EpsilonBudget(EpsilonUnits):
    """A budget of epsilon, in units of 10^-12, of at least one (else InvalidCost)."""

    epsilon: int

    def __post_init__(self) -> None:
        whole_units("an epsilon", self.epsilon)

    @property
    def capacity(self) -> Spend:
        return Spend(self.epsilon)


def epsilon_spend(filter_: Filter, entry: Entry, measure: str = DP) -> Spend:
    """Return the entry's epsilon (BudgetRefused: it has a delta, or another measure)."""
    without_delta(filter_, checked_entry(filter_, entry, measure))
    return Spend(entry.epsilon)


PURE = "pure"


@dataclass(frozen=True, slots=True)
class PureFilter(EpsilonBudget):
    """All admitted mechanisms together are epsilon-DP, epsilon in units of 10^-12: the epsilons add up.

    Source: [HSV] Thm 12.4 over basic composition.
    """

    @classmethod
    def of(cls, epsilon: Fraction) -> "PureFilter":
        """Return the filter with this budget, rounded down (InvalidCost: no exact number of at least 10^-12)."""
        return cls(budget_units(budget("the epsilon", epsilon)))

    @property
    def name(self) -> str:
        return PURE

    @property
    def promise(self) -> Measure:
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of a DP mechanism; a delta is refused when it is charged."""
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        return epsilon_spend(self, entry)

    def least(self, used: Spend) -> Measure:
        return PureDP(exact(used.amount))


@dataclass(frozen=True, slots=True)
class RenyiFilter(EpsilonBudget):
    """All admitted mechanisms together are (alpha, epsilon)-RDP, epsilon in units of 10^-12.

    The order is chosen before, and the epsilons at it add up ([HSV] Cor 13.8, [HSTV] Thm 4.10). A grid of orders
    that stops only when all orders fail is not a filter at any of them; this package has none.
    """

    alpha: Fraction

    @classmethod
    def of(cls, limit: RenyiDP) -> "RenyiFilter":
        """Return the filter at the order of `limit` with its epsilon as budget, rounded down (else InvalidCost)."""
        budget("the order", limit.alpha)
        return cls(budget_units(budget("the epsilon", limit.epsilon)), limit.alpha)

    @property
    def name(self) -> str:
        return "RDP"

    @property
    def promise(self) -> Measure:
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of RDP at the filter's order, zCDP or pure DP."""
        match measure:
            case RenyiDP(alpha) if alpha == self.alpha:
                here = measure
            case ZCDP():
                here = zcdp_to_renyi(measure, self.alpha)
            case PureDP():
                charge(name, measure.epsilon, rule)  # refuses an invalid cost before the conversion
                here = pure_to_renyi(measure, self.alpha)
            case _:
                raise foreign(self, name, measure)
        return charge(name, here.epsilon, rule, measure=renyi(self.alpha))

    def cost(self, entry: Entry) -> Spend:
        return epsilon_spend(self, entry, renyi(self.alpha))

    def least(self, used: Spend) -> Measure:
        return RenyiDP(self.alpha, exact(used.amount))


BASIC = "basic"


@dataclass(frozen=True, slots=True)
class BasicFilter(EpsilonUnits):
    """All admitted mechanisms together are (epsilon, delta)-DP, both in units of 10^-12.

    Epsilons and deltas add up, at each tick over the mechanisms that are alive at it. Proof, for concurrent
    continual mechanisms with adaptively chosen parameters: each is d E + (1 - d) N of two systems, of which N is
    pure ([Lyu] Thm 3; `verify.exact.exact_delta` constructs them). Where every mechanism runs as its N, the odds
    of a transcript are a product of factors of at most e^(epsilon_j), so at most e^epsilon, as the ledger says of
    every transcript. Some mechanism runs as its E with probability at most the sum of the deltas, at most delta.

    A mechanism that is not alive at an event's tick gets equal pairs, and there N gives answers of equal law, so it
    contributes a factor of exactly 1: a halt frees its epsilon at later ticks, as under the pure filter. Whether it
    fails may show before the event comes ([HSV] Thm 5.2), so its delta is never freed, unless it is fresh.
    """

    capacity: Spend

    def __post_init__(self) -> None:
        whole_units("an epsilon", self.capacity.amount)

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction) -> "BasicFilter":
        """Return the filter with these budgets, rounded down (InvalidCost: one is not exact or out of range)."""
        amount = budget_units(budget("the epsilon", epsilon))
        return cls(Spend(amount, budget_units(budget("the delta", delta, below=Fraction(1)))))

    @property
    def name(self) -> str:
        return BASIC

    @property
    def promise(self) -> Measure:
        return self.least(self.capacity)

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        return dp_entry(self, name, measure, rule)

    def cost(self, entry: Entry) -> Spend:
        checked_entry(self, entry, DP)
        return Spend(entry.epsilon, entry.delta)

    def least(self, used: Spend) -> Measure:
        return ApproxDP(exact(used.amount), exact(used.delta))


OPTIMAL = "optimal"


def by_ticks(filter_: Filter) -> bool:
    """Say whether a halt frees what is pure also for users, and for events that move between ticks (docs/time.md)."""
    return filter_.name in (PURE, BASIC, OPTIMAL)
