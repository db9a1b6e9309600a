"""The Gaussian filter: squares of mu add up, for Gaussian DP and pure DP (Smith, Thakurta, arXiv 2210.17520).

For concurrent continual mechanisms this is proven with finite communication only ([HSV] Def 14.4, Cor 14.10):
finitely many queries and answers, and a last step. A GDP mechanism is refused unless its guarantee says that its
communication is finite; unbounded noise without clamping, and a mechanism without a horizon, do not qualify. A pure
mechanism does not need it: by [HSV] Lemma 4.7 it is a post-processing of one randomized response, a bit that is
asked for once, and the proof of Cor 14.10 needs no more.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from stream_dp.accounting.amounts import UNITS, budget_units, exact
from stream_dp.accounting.directed import ceil_units
from stream_dp.accounting.entry import DP, GAUSSIAN, GAUSSIAN_FINITE, Entry
from stream_dp.accounting.filters.budgets import budget, whole_units
from stream_dp.accounting.filters.filter import (
    SQUARED,
    Spend,
    charge,
    checked_entry,
    foreign,
    without_delta,
)
from stream_dp.accounting.gaussian_curve import pure_to_gaussian
from stream_dp.core.guarantee import ApproxDP, GaussianDP, Measure, PureDP
from stream_dp.errors import BudgetRefused


@dataclass(frozen=True, slots=True)
class GaussianFilter:
    """All admitted mechanisms together are mu-GDP, mu in units of 10^-12. Amounts are sums of squares."""

    mu: int

    def __post_init__(self) -> None:
        whole_units("a mu", self.mu)

    @classmethod
    def of(cls, mu: Fraction) -> "GaussianFilter":
        """Return the filter with this budget, rounded down.

        Raises:
            InvalidCost: mu is not an exact number of at least 10^-12.
        """
        return cls(budget_units(budget("the mu", mu)))

    @property
    def name(self) -> str:
        """The filter's name in `CONCURRENT`."""
        return "GDP"

    @property
    def unit(self) -> str:
        """Name of the added quantity."""
        return "mu squared"

    @property
    def scale(self) -> int:
        """Squares of mu are in units of 10^-24."""
        return SQUARED

    @property
    def capacity(self) -> Spend:
        """The budget squared, exactly."""
        return Spend(self.mu**2)

    @property
    def promise(self) -> Measure:
        """GDP at the budget."""
        return GaussianDP(exact(self.mu))

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry of pure DP or finite-communication GDP; other GDP is refused when priced or charged."""
        if isinstance(measure, PureDP | ApproxDP):
            return charge(name, measure.epsilon, rule, delta=measure.delta)
        if not isinstance(measure, GaussianDP):
            raise foreign(self, name, measure)
        return charge(name, measure.mu, rule, measure=GAUSSIAN_FINITE if finite else GAUSSIAN)

    def cost(self, entry: Entry) -> Spend:
        """Return the entry's mu squared; for pure DP, mu is rounded up to a unit (`pure_to_gaussian`)."""
        if entry.measure == GAUSSIAN:
            raise BudgetRefused(
                f"{entry.name}: the GDP filter needs finite communication ([HSV] Def 14.4): clamp the answers to a "
                "finite set and declare a horizon, or use a zCDP ledger"
            )
        without_delta(self, checked_entry(self, entry, GAUSSIAN_FINITE, DP))
        if entry.measure == DP:
            mu = pure_to_gaussian(PureDP(exact(entry.epsilon))).mu
            return Spend(ceil_units(mu, UNITS) ** 2)
        return Spend(entry.epsilon**2)

    def least(self, used: Spend) -> Measure:
        """Return GDP at the root of the sum of squares, rounded up to a unit."""
        root = isqrt(used.amount)
        return GaussianDP(exact(root + (root**2 < used.amount)))
