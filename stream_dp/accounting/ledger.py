"""The ledger: what may be spent, what has been, and the refusal of the rest.

Rules: amounts are integer units (`amounts`); a charge is never given back; a refusal changes nothing and says what
was asked, spent, left and the largest ask that would fit. The series of the first start are one frozen block, charged
at once. A ledger is a value: it becomes fact when the commit that holds its charges is durable. This file
knows no mechanism and no journal.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, cost_units, text
from stream_dp.core.derivation import Derivation
from stream_dp.errors import BudgetRefused

ROUNDING = 1000  # units: what rounding alone may be


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge: who, how much (units of 10^-12, rounded up), by which rule."""

    name: str
    epsilon: int
    delta: int
    rule: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """A pure-DP filter ([HSV] Thm 12.4, basic composition): the epsilons of all charges stay within `epsilon`."""

    epsilon: int
    entries: tuple[Entry, ...] = ()
    spent: int = 0

    @classmethod
    def of(cls, budget: Fraction) -> "Ledger":
        """An empty ledger over this budget, rounded down."""
        return cls(budget_units(budget))

    @property
    def left(self) -> int:
        """Units not yet spent."""
        return self.epsilon - self.spent

    def price(self, derivation: Derivation) -> Entry:
        """The entry this derivation would make; changes nothing."""
        measure = derivation.guarantee.measure
        return Entry(
            derivation.subject,
            cost_units(measure.epsilon),
            cost_units(measure.delta),
            f"{derivation.rule} ({derivation.source})",
        )

    def charge(self, entry: Entry) -> "Ledger":
        """The ledger with this entry.

        Raises:
            BudgetRefused: the entry does not fit or is not pure; this ledger is as it was.
        """
        if entry.epsilon < 0 or entry.delta != 0:
            raise BudgetRefused(
                f"{entry.name}: a pure ledger takes charges with epsilon >= 0, delta = 0"
            )
        if entry.epsilon > self.left:
            raise BudgetRefused(self._refusal(entry))
        return replace(self, entries=(*self.entries, entry), spent=self.spent + entry.epsilon)

    def _refusal(self, entry: Entry) -> str:
        fine = (
            " (amounts count units of 10^-12, costs rounded up and budgets down: write decimals instead of fractions)"
            if entry.epsilon - self.left < ROUNDING
            else ""
        )
        return (
            f"{entry.name} asks for epsilon {text(entry.epsilon)}; of {text(self.epsilon)} the ledger has spent "
            f"{text(self.spent)} and has {text(self.left)} left, which is the most that fits{fine}. "
            "Lower the epsilon of some series or raise privacy.epsilon"
        )
