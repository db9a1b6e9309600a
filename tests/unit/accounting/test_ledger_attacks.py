"""Attacks on ledgers: amounts around one unit of 10^-12.

What was admitted is added up here from the parameters as they were asked, in exact numbers, and compared with the
budget as it was stated; nothing of the ledger's own sums is trusted.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP, PureDP, RenyiDP
from stream_dp.errors import BudgetRefused, InvalidCost

ONE, UNIT = Fraction(1), Fraction(1, UNITS)


def root_sum(parts: list[Fraction]) -> Fraction:
    return sum((part**2 for part in parts), Fraction(0))


def rho_below(parts: list[Fraction]) -> Fraction:
    """At most the sum of e tanh(e/2), for e <= 1: e^2/2 - e^4/24, by Taylor."""
    return sum((e**2 / 2 - e**4 / 24 for e in parts), Fraction(0))


SLACK = Fraction(1, 100)
Make = Callable[[Fraction], Filter]
Ask = Callable[[Filter, Fraction], Entry]
CASES: dict[str, tuple[Make, Ask, Callable[[list[Fraction]], Fraction], Callable[[Fraction], Fraction]]] = {
    "pure": (PureFilter.of, lambda f, x: f.entry("m", PureDP(x), "r"), lambda p: sum(p, Fraction(0)), lambda b: b),
    "zCDP": (ZCDPFilter.of, lambda f, x: f.entry("m", ZCDP(x), "r"), lambda p: sum(p, Fraction(0)), lambda b: b),
    "zCDP of DP": (ZCDPFilter.of, lambda f, x: f.entry("m", PureDP(x), "r"), rho_below, lambda b: b),
    "RDP": (
        lambda b: RenyiFilter.of(RenyiDP(Fraction(2), b)),
        lambda f, x: f.entry("m", RenyiDP(Fraction(2), x), "r"),
        lambda p: sum(p, Fraction(0)), lambda b: b,
    ),
    "GDP": (
        GaussianFilter.of,
        lambda f, x: f.entry("m", GaussianDP(x), "r", finite=True),
        root_sum, lambda b: b**2,
    ),
}  # fmt: skip

near = st.fractions(Fraction(1, 50), 6, max_denominator=50).map(lambda x: x * UNIT)
sizes = st.fractions(Fraction(11, 10), 9, max_denominator=50).map(lambda x: x * UNIT)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None)
@given(
    parts=st.lists(near, min_size=1, max_size=12),
    budget=sizes,
    scale=st.sampled_from([1, 10**6, 10**11]),
)
def test_no_rounding_favours_the_analyst(
    name: str, parts: list[Fraction], budget: Fraction, scale: int
) -> None:
    make, ask, cost, limit = CASES[name]
    stated = budget * scale if name != "zCDP of DP" else (budget * scale) ** 2
    try:
        ledger = Ledger.under(make(stated))
    except InvalidCost:
        return  # below one unit of its capacity: no filter at all
    admitted = []
    for part in parts:
        asked = min(part * scale + part / 7, ONE)  # no whole number of units
        before = ledger
        try:
            ledger = ledger.charge(ask(ledger.filter, asked))
        except BudgetRefused:
            assert ledger is before
            continue
        admitted.append(asked)
    assert cost(admitted) <= limit(stated)


def test_costs_round_up() -> None:
    """Five charges of 1.9 units fill a budget of 10; rounded down, ten of them would fit."""
    ledger = Ledger.of(10 * UNIT)
    entry = ledger.ask("m", PureDP(Fraction(19, 10) * UNIT), "r")
    for _ in range(5):
        ledger = ledger.charge(entry)
    with pytest.raises(BudgetRefused):
        ledger.charge(entry)


@settings(deadline=None, max_examples=40)  # finding a budget takes its time
@given(deltas=st.lists(near, min_size=1, max_size=12), own=sizes)
def test_the_deltas_of_what_is_admitted_stay_within_their_budget(
    deltas: list[Fraction], own: Fraction
) -> None:
    """1 - prod(1 - d) over all that was admitted, at no epsilon at all: delta'' and nothing of delta'."""
    ledger = Ledger.under(TightApproximateFilter.of(ONE, SLACK, own))
    admitted = []
    for delta in deltas:
        entry = ledger.ask("m", ApproxDP(Fraction(0), delta), "r")
        fits = ledger.preview(entry).fits
        if not fits:
            with pytest.raises(BudgetRefused, match="most that fits"):
                ledger.charge(entry)
            continue
        ledger = ledger.charge(entry)
        admitted.append(delta)
    assert 1 - math.prod((1 - d for d in admitted), start=ONE) <= sum(admitted) <= own
    promise = ledger.filter.promise
    assert isinstance(promise, ApproxDP)
    assert promise.delta == SLACK + own
