"""What a halt frees: exact worst cases of many copies, of which one is touched, and the ledger's table.

A mechanism is fresh if the rest keeps its measure after any answers to equal pairs. Copies whose worst history is
touched then cost what one costs. The known mechanisms that are not fresh ([HSV] Thm 5.2, 13.5) cost more with each
copy, so a ledger that frees them is beaten.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from oracles.compositions import FiniteComposition, SparsePairs

from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import Filter, Spend
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter, RenyiFilter
from stream_dp.accounting.filters.squares import GaussianFilter, TightApproximateFilter, ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Alive, Filtered, Fixed
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Measure,
    Protected,
    PureDP,
    RenyiDP,
)
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused, NotDerivable
from stream_dp.verify.exact.exact_delta import exact_delta, exact_moment
from stream_dp.verify.exact.finite import BIT_PAIRS, DifferAtMost
from stream_dp.verify.exact.randomized_response import NoisyBits

ADD, REPLACE, ANY_TICK = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
ONE, HALF, SMALL = Fraction(1), Fraction(1, 2), Fraction(1, 10**6)
TWO_BITS = DifferAtMost((0,), BIT_PAIRS[1:3])
LAST = Fraction(1, 10)


def worst(game: Callable[..., Any], machine: Any, measure: Any, copies: int) -> Any:
    """The worst case of so many copies of a machine at most, of which one is touched, in one message."""
    pairs = SparsePairs((TWO_BITS,), (copies,), 1)
    return game(FiniteComposition((machine,)), pairs, measure, 3 * copies)


@pytest.mark.parametrize(
    ("game", "machine", "measure"),
    [
        (exact_delta, NoisyBits(Fraction(3)), Fraction(2)),
        (exact_moment, NoisyBits(Fraction(3)), 2),
        (exact_moment, NoisyBits(Fraction(3)), 3),
    ],
)
def test_copies_of_what_is_fresh_cost_what_one_costs(game: Any, machine: Any, measure: Any) -> None:
    one = worst(game, machine, measure, 1)
    assert [worst(game, machine, measure, copies) for copies in (2, 3)] == [one, one]


EVENT = Protected(ADD)
FILTERS: dict[str, Filter] = {
    "pure": PureFilter.of(ONE),
    "basic": BasicFilter.of(ONE, 2 * SMALL),
    "tight": TightApproximateFilter.of(3 * ONE, SMALL, SMALL),
    "zcdp": ZCDPFilter.of(ONE),
    "renyi": RenyiFilter.of(RenyiDP(Fraction(3), ONE)),
    "gdp": GaussianFilter.of(ONE),
}
PURE, ROUGH = PureDP(HALF), ApproxDP(HALF, SMALL)
ALL, AMOUNT, NOTHING = "all", "amount", "nothing"


@pytest.mark.parametrize("protected", [EVENT, Protected(REPLACE), None], ids=str)
@pytest.mark.parametrize(
    ("name", "measure", "fresh", "frees"),
    [
        *((name, PURE, False, ALL) for name in FILTERS),
        ("basic", ROUGH, True, ALL),
        ("basic", ROUGH, False, AMOUNT),
        ("tight", ROUGH, True, ALL),
        ("tight", ROUGH, False, AMOUNT),
        ("zcdp", ZCDP(HALF), True, ALL),
        ("zcdp", ZCDP(HALF), False, NOTHING),
        ("renyi", RenyiDP(Fraction(3), HALF), True, ALL),
        ("renyi", RenyiDP(Fraction(3), HALF), False, NOTHING),
        ("gdp", GaussianDP(HALF), True, ALL),
        ("gdp", GaussianDP(HALF), False, NOTHING),
    ],
)
def test_a_halt_frees_what_is_fresh_and_the_epsilon_of_what_has_a_delta(
    name: str, measure: Measure, fresh: bool, frees: str, protected: Protected | None
) -> None:
    ledger = Ledger.under(FILTERS[name], protected=protected)
    entry = ledger.ask("m", measure, "r", finite=True, fresh=fresh)
    cost, halted = ledger.filter.cost(entry), ledger.charge(entry).halt(entry, 1)
    kept = {ALL: Spend(), AMOUNT: Spend(0, cost.delta), NOTHING: cost}
    assert halted.used == kept[frees]


@pytest.mark.parametrize("protected", [Protected(ADD, Users(2)), Protected(ANY_TICK)], ids=str)
@pytest.mark.parametrize(
    ("name", "measure", "frees"),
    [
        ("pure", PURE, True),
        ("basic", PURE, True),
        ("basic", ROUGH, False),
        ("tight", PURE, False),
        ("zcdp", ZCDP(HALF), False),
        ("gdp", GaussianDP(HALF), False),
    ],
)
def test_where_the_events_lie_in_several_ticks_only_pure_epsilons_are_freed(
    name: str, measure: Measure, frees: bool, protected: Protected
) -> None:
    ledger = Ledger.under(FILTERS[name], protected=protected)
    entry = ledger.ask("m", measure, "r", finite=True, fresh=True)
    halted = ledger.charge(entry).halt(entry, 1)
    assert halted.used == (Spend() if frees else ledger.filter.cost(entry))


def test_a_thousand_gaussian_dashboards_one_after_the_other_fit_one_budget() -> None:
    subledgers = Subledgers.open(ZCDPFilter.of(ONE), protected=EVENT)
    for number in range(1000):
        part = leaf(f"dashboard {number}", Guarantee(ZCDP(ONE), ADD, fresh=True), "a test")
        subledgers.charge(subledgers.price(part), start=number)
        subledgers.halt(part.subject, number + 1)
    old = leaf("not fresh", Guarantee(ZCDP(ONE), ADD), "a test")
    subledgers.charge(subledgers.price(old), start=1000)
    subledgers.halt(old.subject, 1001)
    with pytest.raises(BudgetRefused):
        subledgers.charge(
            subledgers.price(leaf("again", Guarantee(ZCDP(ONE), ADD, fresh=True), "a"))
        )


def part(fresh: bool, rho: Fraction = ONE) -> Derivation:
    return leaf("part", Guarantee(ZCDP(rho), ADD, fresh=fresh), "a test")


@pytest.mark.parametrize(
    ("parts", "fresh"),
    [((True, True), True), ((True, False), False), ((False, True), False), ((False,), False)],
)
def test_a_rule_keeps_freshness_where_all_premises_have_it(
    parts: tuple[bool, ...], fresh: bool
) -> None:
    assert derive(tuple(map(part, parts)), Fixed("both")).guarantee.fresh is fresh
    assert Guarantee(PURE, ADD).fresh
    assert not Guarantee(ROUGH, ADD).fresh


@pytest.mark.parametrize(
    ("fresh", "begins", "fits"), [(True, 2, True), (True, 1, False), (False, 2, False)]
)
def test_a_whole_counts_what_is_alive_at_a_tick_and_what_is_not_fresh_for_ever(
    fresh: bool, begins: int, fits: bool
) -> None:
    lives = (Alive(0, 1), Alive(begins, None))
    situation = Filtered("whole", ZCDPFilter.of(ONE), lives)
    if fits:
        assert derive((part(fresh), part(fresh)), situation).guarantee.measure == ZCDP(ONE)
        return
    with pytest.raises(NotDerivable, match="exceed the filter's capacity"):
        derive((part(fresh), part(fresh)), situation)
