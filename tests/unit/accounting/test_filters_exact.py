"""Filters against exact composition: what they admit never exceeds what they promise, however it is chosen."""

import dataclasses
import math
from fractions import Fraction
from functools import cache

import pytest
from oracles.compositions import adaptive, adaptive_renyi, brute_force, closed_form
from oracles.deltas import zcdp_delta

from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.filters.linear import PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.core.guarantee import ZCDP, ApproxDP, PureDP, RenyiDP

ONE = Fraction(1)


@cache
def price(filter_: Filter, epsilon: Fraction) -> Spend:
    """What one pure mechanism costs."""
    return filter_.cost(filter_.entry("m", PureDP(epsilon), "r"))


def admits(filter_: Filter, menu: tuple[Fraction, ...], counts: tuple[int, ...]) -> bool:
    """Whether the filter takes so many of each."""
    spend = Spend()
    for n, e in zip(counts, menu, strict=True):
        cost = price(filter_, e)
        spend = spend + Spend(n * cost.amount, n * cost.delta)
    return spend.within(filter_.capacity)


def worst(filter_: Filter, menu: tuple[Fraction, ...], target: Fraction, depth: int = 40) -> float:
    """The exact delta at `target` of the best adaptive adversary the filter lets through."""
    return adaptive(
        [float(e) for e in menu], lambda c: admits(filter_, menu, c), float(target), depth
    )


def test_the_oracles_agree() -> None:
    for e, d, k, target in ((0.5, 0.01, 6, 1.0), (0.3, 0.0, 9, 0.4), (1.0, 1e-3, 3, 0.0)):
        assert brute_force([(e, d)] * k, target) == pytest.approx(closed_form(e, d, k, target))
    assert closed_form(0.1, 1e-6, 30, 1.5) == pytest.approx(0.000938424819768, rel=1e-9)
    assert closed_form(0.5, 1e-8, 20, 5.0) == pytest.approx(0.0544205817, rel=1e-8)
    fixed = adaptive([0.5], lambda c: c[0] <= 6, 1.0, 40)
    assert fixed == pytest.approx(closed_form(0.5, 0.0, 6, 1.0))


MENUS = [
    (Fraction(1, 2), Fraction(1, 4)), (Fraction(1), Fraction(1, 5)),
    (Fraction(3, 10), Fraction(1, 2), Fraction(7, 10)),
]  # fmt: skip


@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize("slack", [Fraction(1, 20), Fraction(1, 1000)])
def test_adaptive_choices_stay_within_the_promise(
    menu: tuple[Fraction, ...], slack: Fraction
) -> None:
    target = Fraction(3)
    tight = worst(TightApproximateFilter.of(target, slack, Fraction(0)), menu, target)
    assert 0 <= tight <= slack
    assert tight > 0 or slack < Fraction(1, 100)
    zcdp = ZCDPFilter.of(Fraction(1, 2))
    assert worst(zcdp, menu, target) <= zcdp_delta(ZCDP(Fraction(1, 2)), target)


@pytest.mark.parametrize("menu", MENUS)
def test_the_pure_filter_is_met_exactly(menu: tuple[Fraction, ...]) -> None:
    filter_ = PureFilter.of(Fraction(2))
    assert worst(filter_, menu, Fraction(2)) == pytest.approx(0, abs=1e-12)
    assert worst(filter_, menu, Fraction(19, 10)) > 0.01  # and not with any less


@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize("order", [Fraction(3, 2), Fraction(2), Fraction(16)])
def test_renyi_divergences_stay_within_the_promise(
    menu: tuple[Fraction, ...], order: Fraction
) -> None:
    budget, parts = Fraction(2), [float(e) for e in menu]
    renyi = RenyiFilter.of(RenyiDP(order, budget))
    found = adaptive_renyi(parts, lambda c: admits(renyi, menu, c), float(order), 40)
    assert 0.9 * float(budget) < found <= budget  # equal but for what no item of the menu fills
    zcdp = ZCDPFilter.of(budget)
    found = adaptive_renyi(parts, lambda c: admits(zcdp, menu, c), float(order), 60)
    assert found <= budget * order
    assert found > 0.75 * budget * order or order > 2  # nearly met at small orders


def test_a_filter_without_the_drift_is_caught() -> None:
    """The twin admits while 2 sqrt(R L) <= epsilon: R forgotten."""
    menu, target, slack = (Fraction(1, 2),), Fraction(3), Fraction(7, 10)
    honest = TightApproximateFilter.of(target, slack, Fraction(0))
    rho = float(target) ** 2 / (4 * math.log(1 / slack))
    twin = dataclasses.replace(honest, capacity=Spend(int(rho * 10**24)))
    assert worst(honest, menu, target, 60) <= slack
    assert worst(twin, menu, target, 60) > slack


def test_deltas_of_the_mechanisms_are_within_the_promise() -> None:
    target, slack, own = Fraction(2), Fraction(1, 100), Fraction(1, 100)
    ledger = Ledger.under(TightApproximateFilter.of(target, slack, own))
    parts: list[tuple[float, float]] = []
    for e, d in [(Fraction(2, 5), Fraction(1, 1000)), (Fraction(1, 5), Fraction(1, 500))] * 9:
        entry = ledger.ask("m", ApproxDP(e, d), "r")
        if ledger.preview(entry).fits:
            ledger = ledger.charge(entry)
            parts.append((float(e), float(d)))
    assert ledger.count >= 5
    exact = brute_force(parts, float(target))
    assert 1 - math.prod(1 - d for _, d in parts) <= exact <= slack + own
