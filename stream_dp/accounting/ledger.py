"""The ledger: the budget, the amounts spent, and the refusal of charges that do not fit.

Rules: amounts are integer units (`amounts`); a charge is never given back; a refusal changes nothing and says what was
asked, spent and left, and the largest request that would fit. A ledger has one filter, because the best of several is
not a filter. It is a value: it becomes fact when the commit that holds its charges is durable. The work of a charge
does not depend on the number of charges: entries are a linked list that the ledgers before and after share.

Who is protected: a ledger is for one relation of neighbours. A derivation for another one is never priced, because
its epsilon says nothing about these neighbours.

Time and boxes: an event touches only the mechanisms that are alive at its tick and can see it, and what an untouched
one has answered does not depend on the event. So only the fresh mechanisms add up that one event meets (docs/time.md,
`loads`), and a halt frees later ticks. `used` is the heaviest load of the ticks to come, `peak` the heaviest of any
tick, and a mechanism that starts after a halt may not start before the first freed tick. This file knows no mechanism
and no journal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from stream_dp.accounting.amounts import budget_units, text
from stream_dp.accounting.conversions import renyi_to_approx, zcdp_to_approx
from stream_dp.accounting.filters.filter import (
    DP,
    NOTHING,
    PARAMETERS,
    Entry,
    Filter,
    Spend,
    budget,
    foreign,
    largest,
    largest_pure,
)
from stream_dp.accounting.filters.linear import (
    BASIC,
    OPTIMAL,
    PURE,
    BasicFilter,
    PureFilter,
    RenyiFilter,
    by_ticks,
)
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.gaussian_curve import gaussian_to_approx
from stream_dp.accounting.loads import Loads, join, lighter, local_part, several_ticks
from stream_dp.accounting.rules.groups import (
    currency_of,
    in_currencies,
    seen_box,
    whole_at_one_event,
)
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation, require_exactly
from stream_dp.core.guarantee import (
    NAMES,
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    Protected,
    PureDP,
    RenyiDP,
    is_pure,
)
from stream_dp.errors import BudgetRefused, NotDerivable


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a filter is proven for concurrent continual mechanisms, by what, and under which condition."""

    proven: bool
    source: str
    condition: str = ""


CONCURRENT: dict[str, Standing] = {
    PURE: Standing(
        True,
        "[HSV] Thm 12.4 over basic composition, applied at each tick to the mechanisms that run at that tick, so "
        "a halt frees budget for later ticks: [HSV] Cor 5.7 and docs/time.md",
    ),
    BASIC: Standing(
        True,
        "[HSV] Thm 12.4 over basic composition, with [Lyu] Thm 3",
    ),
    "tight approximate": Standing(True, "[HSV] Thm 12.4 over [WRRW] Thm 1 for RR_(e,d)"),
    OPTIMAL: Standing(
        True,
        "[HSV] Thm 4.10 over the optimal composition of RR_(e,d), applied at each tick to the mechanisms that "
        "run at that tick: the answers before an event determine which mechanisms the event meets, and their "
        "parameters (docs/time.md)",
        "an event meets all its mechanisms at one tick",
    ),
    "zCDP": Standing(True, "[HSV] Cor 13.8 at every order", "every delta is 0"),
    "RDP": Standing(True, "[HSV] Cor 13.8, [HSTV]", "one order, fixed at creation"),
    "GDP": Standing(
        True,
        "[HSV] Cor 14.10",
        "mechanisms that are not pure have finite communication ([HSV] Def 14.4)",
    ),
    "approximate zCDP": Standing(
        False,
        "[WRRW] Thm 1 is for sequential mechanisms only; [HSTV] does not extend approximate zCDP to concurrent "
        "mechanisms",
    ),
}

CLASSES: dict[str, type] = {
    PURE: PureFilter,
    BASIC: BasicFilter,
    "tight approximate": TightApproximateFilter,
    OPTIMAL: OptimalFilter,
    "zCDP": ZCDPFilter,
    "RDP": RenyiFilter,
    "GDP": GaussianFilter,
}  # the exact classes of the table; a name, or a subclass, proves nothing


def proven(filter_: Filter) -> Standing:
    """Return the filter's standing (NotDerivable: it is not proven, or is not exactly of a proven class)."""
    standing = CONCURRENT.get(filter_.name)
    if standing is None or not standing.proven:
        reason = "it is not in the table CONCURRENT" if standing is None else standing.source
        raise NotDerivable(
            f"the {filter_.name} filter is not proven for concurrent continual mechanisms: "
            f"{reason}. These filters are proven: "
            f"{', '.join((name for name, s in CONCURRENT.items() if s.proven))}"
        )
    if type(filter_) is not CLASSES.get(filter_.name):
        raise NotDerivable(
            f"only this package's own {filter_.name} filter is proven, not a "
            f"{type(filter_).__name__} of the same name"
        )
    return standing


def truncated_odometer(filter_: Filter, used: Spend) -> Measure:
    """Return the loss so far: the least promise of the filter's family that covers `used`, never above its promise.

    This is the truncated-view odometer ([HSTV] Def 2.11, 2.14).

    Claim: fix any epsilon beforehand (and the rest of the measure: delta, an order). The view of any adaptive
    adversary, truncated where the odometer first exceeds it, is (epsilon, delta)-DP, whatever mechanisms were
    created before, at whatever prices, and however their messages were interleaved. The claim does not hold for an
    epsilon that is chosen by looking at the odometer. It is no bound on the privacy loss at all times ([WRRW] Def 6).
    Those bounds are `verify.odometers`: their inputs must be pDP, which post-processing destroys, so they are not
    claimed for interactive mechanisms.

    Proof. Fix epsilon and let F admit while the result G(used) <= epsilon. (1) G is at least the true least epsilon
    of the filter's family: each is evaluated with outward rounding, an order chosen by a float only makes it larger.
    So where F admits, the family's filter with the budget epsilon (and delta'' = delta - delta') admits too, and
    halting earlier is a post-processing. (2) That filter is valid for concurrent continual mechanisms ([HSV] Thm
    12.4, Cor 13.8, 14.10; see `CONCURRENT`). (3) The view truncated at epsilon is the view of the adversary in front
    of F plus answers to the odometer, which are functions of the charges alone ([HSTV] Lemma 2.19, Thm 2.17; [HSV]
    has no odometer, but its Thm 12.4 is all that this needs).

    An excess is not shown: a charge is priced before its mechanism exists, and the answer of the first mechanism
    that exceeds epsilon is not part of the view. [HSTV] Def 1.13 prints "exit if epsilon_i >= epsilon or delta_i >=
    delta", with which an odometer of constant delta has an empty view at that delta; Algorithm 5 has "not at most",
    which is meant. The indices of what Algorithm 5 returns fit a halt (i even) and not an excess (i odd), where the
    last answer shown is a_(i-2).

    Example:
        >>> from stream_dp.accounting.filters.linear import PureFilter
        >>> truncated_odometer(PureFilter.of(Fraction(2)), Spend(amount=500_000_000_000))
        PureDP(epsilon=Fraction(1, 2))

    Raises:
        NotDerivable: the filter is not proven for concurrent continual mechanisms.
    """
    proven(filter_)
    return filter_.least(used)


def truncated_odometer_at(filter_: Filter, used: Spend, delta: Fraction) -> ApproxDP:
    """Return the odometer as (epsilon, delta)-DP: a zCDP, RDP or GDP ledger at this delta, others at their own.

    The least epsilon grows with the parameter, so the claim carries over for every epsilon.

    Raises:
        NotDerivable: the filter is not proven for concurrent continual mechanisms.
        InvalidCost: delta is not an exact number strictly between 0 and 1.
    """
    budget("the delta", delta, below=Fraction(1), owner="an odometer")
    if used == Spend():
        return ApproxDP(Fraction(0), Fraction(0))
    match truncated_odometer(filter_, used):
        case PureDP(epsilon):
            return ApproxDP(epsilon, Fraction(0))
        case ZCDP() as measure:
            return zcdp_to_approx(measure, delta)
        case RenyiDP() as measure:
            return renyi_to_approx(measure, delta)
        case GaussianDP() as measure:
            return gaussian_to_approx(measure, delta)
        case ApproxDP() as measure:
            return measure
        case measure:
            raise NotDerivable(f"no truncated view is known for a {type(measure).__name__}")


ROUNDING = 1000  # units: the largest excess that rounding alone may cause

__all__ = ["Entry", "Ledger", "Preview"]


@dataclass(frozen=True, slots=True, eq=False)
class _Link:
    """An entry, the filter that admitted it, and the entries before it."""

    entry: Entry
    admitted_by: Filter
    before: "_Link | None"


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect of a charge for `entry`: asked, spent and left in the amounts of `filter`.

    `met` is what one event meets already whose load the charge changes, and `spent` what that has taken.
    """

    filter: Filter
    entry: Entry
    fits: bool
    asked: Spend
    spent: Spend
    left: Spend
    met: Spend
    loads: Loads = field(repr=False)
    start: int = 0

    @property
    def largest(self) -> Entry:
        """The largest such request that fits, in the same parts."""
        if not self.entry.apart:
            return largest(self.filter, self.entry, self.met)
        low, high = 0, self.filter.capacity.amount + 1
        while high - low > 1:
            middle = self.entry.scaled((low + high) // 2)
            around = self.loads.around(middle, self.start)
            fits = self.filter.admits(around, self.filter.cost(middle))
            low, high = (middle.epsilon, high) if fits else (low, middle.epsilon)
        return self.entry.scaled(low)


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Entries admitted by one filter; `used` is at least what any event meets of their costs from now on.

    `loads` has these costs by what each mechanism sees. `freed` is the first tick that no halted mechanism has seen.
    `protected`: the neighbours that the ledger protects; None: not yet declared, so the ledger prices no derivation.

    Raises:
        BudgetRefused: another filter admitted its entries.
    """

    loads: Loads
    used: Spend = NOTHING
    count: int = 0
    peak: Spend = NOTHING
    freed: int = 0
    _last: _Link | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self._last is not None and self._last.admitted_by != self.filter:
            raise BudgetRefused(
                f"this ledger was created with the {self._last.admitted_by.name} filter and cannot "
                f"change to {self.filter.name}: the better of two filters is not a valid filter"
            )

    @classmethod
    def of(cls, budget: Fraction, protected: Protected | None = None) -> "Ledger":
        """Return an empty ledger under the pure filter with this budget, rounded down; `protected` as in `under`."""
        return cls.under(PureFilter.of(budget), protected=protected)

    @classmethod
    def under(
        cls,
        *filters: Filter,
        concurrent: bool = True,
        protected: Protected | None = None,
        shares: bool = False,
    ) -> "Ledger":
        """Return an empty ledger under one filter, which prices derivations for `protected` only.

        `concurrent`: its mechanisms run at the same time or see updates. `shares`: users have a shared total (`Loads`).

        Raises:
            NotDerivable: there is not exactly one filter, or it is not proven for concurrent continual mechanisms.
        """
        if len(filters) != 1:
            raise NotDerivable(
                f"a ledger has one filter, chosen when it is created, and was given {len(filters)}. "
                "To admit what any of several filters admits is not proven ([WRRW] fixes the "
                "stopping rule in advance)"
            )
        if concurrent:
            proven(filters[0])
        return cls(Loads(filters[0], protected, shares))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        mine, theirs = ((it.loads, it.count, it.used, it.peak, it.freed) for it in (self, other))
        return mine == theirs and (self._last is other._last or self.entries == other.entries)

    def __hash__(self) -> int:
        return hash((self.filter, self.count, self.used))

    @property
    def filter(self) -> Filter:
        return self.loads.filter

    @property
    def protected(self) -> Protected | None:
        return self.loads.protected

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charges, first to last; takes time proportional to their number."""
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
        return taken(self.filter, self.used).amount

    @property
    def left(self) -> int:
        return self.remaining.amount

    @property
    def remaining(self) -> Spend:
        return self.filter.capacity - taken(self.filter, self.used)

    def price(self, derivation: Derivation, box: Box = EVERYTHING) -> Entry:
        """Return the entry that a charge for this derivation would add; the mechanism sees the records of the box.

        The box counts only where no single step of the neighbours may cost all that is claimed.

        Raises:
            BudgetRefused: the filter has no theorem for the measure, or frees ticks while the guarantee is for
                groups; or the guarantee is for other neighbours than the ledger protects.
        """
        require_exactly(derivation, Derivation, "what is charged")
        group = derivation.guarantee.group
        if group > 1 and by_ticks(self.filter):
            raise BudgetRefused(
                f"{derivation.subject} protects groups of {group} events, which may lie at several "
                "ticks. This ledger counts the loss of one event at one tick, because a halt frees "
                "ticks ([HSV] Cor 5.5). Use another filter: it frees no ticks"
            )
        self._require_protected(derivation)
        if self.filter.name == OPTIMAL and (whole := whole_at_one_event(derivation)):
            raise BudgetRefused(
                f"one event may cost {derivation.subject} the full price {whole}, but the optimal "
                "filter charges each event only a part of the price. Use another filter (basic, "
                "zcdp) or another statistic"
            )
        currency, parts = currency_of(derivation), in_currencies(derivation)
        if (currency or parts) and not self.loads.shares:
            raise BudgetRefused(
                f"{derivation.subject} is priced by units of a shared total, but this ledger was "
                "created without a shared total"
            )
        rule, like = f"{derivation.rule} ({derivation.source})", derivation.guarantee
        if like.users is not None:
            rule = f"{rule}, for {like.users}"
        entry = self.ask(
            derivation.subject, like.measure, rule, finite=like.finite, fresh=like.fresh
        )
        apart = tuple(self.price(part, box) for part in parts) if by_ticks(self.filter) else ()
        return replace(entry, box=seen_box(derivation, box), currency=currency, apart=apart)

    def ask(
        self, name: str, measure: Measure, rule: str, *, finite: bool = False, fresh: bool = False
    ) -> Entry:
        """Return the entry that a charge for a mechanism with this measure would add; changes nothing.

        `finite` and `fresh` as in `Guarantee`.

        Raises:
            BudgetRefused: the filter has no theorem for the measure.
        """
        if type(measure) not in NAMES:
            raise foreign(self.filter, name, type(measure).__name__)
        entry = self.filter.entry(name, measure, rule, finite=finite)
        return replace(entry, fresh=fresh or is_pure(measure))

    def preview(self, entry: Entry, start: int = 0) -> Preview:
        """Return the effect of charging the entry; `start` as for `charge` (BudgetRefused: the filter takes none at any
        price).
        """
        return _preview(self.loads, entry, start)

    @property
    def searches(self) -> bool:
        """Whether a charge may take long: boxes are searched for the heaviest record, or mechanisms composed."""
        return self.filter.name == OPTIMAL or any(box.sides for _, box in self.loads.local)

    def foresee(self, entry: Entry, start: int = 0) -> None:
        """Compute what `preview` and `charge` need, so that both are quick on this ledger.

        A ledger is a value, so a thread may do it while ticks go on. Raises as `charge`.
        """
        met = self.preview(entry, start).met
        after = self.charge(entry, start)
        for used in (self.used, met, after.used):  # what answers say is left
            largest_pure(self.filter, used)

    def charge(self, entry: Entry, start: int = 0, parts: Sequence[Entry] = ()) -> "Ledger":
        """Return the ledger with this entry, for a mechanism that sees ticks from `start` on.

        `parts`: the mechanisms that the entry stands for, which do not all see the same records.

        Raises:
            BudgetRefused: the entry does not fit, or its mechanism starts at a tick that a halted one has seen.
        """
        loads, used = self.loads, self.used
        for part in parts or (entry,):
            cost, around = self.filter.cost(part), loads.around(part, start)
            if not self.filter.admits(around, cost):
                raise BudgetRefused(self._refusal(part, _preview(loads, part, start)))
            loads, used = loads.plus(part), join(used, around + cost)
        if start < self.freed:
            raise BudgetRefused(
                f"{entry.name} would start at tick {start}, but a halt freed the privacy loss only "
                f"from tick {self.freed} on. Start at that tick or later"
            )
        link = _Link(entry, self.filter, self._last)
        heavier = max(self.peak, used, key=lambda load: self.filter.reached(load).amount)
        peak = replace(heavier, delta=max(self.peak.delta, used.delta))
        return Ledger(loads, used, self.count + 1, peak, self.freed, link)

    def summed(self) -> "Ledger":
        """Return the ledger without its list of entries; only the sums decide about charges."""
        return replace(self, _last=None)

    def halt(self, entry: Entry, end: int) -> "Ledger":
        """Return the ledger after the entry's mechanism was halted; `end` is the first tick it does not see.

        The caller must halt an entry only once (`Subledgers` ensures it). A halt frees the ticks from `end` on, as
        `local_part` says.
        """
        if local_part(self.filter, entry, self.protected) == NOTHING:
            return self
        loads = self.loads.less(entry, end)
        used = lighter(self.used, loads.at())
        return replace(self, loads=loads, used=used, freed=max(self.freed, end))

    def restored(
        self, running: Iterable[Entry], sums: tuple[Spend, Spend, Spend], count: int, freed: int,
        held: Mapping[str, tuple[int | None, Spend]],
    ) -> "Ledger":  # fmt: skip
        """Return the ledger that this new one had become after `count` charges, of which those for `running` are in
        force; `sums` are its loads everywhere, `used` and `peak`, `held` as in `Loads`. It lists no entries.
        """
        if count == self.count:
            return self
        loads = self.loads
        for entry in running:
            loads = loads.plus(entry)
        everywhere, used, peak = sums
        loads = replace(loads, everywhere=everywhere, held=held)
        return Ledger(loads, used, count, peak, freed)

    @property
    def frees(self) -> bool:
        """Whether halts of fresh mechanisms free budget here."""
        return by_ticks(self.filter) or not several_ticks(self.protected)

    def _require_protected(self, derivation: Derivation) -> None:
        """Refuse a derivation for other neighbours than the ledger protects (BudgetRefused)."""
        theirs = derivation.guarantee.protected
        if theirs != self.protected:
            mine = (
                "nobody (name the neighbours when it is created)"
                if self.protected is None
                else self.protected
            )
            raise BudgetRefused(
                f"{derivation.subject} protects {theirs}, but this ledger protects {mine}. No rule "
                "derives the loss of the second from the first, so nothing was charged"
            )

    def _refusal(self, entry: Entry, found: Preview) -> str:
        over = found.asked.amount - found.left.amount
        fine = (
            " (amounts count units of 10^-12, costs rounded up and budgets down: write decimals instead of fractions)"
            if self.filter.name == PURE and over < ROUNDING
            else ""
        )
        changed = self.loads.changed(entry)
        where = f" on records with {changed}" if changed.sides else ""
        if self.filter.name == PURE:
            most = f"left, which is the most that fits{fine}"
            if entry.apart:
                most = f"left; in parts for events and for units, {_asked(found.largest)} is the most that fits"
            state = (
                f"of {text(self.epsilon)} the ledger has spent {text(found.spent.amount)}{where} and has "
                f"{text(found.left.amount)} {most}"
            )
        else:
            state = (
                f"under the {self.filter.name} filter this costs {self._cost(found.asked)}; the ledger has spent "
                f"{self._cost(found.spent)}{where} and has {self._cost(found.left, down=True)} left; "
                f"{_asked(found.largest)} is the most that fits"
            )
        frees = "" if self.frees else " (a halt frees nothing under this filter)"
        halt = "halt what is not needed, " if self.frees else ""
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


def taken(filter_: Filter, load: Spend) -> Spend:
    """Return the part of the capacity that a load of a ledger takes: at most all of it, since all charges fitted.

    A load is a bound, whose parts may stem from different records; so it may take more than any charge did.
    """
    part = filter_.reached(load)
    return replace(part, amount=min(part.amount, filter_.capacity.amount))


def _preview(loads: Loads, entry: Entry, start: int) -> Preview:
    filter_, around = loads.filter, loads.around(entry, start)
    cost, spent = filter_.cost(entry), taken(filter_, around)
    fits = filter_.admits(around, cost)
    left = filter_.capacity - spent
    return Preview(filter_, entry, fits, cost, spent, left, around, loads, start)


def _asked(entry: Entry) -> str:
    kind = "" if entry.measure == DP else f" ({entry.measure})"
    delta = f", delta {text(entry.delta)}" if entry.delta else ""
    return f"{PARAMETERS.get(entry.measure, 'epsilon')} {text(entry.epsilon)}{delta}{kind}"
