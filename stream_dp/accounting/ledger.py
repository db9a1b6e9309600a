"""The ledger: what may be spent, what has been, and the refusal of the rest.

Rules: amounts are integer units (`amounts`); a charge is never given back; a refusal changes nothing and says what
was asked, spent, left and the largest ask that would fit. One filter per ledger, named at creation: the best of
several is not a filter, and there is no switch. A ledger is a value: it becomes fact when the commit that holds its
charges is durable. A charge costs the same however many there are: entries are a linked list, shared between the
ledgers before and after.

Whom. A ledger is created for one relation of neighbours: which streams differ in what, in how many of a user's events,
and whether a replacement may move. What is derived for others is not priced, whoever planned it: its epsilon says
nothing about those to whom this ledger promises.

Time. An event is touched by the mechanisms that are alive at its tick and by no other. So under the pure filter, for
event-level guarantees, only what is alive at one tick adds up ([HSV] Cor 5.5, 5.7; docs/time.md), and `halt` frees
later ticks: `used` is the load of the ticks to come, `peak` the largest load of any tick, and what starts after a
halt may not start before the tick from which it freed. So it is under the basic filter for what has no delta; a delta,
and what has one, is never freed. Under any other filter a halt frees nothing ([HSV] Thm 5.2, 13.5). This file knows no
mechanism and no journal.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.entry import DP, PARAMETERS, Entry
from stream_dp.accounting.filters.basic import by_ticks
from stream_dp.accounting.filters.concurrent import proven
from stream_dp.accounting.filters.filter import Filter, Spend, foreign, largest
from stream_dp.accounting.filters.pure import PURE, PureFilter
from stream_dp.core.derivation import Derivation, require_exactly
from stream_dp.core.guarantee import NAMES, Measure, Protected
from stream_dp.errors import BudgetRefused, NotDerivable

ROUNDING = 1000  # units: what rounding alone may be

__all__ = ["Entry", "Ledger", "Preview"]


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """An entry, the filter it was admitted by, and the entries before it."""

    entry: Entry
    admitted_by: Filter
    before: "_Link | None"


@dataclass(frozen=True, slots=True)
class Preview:
    """What a charge would do: asked, spent and left in the filter's amounts, and the largest ask that fits."""

    fits: bool
    asked: Spend
    spent: Spend
    left: Spend
    largest: Entry


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Entries admitted by one filter; `used` is the sum of their costs, less what halts freed.

    `freed` is the first tick that no halted mechanism has seen. `protected`: whom it promises to; None: nobody yet, so
    that it prices no derivation.

    Raises:
        BudgetRefused: its entries were admitted by another filter.
    """

    filter: Filter
    used: Spend = field(default_factory=Spend)
    count: int = 0
    peak: Spend = field(default_factory=Spend)
    freed: int = 0
    _last: _Link | None = field(default=None, repr=False)
    protected: Protected | None = None

    def __post_init__(self) -> None:
        """Refuse a switch of the filter."""
        if self._last is not None and self._last.admitted_by != self.filter:
            raise BudgetRefused(
                f"this ledger was created with the {self._last.admitted_by.name} filter; a change to "
                f"{self.filter.name} is refused: the better of two filters is not a filter"
            )

    @classmethod
    def of(cls, budget: Fraction, protected: Protected | None = None) -> "Ledger":
        """An empty ledger under the pure filter over this budget, rounded down; `protected` as in `under`."""
        return cls.under(PureFilter.of(budget), protected=protected)

    @classmethod
    def under(
        cls, *filters: Filter, concurrent: bool = True, protected: Protected | None = None
    ) -> "Ledger":
        """An empty ledger under one filter; `concurrent` if its mechanisms run at once or see updates.

        `protected`: whom it promises to. It prices derivations for them only, and without it none.

        Raises:
            NotDerivable: not one filter, or not proven for concurrent continual mechanisms.
        """
        if len(filters) != 1:
            raise NotDerivable(
                f"a ledger has one filter, named at its creation, and not {len(filters)}: admitting what any of them "
                "admits is not proven ([WRRW] fixes the stopping rule before)"
            )
        if concurrent:
            proven(filters[0])
        return cls(filters[0], protected=protected)

    def __eq__(self, other: object) -> bool:
        """Say whether both have the same filter, promise to the same and have the same entries."""
        if not isinstance(other, Ledger):
            return NotImplemented
        mine, theirs = (
            (it.filter, it.protected, it.count, it.used, it.peak, it.freed) for it in (self, other)
        )
        return mine == theirs and (self._last is other._last or self.entries == other.entries)

    def __hash__(self) -> int:
        """Hash by filter and sums."""
        return hash((self.filter, self.count, self.used))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charges, first to last; takes time in their number."""
        found, link = [], self._last
        while link is not None:
            found.append(link.entry)
            link = link.before
        return tuple(reversed(found))

    @property
    def epsilon(self) -> int:
        """The whole budget in units of the filter's amount: of epsilon, for the pure filter."""
        return self.filter.capacity.amount

    @property
    def spent(self) -> int:
        """The units that are spent of the budget."""
        return self.used.amount

    @property
    def left(self) -> int:
        """The units of the budget that are not spent."""
        return self.remaining.amount

    @property
    def remaining(self) -> Spend:
        """The amount and the delta that are not yet spent."""
        return self.filter.capacity - self.used

    def price(self, derivation: Derivation) -> Entry:
        """Return the entry that this derivation would make; changes nothing.

        Raises:
            BudgetRefused: the filter has no theorem for the measure, it frees ticks and the guarantee is a group's, or
                the guarantee is for others than those that the ledger promises to.
            NotDerivable: it is no derivation.
        """
        require_exactly(derivation, Derivation, "what is charged")
        group = derivation.guarantee.group
        if group > 1 and by_ticks(self.filter):
            raise BudgetRefused(
                f"{derivation.subject} protects groups of {group} events, which lie at many ticks; this ledger counts "
                "one event at one tick, for a halt frees ticks ([HSV] Cor 5.5). Use another filter, which frees none"
            )
        self._require_protected(derivation)
        rule, like = f"{derivation.rule} ({derivation.source})", derivation.guarantee
        if like.users is not None:
            rule = f"{rule}, for {like.users}"
        return self.ask(derivation.subject, like.measure, rule, finite=like.finite)

    def ask(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry that a mechanism with this measure would make; changes nothing.

        Raises:
            BudgetRefused: the filter has no theorem for the measure.
        """
        if type(measure) not in NAMES:
            raise foreign(self.filter, name, type(measure).__name__)
        return self.filter.entry(name, measure, rule, finite=finite)

    def preview(self, entry: Entry) -> Preview:
        """Return what charging the entry would do; changes nothing.

        Raises:
            BudgetRefused: the filter takes no such entry at any price.
        """
        cost, left = self.filter.cost(entry), self.remaining
        best = largest(self.filter, entry, left)
        return Preview(cost.within(left), cost, self.used, left, best)

    def charge(self, entry: Entry, start: int = 0) -> "Ledger":
        """Return the ledger with this entry, for a mechanism that sees ticks from `start` on.

        Raises:
            BudgetRefused: the entry does not fit, it starts at a tick that a halted mechanism has seen, or the filter
                takes no such entry; this ledger is as it was.
        """
        cost = self.filter.cost(entry)
        used = self.used + cost
        if not used.within(self.filter.capacity):
            raise BudgetRefused(self._refusal(entry))
        if start < self.freed:
            raise BudgetRefused(
                f"{entry.name} would start at tick {start}, but what was freed is free from tick {self.freed} on: a "
                "halt frees no past tick; start later"
            )
        link = _Link(entry, self.filter, self._last)
        before = self.peak
        peak = Spend(max(before.amount, used.amount), max(before.delta, used.delta))
        return Ledger(self.filter, used, self.count + 1, peak, self.freed, link, self.protected)

    def summed(self) -> "Ledger":
        """Return the ledger without its list of entries, which decide nothing: the sums do."""
        return replace(self, _last=None)

    def halt(self, entry: Entry, end: int) -> "Ledger":
        """Return the ledger after the mechanism of this entry has been halted; `end` is the first tick it does not see.

        The caller halts an entry once (`Subledgers` sees to it). Frees the ticks from `end` on under the pure filter,
        under the basic one for an entry without a delta, and nothing under another.
        """
        if not by_ticks(self.filter) or entry.delta:
            return self
        return replace(self, used=self.used - self.filter.cost(entry), freed=max(self.freed, end))

    def _require_protected(self, derivation: Derivation) -> None:
        """Refuse a derivation for others than those that the ledger promises to (BudgetRefused)."""
        theirs = derivation.guarantee.protected
        if theirs != self.protected:
            mine = (
                "nobody: name them when it is created" if self.protected is None else self.protected
            )
            raise BudgetRefused(
                f"{derivation.subject} protects {theirs}, and this ledger promises to {mine}. What it costs them is "
                "not derived, so nothing is charged"
            )

    def _refusal(self, entry: Entry) -> str:
        found = self.preview(entry)
        over = found.asked.amount - found.left.amount
        fine = (
            " (amounts count units of 10^-12, costs rounded up and budgets down: write decimals instead of fractions)"
            if self.filter.name == PURE and over < ROUNDING
            else ""
        )
        if self.filter.name == PURE:
            state = (
                f"of {text(self.epsilon)} the ledger has spent {text(self.spent)} and has {text(self.left)} left, "
                f"which is the most that fits{fine}"
            )
        else:
            state = (
                f"under the {self.filter.name} filter this costs {self._cost(found.asked)}; the ledger has spent "
                f"{self._cost(found.spent)} and has {self._cost(found.left, down=True)} left; "
                f"{_asked(found.largest)} is the most that fits"
            )
        frees = "" if by_ticks(self.filter) else " (a halt frees nothing under this filter)"
        halt = "halt what is not needed, " if by_ticks(self.filter) else ""
        return (
            f"{entry.name} asks for {_asked(entry)}; {state}. "
            f"Lower its epsilon, {halt}or (before the first start) raise the budget in privacy{frees}"
        )

    def _cost(self, spend: Spend, *, down: bool = False) -> str:
        amount = Fraction(spend.amount, self.filter.scale)
        delta = (
            f" and delta {text(spend.delta)}" if self.filter.capacity.delta or spend.delta else ""
        )
        return f"{text(budget_units(amount) if down else amount)}{delta}"


def _asked(entry: Entry) -> str:
    kind = "" if entry.measure == DP else f" ({entry.measure})"
    delta = f", delta {text(entry.delta)}" if entry.delta else ""
    return f"{PARAMETERS.get(entry.measure, 'epsilon')} {text(entry.epsilon)}{delta}{kind}"
