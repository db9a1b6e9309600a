"""Whom a ledger promises to: it prices no derivation for other neighbours, moves, users or groups.

The oracle is exact: the worst ratio of two runs whose streams are the ledger's neighbours, of a mechanism that answers
each tick by randomized response. The twin is a ledger that charges the measure and forgets for whom it holds.
"""

from fractions import Fraction

import pytest

from stream_dp.accounting.amounts import UNITS
from stream_dp.accounting.derive import derive
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import BasicFilter, PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.filters.squares import ZCDPFilter
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Group, Moved, OfUsers
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, Protected, PureDP
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.errors import BudgetRefused
from stream_dp.verify.exact.exact_delta import worst_ratio
from stream_dp.verify.exact.finite import DifferAtMost, OnceEach
from stream_dp.verify.exact.randomized_response import NoisyBits

ONE, ODDS = Fraction(1), Fraction(3)
TWICE, OTHER_WINDOW = Users(2), Users(2, 24)
DAILY = Users(2, 12)


def part(neighbors: Neighbors, epsilon: Fraction = ONE) -> Derivation:
    """Return what holds for one event."""
    return leaf("live", Guarantee(PureDP(epsilon), neighbors), "its proof")


ADDED = part(Neighbors.ADD_REMOVE)
MOVED = derive((ADDED,), Moved("live"))
DERIVATIONS = {
    "one event more": ADDED,
    "another content": part(Neighbors.REPLACE),
    "another content at any tick": MOVED,
    "a user for ever": derive((ADDED,), OfUsers("live", TWICE)),
    "a user of fewer events": derive((ADDED,), OfUsers("live", Users(1))),
    "a user in half a day": derive((ADDED,), OfUsers("live", DAILY)),
    "a user in a day": derive((ADDED,), OfUsers("live", OTHER_WINDOW)),
    "two events": derive((ADDED,), Group("live", 2)),
}
FILTERS: list[Filter] = [
    PureFilter.of(9 * ONE), BasicFilter.of(9 * ONE, Fraction(1, 9)), ZCDPFilter.of(9 * ONE),
]  # fmt: skip


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda it: it.name)
@pytest.mark.parametrize("whom", DERIVATIONS)
def test_a_ledger_prices_what_protects_those_it_promises_to_and_nothing_else(
    whom: str, filter_: Filter
) -> None:
    """Each of the ledgers, the analysts' too, takes the derivation of its own; any other changes nothing."""
    own = DERIVATIONS[whom].guarantee.protected
    ledgers = Subledgers.open(filter_, {"ann": PureFilter.of(4 * ONE)}, own)
    before = dict(ledgers.ledgers)
    frees = filter_.name in {"pure", "basic"}
    for name, derivation in DERIVATIONS.items():
        for analyst in ("", "ann"):
            if name == whom and not (own.group > 1 and (frees or analyst)):
                assert ledgers.price(derivation, analyst).epsilon > 0
                continue
            with pytest.raises(BudgetRefused, match="protects"):
                ledgers.price(derivation, analyst)
    assert ledgers.ledgers == before


def test_the_refusal_says_whom_each_protects() -> None:
    ledger = Ledger.of(ONE, Protected(Neighbors.REPLACE_ANY_TICK))
    with pytest.raises(BudgetRefused) as caught:
        ledger.price(part(Neighbors.REPLACE))
    assert str(caught.value).startswith(
        "live protects replace, but this ledger protects replace_any_tick"
    )
    with pytest.raises(BudgetRefused, match="protects nobody"):
        Ledger.of(ONE).price(ADDED)


def test_a_replacement_that_moves_loses_twice_what_a_forgetful_ledger_books() -> None:
    """Exact: an event of tick 0 or of tick 1 lies in two rows, of which a price under `replace` knows one."""
    changed = ((0, 1), (1, 0))
    assert worst_ratio(NoisyBits(ODDS), DifferAtMost((0, 1), changed), 2) == ODDS
    assert worst_ratio(NoisyBits(ODDS), OnceEach((0, 1), changed), 2) == ODDS**2
    priced = part(Neighbors.REPLACE)
    measure = priced.guarantee.measure
    forgetful = Ledger.of(ONE).ask("live", measure, "its proof")
    assert forgetful.epsilon == UNITS  # the twin books 1, and 2 are lost
    knowing = Ledger.of(2 * ONE, Protected(Neighbors.REPLACE_ANY_TICK))
    with pytest.raises(BudgetRefused, match="protects replace"):
        knowing.price(priced)
    assert knowing.price(MOVED).epsilon == 2 * UNITS


def test_what_one_of_two_ticks_may_cost_in_full_is_not_created_live() -> None:
    """A halt frees the ticks to come: a part that one step may cost in full is paid again at the other step's tick."""
    claim = part(Neighbors.REPLACE_ANY_TICK)
    ledgers = Subledgers.open(PureFilter.of(2 * ONE), protected=claim.guarantee.protected)
    with pytest.raises(BudgetRefused, match="full price at one of the two ticks"):
        ledgers.price(claim)
    assert ledgers.price(MOVED).epsilon == 2 * UNITS
    frees_none = Subledgers.open(ZCDPFilter.of(ONE), protected=claim.guarantee.protected)
    assert frees_none.price(claim) == frees_none.main.price(claim)


SOME = Box((("kind", frozenset("x")),))
WHOLE = {
    "another content at any tick": part(Neighbors.REPLACE_ANY_TICK),
    "a user for ever": leaf("live", Guarantee(PureDP(ONE), Neighbors.ADD_REMOVE, users=TWICE), "p"),
}


def opened(filter_: Filter, derivation: Derivation) -> Ledger:
    return Ledger.under(filter_, protected=derivation.guarantee.protected)


@pytest.mark.parametrize("whom", DERIVATIONS)
def test_a_box_counts_where_every_step_costs_its_part(whom: str) -> None:
    rho, derivation = ZCDPFilter.of(9 * ONE), DERIVATIONS[whom]
    box = EVERYTHING if derivation.guarantee.group > 1 else SOME
    assert opened(rho, derivation).price(derivation, SOME).box == box
    if whom in WHOLE:
        assert opened(rho, derivation).price(WHOLE[whom], SOME).box == EVERYTHING


@pytest.mark.parametrize("whom", WHOLE)
def test_the_optimal_filter_takes_only_what_costs_an_event_its_part(whom: str) -> None:
    ledger = opened(OptimalFilter.of(9 * ONE, Fraction(1, 9), 2), WHOLE[whom])
    with pytest.raises(BudgetRefused, match="the full price"):
        ledger.price(WHOLE[whom])
    assert ledger.price(DERIVATIONS[whom]).epsilon == 2 * UNITS
