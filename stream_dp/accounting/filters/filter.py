"""The protocol of filters: an entry's cost and a capacity, both integers, compared by addition.

Every filter here is additive in the right quantity (epsilon, epsilon^2, rho, mu^2): at creation the theorem's
inequality is solved once for the capacity (rounded down); an entry's cost is rounded up. So a charge is one
addition and two comparisons, and no rounding accumulates in favour of the analyst. This file knows no ledger.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from stream_dp.accounting.amounts import UNITS, cost_units, exact
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.guarantee import NAMES, ApproxDP, Measure, PureDP
from stream_dp.errors import BudgetRefused, InvalidCost

DP = "DP"
ZERO_CONCENTRATED = "zCDP"
GAUSSIAN = "GDP"
GAUSSIAN_FINITE = "GDP, finite communication"


PARAMETERS = {ZERO_CONCENTRATED: "rho", GAUSSIAN: "mu", GAUSSIAN_FINITE: "mu"}  # else epsilon


def renyi(alpha: Fraction) -> str:
    return f"RDP at alpha {alpha}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge: the mechanism's name, the amount, and the rule that gave it; integers and names, for a journal.

    Amounts count units of 10^-12, rounded up. `measure` names their privacy measure; a filter takes only measures for
    which it has a theorem.

    `epsilon` is the measure's main parameter: epsilon of DP, and of RDP at an order; rho of zCDP; mu of GDP. `fresh`
    as in `Guarantee`; the mechanism sees the records of `box`. `currency`: what each part of the cost is for, of which
    a user has a bounded number: events, or where it has a name, units of a shared total. `apart`: entries of one
    currency each that it is the sum of. These four decide what adds up and what a halt frees; no journal has them,
    because a start derives them again.
    """

    name: str
    epsilon: int
    delta: int
    rule: str
    measure: str = DP
    fresh: bool = False
    box: Box = EVERYTHING
    currency: str = ""
    apart: tuple["Entry", ...] = ()

    @property
    def each(self) -> tuple["Entry", ...]:
        """What it is the sum of, each of one currency."""
        return self.apart or (self,)

    def scaled(self, epsilon: int) -> "Entry":
        """Return it at this epsilon, in parts of the same proportions, rounded up."""
        parts = [replace(e, epsilon=-(-e.epsilon * epsilon // self.epsilon)) for e in self.apart]
        return replace(self, epsilon=epsilon, apart=tuple(parts))

    def __post_init__(self) -> None:
        if self.measure == DP and self.delta == 0:
            object.__setattr__(self, "fresh", True)


def exact_number(value: object) -> bool:
    """Say whether `value` is a whole number or a fraction; floats, and so infinity and NaN, are not exact."""
    return type(value) in (int, Fraction)


def budget(
    what: str, amount: Fraction, *, below: Fraction | None = None, owner: str = "a filter"
) -> Fraction:
    """Return `amount` (InvalidCost: it is not an exact number greater than 0 and, if given, below `below`)."""
    if not exact_number(amount) or amount <= 0 or (below is not None and amount >= below):
        limit = "" if below is None else f" and below {below}"
        raise InvalidCost(
            f"{owner} cannot have {what} {amount!r}: it must be an exact number greater than "
            f"0{limit} (a decimal or a fraction, not a float). No {owner.split()[-1]} was "
            "created"
        )
    return amount


def deltas(slack: Fraction, spent: Fraction) -> tuple[Fraction, Fraction]:
    """Return delta', the price of the theorem, and delta'', which may be 0, for the mechanisms' own deltas."""
    budget("the delta'", slack, below=Fraction(1))
    return slack, own_delta(spent, below=1 - slack)


def own_delta(
    spent: Fraction, *, below: Fraction = Fraction(1), owner: str = "a filter"
) -> Fraction:
    """Return delta'', for the mechanisms' own deltas: 0, or a budget below `below` (else InvalidCost)."""
    none = exact_number(spent) and spent == 0
    return spent if none else budget("the delta''", spent, below=below, owner=owner)


def whole_units(what: str, units: int) -> int:
    """Return `units`, a whole number of at least 1 (else InvalidCost): a smaller capacity would admit nothing."""
    if type(units) is not int or units <= 0:
        raise InvalidCost(
            f"a filter cannot have {what} of {units!r} units: it would admit nothing. No filter "
            "was created; give at least 10^-12"
        )
    return units


SQUARED = UNITS**2  # units of a squared amount: the square of an epsilon in units is exact here


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount of the quantity that the filter adds up, and a delta in units of 10^-12.

    `epsilons`: how many mechanisms have each epsilon, in units of 10^-12, sorted; only the optimal filter, which
    composes them, keeps them.
    """

    amount: int = 0
    delta: int = 0
    epsilons: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: "Spend") -> "Spend":
        return self._with(other, 1)

    def __sub__(self, other: "Spend") -> "Spend":
        return self._with(other, -1)

    def _with(self, other: "Spend", sign: int) -> "Spend":
        epsilons = self.epsilons
        if other.epsilons:
            numbers = dict(epsilons)
            for epsilon, number in other.epsilons:
                numbers[epsilon] = numbers.get(epsilon, 0) + sign * number
            epsilons = tuple(sorted((e, number) for e, number in numbers.items() if number))
        return Spend(self.amount + sign * other.amount, self.delta + sign * other.delta, epsilons)

    def times(self, number: int) -> "Spend":
        epsilons = tuple((epsilon, number * many) for epsilon, many in self.epsilons)
        return Spend(number * self.amount, number * self.delta, epsilons)

    def within(self, other: "Spend") -> bool:
        return self.amount <= other.amount and self.delta <= other.delta


NOTHING = Spend()


class Additive:
    """Mixin for filters that admit whatever their amounts add up to within the capacity."""

    __slots__ = ()

    def admits(self: "Filter", used: Spend, more: Spend = NOTHING) -> bool:
        return (used + more).within(self.capacity)

    def reached(self, used: Spend) -> Spend:
        return used


class Filter(Protocol):
    """A filter ([HSV] Def 12.1) with a budget, named in `ledger.CONCURRENT`."""

    def __hash__(self) -> int:
        """Hash by value: filters with equal budgets are equal."""
        ...

    @property
    def name(self) -> str:
        """The theorem's short name."""
        ...

    @property
    def unit(self) -> str:
        """The quantity that the filter adds up, in words."""
        ...

    @property
    def scale(self) -> int:
        """How many units of `Spend.amount` are 1."""
        ...

    @property
    def capacity(self) -> Spend:
        """The amounts that may be spent, rounded down."""
        ...

    @property
    def promise(self) -> Measure:
        """The measure that holds for all admitted mechanisms together."""
        ...

    def entry(self, name: str, measure: Measure, rule: str, *, finite: bool = False) -> Entry:
        """Return the entry for a mechanism with this measure, rounded up; `finite` as in `Guarantee`.

        Raises:
            BudgetRefused: no theorem of this filter covers the measure.
            InvalidCost: the measure's parameters are not a valid cost.
        """
        ...

    def cost(self, entry: Entry) -> Spend:
        """Return the cost of the entry, rounded up; nondecreasing in its epsilon and delta.

        Raises:
            BudgetRefused: the filter has no theorem for the measure.
            InvalidCost: the cost is 0, negative, or not a whole number of units.
        """
        ...

    def admits(self, used: Spend, more: Spend = NOTHING) -> bool:
        """Say whether the promise holds where one event meets mechanisms that cost `used` and `more` together."""
        ...

    def reached(self, used: Spend) -> Spend:
        """Return the part of the capacity that `used` takes, rounded up, in the filter's unit."""
        ...

    def least(self, used: Spend) -> Measure:
        """Return the least promise of a filter of this family that would have admitted `used`, rounded up.

        The family has the same theorem and the same free parameters (order, delta'); within the capacity the result
        is never above `promise`. The truncated-view odometer shows it (`accounting.ledger`).
        """
        ...


def charge(
    name: str, amount: Fraction, rule: str, *, delta: Fraction = Fraction(0), measure: str = DP
) -> Entry:
    """Return the entry, rounded up to units (InvalidCost: a parameter is no exact number >= 0, or both are 0)."""
    for what, value in (("a cost", amount), ("a delta", delta)):
        if not exact_number(value) or value < 0:
            raise _no_cost(name, f"{what} of {value!r}")
    if not amount and not delta:
        raise _no_cost(name, "a cost of 0")
    return Entry(name, cost_units(amount), cost_units(delta), rule, measure)


def dp_entry(filter_: Filter, name: str, measure: Measure, rule: str) -> Entry:
    """Return the entry of an (epsilon, delta)-DP mechanism; only its charge checks whether a delta is granted."""
    if not isinstance(measure, PureDP | ApproxDP):
        raise foreign(filter_, name, measure)
    return charge(name, measure.epsilon, rule, delta=measure.delta)


def checked_entry(filter_: Filter, entry: Entry, *measures: str) -> Entry:
    """Return `entry`; its amounts are a valid cost (else InvalidCost), its measure is one of `measures`."""
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
    if entry.delta:
        raise BudgetRefused(
            f"{entry.name} has a delta, but a {filter_.name} ledger takes only charges with "
            "delta = 0. Choose a filter that grants a delta to its parts (basic, "
            "tight_approximate), or a pure mechanism"
        )


def foreign(filter_: Filter, name: str, measure: object) -> BudgetRefused:
    """Return the refusal of a measure for which the filter has no theorem."""
    said = measure if isinstance(measure, str) else NAMES.get(type(measure), str(measure))
    return BudgetRefused(
        f"{name}: the {filter_.name} filter has no theorem for {said}. Name a filter that has one (zcdp for Gaussian "
        "noise), or grant a delta at which it is (epsilon, delta)-DP, under a filter that has a delta for it (basic)"
    )


@lru_cache(maxsize=64)
def largest(filter_: Filter, entry: Entry, used: Spend) -> Entry:
    """Return `entry` with the largest epsilon that fits beside `used`, its delta cut to what is left."""
    left = filter_.capacity.delta - filter_.reached(used).delta
    base = replace(entry, delta=max(0, min(entry.delta, left)))

    def fits(epsilon: int) -> bool:
        return filter_.admits(used, filter_.cost(replace(base, epsilon=epsilon)))

    return replace(base, epsilon=_last(fits, step=_STEP))


@lru_cache(maxsize=64)
def largest_pure(filter_: Filter, used: Spend) -> int:
    """Return the largest epsilon, in units, with which one more pure mechanism fits beside `used`; 0 if none fits."""

    def fits(epsilon: int) -> bool:
        return filter_.admits(used, filter_.cost(filter_.entry("", PureDP(exact(epsilon)), "")))

    return _last(fits, step=_STEP)


def most_alike(filter_: Filter, used: Spend, epsilon: int, most: int) -> int:
    """Return how many pure mechanisms of this epsilon, in units, fit one by one beside `used`: at most `most`."""
    one = filter_.cost(filter_.entry("", PureDP(exact(epsilon)), ""))

    def fits(number: int) -> bool:
        return number <= most and filter_.admits(used + one.times(number - 1), one)

    # every filter admits what adds up
    by_sums = max(0, (filter_.capacity - used).amount // one.amount)
    return _last(fits, min(most, by_sums))


_STEP = 2**24  # of a search for an epsilon, in units: far below any that is asked


def _last(fits: Callable[[int], bool], low: int = 0, step: int = 1) -> int:
    """Return the largest number above `low` that fits, where all numbers up to some point fit; else `low`.

    The search begins `step` above `low`.
    """
    high = low + max(step, low // 4)
    while fits(high):
        low, high = high, high + 2 * (high - low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
