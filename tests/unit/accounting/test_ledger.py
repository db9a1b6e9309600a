"""The ledger and its amounts: costs round up, budgets down, a refusal changes nothing and says why."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.accounting.amounts import UNITS, budget_units, cost_units, exact, text
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.accounting.rules.rule import leaf
from stream_dp.core.guarantee import ApproxDP, Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BudgetRefused, InvalidCost

amounts = st.fractions(min_value=0, max_value=1000)


@given(amounts)
def test_costs_round_up_and_budgets_round_down(amount: Fraction) -> None:
    cost, budget = cost_units(amount), budget_units(amount)
    assert exact(budget) <= amount <= exact(cost)
    assert cost - budget == (0 if (amount * UNITS).denominator == 1 else 1)
    assert Fraction(text(amount)) == exact(cost)
    assert Fraction(text(budget)) == exact(budget)


some = st.fractions(Fraction(1, 10**12), 1000)


@given(st.lists(some, max_size=8), some)
def test_what_is_charged_never_exceeds_the_budget(parts: list[Fraction], budget: Fraction) -> None:
    ledger = Ledger.of(budget)
    charged = Fraction(0)
    for i, part in enumerate(parts):
        entry = Entry(str(i), cost_units(part), 0, "rule")
        fits = entry.epsilon <= ledger.left
        try:
            ledger = ledger.charge(entry)
        except BudgetRefused:
            assert not fits
            continue
        assert fits
        charged += part
    assert charged <= exact(ledger.spent) <= budget
    assert ledger.spent == sum(entry.epsilon for entry in ledger.entries)
    assert ledger.spent + ledger.left == ledger.epsilon


def test_a_refusal_changes_nothing_says_everything_and_a_smaller_ask_fits() -> None:
    ledger = Ledger.of(Fraction(2)).charge(Entry("first", cost_units(Fraction(3, 2)), 0, "r"))
    before = repr(ledger)
    with pytest.raises(BudgetRefused) as caught:
        ledger.charge(Entry("dash", cost_units(Fraction(3, 4)), 0, "r"))
    assert repr(ledger) == before
    for part in ("dash", "asks for epsilon 0.75", "of 2 ", "spent 1.5", "0.5 left"):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3
    full = ledger.charge(Entry("dash", ledger.left, 0, "r"))
    assert full.left == 0
    with pytest.raises(BudgetRefused):
        full.charge(Entry("a unit", 1, 0, "r"))
    assert ledger.left == UNITS // 2  # a ledger is a value


def test_a_pure_ledger_takes_pure_positive_charges_only() -> None:
    with pytest.raises(BudgetRefused, match="delta"):
        Ledger.of(Fraction(1)).charge(Entry("delta", 1, 1, "r"))
    with pytest.raises(InvalidCost, match="refund asks for -1 units"):
        Ledger.of(Fraction(1)).charge(Entry("refund", -1, 0, "r"))
    approximate = Guarantee(ApproxDP(Fraction(1, 3), Fraction(1, 10**13)), Neighbors.REPLACE)
    price = Ledger.of(Fraction(1), approximate.protected).price(
        leaf("gauss", approximate, "a book")
    )
    assert (price.name, price.epsilon, price.delta) == ("gauss", 333_333_333_334, 1)
    assert "a book" in price.rule


def test_a_price_is_the_rounded_epsilon_and_charges_nothing() -> None:
    pure = Guarantee(PureDP(Fraction(2, 3)), Neighbors.ADD_REMOVE)
    ledger = Ledger.of(Fraction(1), pure.protected)
    assert ledger.price(leaf("tree", pure, "p")).epsilon == 666_666_666_667
    assert ledger.spent == 0


def test_tenths_add_up_and_what_is_no_unit_is_refused_when_full() -> None:
    """As floats, 0.1 + 0.2 is more than 0.3, and 1 + 10^-17 is 1."""
    ledger = Ledger.of(Fraction(3, 10))
    for tenths in (1, 2):
        ledger = ledger.charge(Entry("m", cost_units(Fraction(tenths, 10)), 0, "r"))
    assert ledger.left == 0
    with pytest.raises(BudgetRefused):
        ledger.charge(Entry("m", cost_units(Fraction(1, 10**17)), 0, "r"))


def test_ledgers_that_branch_do_not_see_each_other() -> None:
    root = Ledger.of(Fraction(1)).charge(Entry("root", 1, 0, "r"))
    left, right = (root.charge(Entry(name, 2, 0, "r")) for name in ("left", "right"))
    assert [e.name for e in left.entries] == ["root", "left"]
    assert [e.name for e in right.entries] == ["root", "right"]
    assert left != right
    assert root.charge(Entry("left", 2, 0, "r")) == left
    with pytest.raises(AttributeError):
        root.count = 0  # type: ignore[misc]
