"""The first block where some series are pure and some are not: which derivation is taken, and what is charged for it.

Oracles: the closed sums by hand. Twins: all in one zCDP sum, which charges a pure series of epsilon 1 for its square,
and a charge for each series under a filter that has no theorem for one of them.
"""

from fractions import Fraction

import pytest

from stream_dp.accounting.conversions import zcdp_epsilon
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, ApproxDP, Guarantee, Measure, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused
from stream_dp.pipeline.budget import charged_parts
from stream_dp.pipeline.derivations import dp_at, fixed_blocks, whole

ONE, RHO, MILLIONTH = Fraction(1), Fraction(1, 200), Fraction(1, 10**6)


def series(name: str, measure: Measure) -> Derivation:
    """A series of the file."""
    return leaf(name, Guarantee(measure, Neighbors.ADD_REMOVE), "its proof")


PURE = series("alerts", PureDP(ONE))
NOISY = tuple(series(f"noisy{n}", ZCDP(RHO)) for n in (1, 2))
TOGETHER = zcdp_epsilon(ZCDP(2 * RHO), MILLIONTH)


def charged(filter_: Filter, *parts: Derivation, delta: Fraction = MILLIONTH) -> list[str]:
    """Who is charged."""
    ledger = Ledger.under(filter_, protected=PURE.guarantee.protected)
    _, found = charged_parts(ledger, parts, fixed_blocks("shop", parts, delta))
    for part in found:
        ledger = ledger.charge(ledger.price(part))
    return [entry.name for entry in ledger.entries]


def test_gaussian_series_are_summed_as_rho_and_stand_beside_pure_ones() -> None:
    best, *_ = fixed_blocks("shop", (PURE, *NOISY), MILLIONTH)
    assert best.guarantee.measure == ApproxDP(ONE + TOGETHER, MILLIONTH)
    all_in_one = zcdp_epsilon(ZCDP(2 * RHO + Fraction(4622, 10000)), MILLIONTH)
    assert best.guarantee.measure.epsilon < all_in_one / 2
    alone, *_ = fixed_blocks("shop", NOISY, MILLIONTH)
    assert alone.guarantee.measure == ApproxDP(TOGETHER, MILLIONTH)


def test_the_basic_filter_charges_one_and_approximate_ones_charge_less() -> None:
    subject = "shop: series of the first start"
    assert charged(BasicFilter.of(Fraction(3), MILLIONTH), PURE, *NOISY) == [subject]
    tight = TightApproximateFilter.of(Fraction(9), MILLIONTH, MILLIONTH)
    assert charged(tight, PURE, *NOISY) == ["alerts", "shop: those that are not pure"]
    assert charged(tight, *NOISY) == [subject]


def test_filters_of_rho_charge_each_and_others_refuse_by_name() -> None:
    assert charged(ZCDPFilter.of(ONE), PURE, *NOISY) == ["alerts", "noisy1", "noisy2"]
    assert charged(ZCDPFilter.of(ONE), PURE, *NOISY, delta=Fraction(0)) == [
        "alerts",
        "noisy1",
        "noisy2",
    ]
    for filter_ in (
        PureFilter.of(Fraction(9)),
        BasicFilter.of(Fraction(9), MILLIONTH),
        GaussianFilter.of(ONE),
    ):
        with pytest.raises(BudgetRefused, match="has no theorem for zCDP"):
            charged(filter_, PURE, *NOISY, delta=Fraction(0))


def test_the_promise_covers_what_has_a_delta_and_what_is_alive_at_one_tick() -> None:
    filter_ = BasicFilter.of(Fraction(3), MILLIONTH)
    block, *_ = fixed_blocks("shop", (PURE, *NOISY), MILLIONTH)
    later = [(series(f"later{n}", PureDP(Fraction(1, 2))), Alive(n, n)) for n in range(9)]
    found = whole(
        "shop", filter_, [(block, Alive(0, None)), *later], ApproxDP(Fraction(3), MILLIONTH)
    )
    assert dp_at(found, Fraction(0)) == ApproxDP(Fraction(3), MILLIONTH)
    kept, ticked = found.premises
    assert kept is block
    assert ticked.guarantee.measure == PureDP(Fraction(1, 2))
