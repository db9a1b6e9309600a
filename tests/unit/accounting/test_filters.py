"""Every filter: closed forms, rounding, refusals that change nothing, previews, one filter for good."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, cast

import pytest
from oracles.filtered import Counts, Filtered, SecretBit, below_log, least_epsilon

from stream_dp.accounting.amounts import UNITS, cost_units
from stream_dp.accounting.conversions import zcdp_budget
from stream_dp.accounting.filters.filter import GAUSSIAN_FINITE, SQUARED, Filter, Spend, charge
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import CONCURRENT, Entry, Ledger, Standing
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Measure,
    ProbabilisticDP,
    PureDP,
    RenyiDP,
)
from stream_dp.errors import BudgetRefused, InvalidCost, NotDerivable
from stream_dp.verify.exact.exact_delta import exact_delta
from stream_dp.verify.exact.randomized_response import RandomizedResponse

ONE, SLACK = Fraction(1), Fraction(1, 10**6)
FILTERS: dict[str, Filter] = {
    f.name: f
    for f in (
        PureFilter.of(ONE),
        BasicFilter.of(ONE, SLACK),
        TightApproximateFilter.of(ONE, SLACK, SLACK),
        OptimalFilter.of(ONE, SLACK),
        ZCDPFilter.of(ONE / 2),
        ZCDPFilter.of(ONE / 2, SLACK),
        RenyiFilter.of(RenyiDP(Fraction(8), ONE)),
        GaussianFilter.of(ONE),
    )
}
every_filter = pytest.mark.parametrize("filter_", FILTERS.values(), ids=FILTERS)


def tenth(filter_: Filter) -> Entry:
    """A charge that each of them takes several times."""
    if isinstance(filter_, GaussianFilter):
        return filter_.entry("m", GaussianDP(ONE / 10), "clamped", finite=True)
    return filter_.entry("m", PureDP(ONE / 10), "leaf")


def test_every_filter_is_in_the_table_and_only_proven_ones_run_concurrently() -> None:
    assert set(FILTERS) == set(CONCURRENT)
    for name, filter_ in FILTERS.items():
        assert Ledger.under(filter_, concurrent=False).filter is filter_
        if CONCURRENT[name].proven:
            assert Ledger.under(filter_).filter is filter_
        else:
            with pytest.raises(NotDerivable, match=name):
                Ledger.under(filter_)
    assert [name for name, s in CONCURRENT.items() if not s.proven] == ["approximate zCDP"]


def test_an_unknown_filter_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CONCURRENT, "pure")
    with pytest.raises(NotDerivable, match="not in the table"):
        Ledger.of(ONE)
    assert Standing(True, "s").condition == ""


@every_filter
def test_charges_until_a_refusal_that_changes_nothing_and_the_largest_ask_fits(
    filter_: Filter,
) -> None:
    ledger, entry = Ledger.under(filter_, concurrent=False), tenth(filter_)
    while ledger.preview(entry).fits:
        ledger = ledger.charge(entry)
    assert 3 <= ledger.count == len(ledger.entries) < 1000
    before, entries = repr(ledger), ledger.entries
    with pytest.raises(BudgetRefused, match=r"m asks for (epsilon|mu) 2"):
        ledger.charge(dataclasses.replace(entry, epsilon=2 * UNITS))
    result = ledger.preview(dataclasses.replace(entry, epsilon=2 * UNITS))
    assert (repr(ledger), ledger.entries) == (before, entries)
    assert not result.fits
    assert result.spent + result.left == filter_.capacity
    full = ledger.charge(result.largest) if result.largest.epsilon else ledger
    assert filter_.admits(full.used)
    with pytest.raises(BudgetRefused):  # it was the largest, to one unit of 10^-12
        ledger.charge(dataclasses.replace(result.largest, epsilon=result.largest.epsilon + 1))


@every_filter
def test_what_is_no_cost_and_foreign_measures_are_refused_and_nothing_changes(
    filter_: Filter,
) -> None:
    ledger = Ledger.under(filter_, concurrent=False).charge(tenth(filter_))
    entry, before = tenth(filter_), repr(ledger)
    no_units: list[Any] = [-1, math.inf, math.nan, 0.5, Fraction(1, 2), True, None]
    for units in no_units:
        for part in ("epsilon", "delta"):
            bad = dataclasses.replace(entry, **{part: units})
            for act in (ledger.charge, ledger.preview):
                with pytest.raises(InvalidCost, match=r"^m asks for .*Nothing was charged"):
                    act(bad)
    with pytest.raises(InvalidCost, match="a cost of 0"):
        ledger.charge(dataclasses.replace(entry, epsilon=0, delta=0))
    with pytest.raises(BudgetRefused, match="no theorem"):
        ledger.charge(dataclasses.replace(entry, measure="a wish"))
    with pytest.raises(BudgetRefused, match="no theorem"):
        ledger.ask("p", ProbabilisticDP(ONE, SLACK), "r")
    assert repr(ledger) == before


NO_NUMBERS: list[Any] = [0, Fraction(-1, 2), math.inf, math.nan, 0.5, "1"]


def test_a_cost_may_be_a_delta_alone() -> None:
    ledger = Ledger.under(FILTERS["tight approximate"])
    ledger = ledger.charge(ledger.ask("reveals", ApproxDP(Fraction(0), SLACK), "r"))
    assert ledger.used == Spend(0, ledger.filter.capacity.delta)
    with pytest.raises(InvalidCost, match="a delta of nan"):
        charge("m", ONE, "r", delta=cast("Fraction", math.nan))


MAKERS: dict[str, Callable[[Any], Filter]] = {
    "pure": PureFilter.of,
    "zCDP": ZCDPFilter.of,
    "GDP": GaussianFilter.of,
    "RDP": lambda x: RenyiFilter.of(asked_renyi(Fraction(8), x)),
    "RDP, order": lambda x: RenyiFilter.of(asked_renyi(x, ONE)),
    "optimal": lambda x: OptimalFilter.of(x, SLACK),
    "optimal, delta": lambda x: OptimalFilter.of(ONE, x),
    "tight": lambda x: TightApproximateFilter.of(x, SLACK, SLACK),
    "tight, slack": lambda x: TightApproximateFilter.of(ONE, x, SLACK),
}


def asked_renyi(alpha: Any, epsilon: Any) -> RenyiDP:
    """An RDP budget, whatever its own checks say."""
    measure = RenyiDP(Fraction(2), ONE)
    object.__setattr__(measure, "alpha", alpha)
    object.__setattr__(measure, "epsilon", epsilon)
    return measure


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_no_filter_has_a_bad_budget(make: Callable[[Any], Filter], number: Any) -> None:
    with pytest.raises(InvalidCost, match=r"a filter cannot have .*No filter was created"):
        make(number)


def test_no_filter_has_a_delta_of_one_or_a_budget_below_a_unit() -> None:
    wrong: list[Any] = [*NO_NUMBERS[1:], ONE, 1 - SLACK]
    for delta in wrong:
        with pytest.raises(InvalidCost, match="delta"):
            TightApproximateFilter.of(ONE, SLACK, delta)
        if delta != 1 - SLACK:
            with pytest.raises(InvalidCost, match="delta"):
                ZCDPFilter.of(ONE, delta)
    for one in (ONE, Fraction(3, 2)):
        with pytest.raises(InvalidCost, match="delta'"):
            TightApproximateFilter.of(ONE, one, Fraction(0))
    for tiny in (PureFilter.of, GaussianFilter.of):
        with pytest.raises(InvalidCost, match="would admit nothing"):
            tiny(Fraction(1, 10**13))
    for empty in (lambda: PureFilter(0), lambda: ZCDPFilter(Spend(-1)), lambda: PureFilter(0.5)):  # type: ignore[arg-type]
        with pytest.raises(InvalidCost, match="would admit nothing"):
            empty()


@every_filter
def test_there_is_no_switch_and_no_best_of_several(filter_: Filter) -> None:
    ledger = Ledger.under(filter_, concurrent=False).charge(tenth(filter_))
    for other in FILTERS.values():
        if other != filter_:
            with pytest.raises(BudgetRefused, match="not a valid filter"):
                dataclasses.replace(ledger, loads=dataclasses.replace(ledger.loads, filter=other))
        with pytest.raises(NotDerivable, match="one filter"):
            Ledger.under(filter_, other)


def test_the_tight_filter_admits_more_than_the_closed_form() -> None:
    bits, tight = math.log(1e6), FILTERS["tight approximate"]
    entry = Entry("m", cost_units(ONE / 20), 0, "r")
    rho = 0.05 * math.tanh(0.025)
    closed = int((math.sqrt(bits + 1) - math.sqrt(bits)) ** 2 / rho)
    assert (closed, tight.capacity.amount // tight.cost(entry).amount) == (13, 19)
    assert tight.capacity.amount == int(zcdp_budget(ApproxDP(ONE, SLACK)) * SQUARED)


def test_deltas_add_up_within_their_own_budget() -> None:
    ledger = Ledger.under(FILTERS["tight approximate"])
    entry = ledger.ask("m", ApproxDP(ONE / 100, SLACK * 2 / 3), "r")
    ledger = ledger.charge(entry)
    with pytest.raises(BudgetRefused, match=r"and delta 0\.000000333333 left"):
        ledger.charge(entry)
    result = ledger.preview(entry).largest
    assert result.delta == ledger.remaining.delta
    assert ledger.charge(result).remaining.delta == 0


def test_measures_are_priced_by_their_conversions() -> None:
    zcdp, renyi = FILTERS["zCDP"], FILTERS["RDP"]
    assert zcdp.cost(zcdp.entry("m", ZCDP(ONE / 3), "r")).amount == 333_333_333_334 * UNITS
    assert zcdp.cost(zcdp.entry("m", PureDP(ONE), "r")).amount == pytest.approx(
        0.46211715726 * SQUARED
    )
    assert renyi.entry("m", ZCDP(ONE / 8), "r").epsilon == UNITS
    assert renyi.entry("m", RenyiDP(Fraction(8), ONE / 3), "r").epsilon == 333_333_333_334
    with pytest.raises(BudgetRefused, match="no theorem"):  # another order is another filter
        renyi.entry("m", RenyiDP(Fraction(9), ONE / 3), "r")
    foreign: list[tuple[str, Measure]] = [
        ("pure", ZCDP(ONE)), ("tight approximate", GaussianDP(ONE)), ("GDP", ZCDP(ONE)),
        ("RDP", ApproxDP(ONE, SLACK)),
    ]  # fmt: skip
    for name, measure in foreign:
        with pytest.raises(BudgetRefused, match="no theorem"):
            FILTERS[name].entry("m", measure, "r")


def test_deltas_are_refused_by_zcdp_without_one_and_by_the_others_that_have_none() -> None:
    for name in ("zCDP", "RDP", "GDP", "pure"):
        entry = dataclasses.replace(tenth(FILTERS[name]), delta=1)
        with pytest.raises(BudgetRefused):
            Ledger.under(FILTERS[name]).charge(entry)
    approximate = Ledger.under(FILTERS["approximate zCDP"], concurrent=False)
    entry = approximate.ask("m", ApproxDP(ONE / 10, SLACK / 2), "r")
    assert approximate.charge(entry).charge(entry).remaining.delta == 0
    assert isinstance(approximate.filter, ZCDPFilter)
    assert approximate.filter.failure == SLACK


def test_gaussian_dp_needs_finite_communication() -> None:
    filter_ = GaussianFilter.of(ONE)
    ledger = Ledger.under(filter_)
    with pytest.raises(BudgetRefused, match=r"finite communication.*14\.4"):
        ledger.charge(ledger.ask("blt", GaussianDP(ONE / 2), "leaf"))
    finite = filter_.entry("blt", GaussianDP(Fraction(3, 5)), "clamped", finite=True)
    assert finite.measure == GAUSSIAN_FINITE
    ledger = ledger.charge(finite).charge(dataclasses.replace(finite, epsilon=4 * UNITS // 5))
    assert ledger.left == 0  # .6^2 + .8^2 = 1, exactly


@every_filter
def test_ledgers_are_values(filter_: Filter) -> None:
    ledger = Ledger.under(filter_, concurrent=False)
    assert ledger == Ledger.under(filter_, concurrent=False)
    assert ledger != ledger.charge(tenth(filter_))
    assert ledger != "a ledger"
    assert len({ledger, Ledger.under(filter_, concurrent=False)}) == 1


# The better of two filters is not a filter: an exact counterexample from two of ours with one promise.


DELTA, OWN = Fraction(1, 20), Fraction(49, 1000)
ODDS = Fraction(3, 2)
RATIO = ODDS**8
A = TightApproximateFilter.of(below_log(RATIO), DELTA - OWN, OWN)
B = TightApproximateFilter.of(below_log(RATIO), DELTA, Fraction(0))
C = PureFilter.of(below_log(RATIO))
MEASURES: tuple[Measure, ...] = (PureDP(least_epsilon(ODDS)), ApproxDP(Fraction(0), OWN))
RESPONSES = (RandomizedResponse(ODDS), RandomizedResponse(Fraction(1), OWN))


def admits(filter_: Filter, counts: Counts) -> bool:
    ledger = Ledger.under(filter_)
    for measure, number in zip(MEASURES, counts, strict=True):
        for _ in range(number):
            try:
                ledger = ledger.charge(ledger.ask("m", measure, "r"))
            except BudgetRefused:
                return False
    return True


def best_adversary(*filters: Filter) -> Fraction:
    """The exact delta of whatever any of these filters admits."""

    @cache
    def rule(counts: Counts) -> bool:
        return any(admits(filter_, counts) for filter_ in filters)

    return exact_delta(Filtered(RESPONSES, rule), SecretBit(2), RATIO, 12)


def test_each_filter_keeps_its_promise_and_the_better_of_the_two_does_not() -> None:
    assert A.promise == B.promise == ApproxDP(below_log(RATIO), DELTA)
    alone = best_adversary(A), best_adversary(B)
    assert max(alone) <= DELTA
    assert min(alone) > DELTA / 5  # neither is idle
    assert best_adversary(A, B) > DELTA * Fraction(105, 100)
    assert best_adversary(B, C) == best_adversary(B)


def test_ours_has_one_filter_and_keeps_it() -> None:
    with pytest.raises(NotDerivable, match="one filter"):
        Ledger.under(A, B)
    ledger = Ledger.under(B).charge(Entry("m", 10**11, 0, "r"))
    with pytest.raises(BudgetRefused, match="the better of two filters is not a valid filter"):
        dataclasses.replace(ledger, loads=dataclasses.replace(ledger.loads, filter=A))
    assert (ledger.filter, ledger.count) == (B, 1)
