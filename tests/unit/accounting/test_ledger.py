"""The ledger and its amounts: costs round up, budgets down, a refusal changes nothing and says why."""

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

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


# Ledgers with a known fault are caught by the rules that ours keeps.


class Book(Protocol):
    """A budget that is asked, told of failures, and says what was admitted."""

    def ask(self, epsilon: Fraction) -> bool: ...

    def failed(self, epsilon: Fraction) -> None:
        """The mechanism that was charged last stopped with an error."""
        ...


class Honest:
    """Ours: nothing is given back, amounts are integers."""

    def __init__(self, budget: Fraction) -> None:
        self.ledger = Ledger.of(budget)

    def ask(self, epsilon: Fraction) -> bool:
        try:
            self.ledger = self.ledger.charge(Entry("m", cost_units(epsilon), 0, "r"))
        except BudgetRefused:
            return False
        return True

    def failed(self, epsilon: Fraction) -> None:
        """No refund: what it answered before is out."""


class Refunding(Honest):
    """Gives back what a failed mechanism was charged."""

    def failed(self, epsilon: Fraction) -> None:
        loads = self.ledger.loads.less(Entry("m", cost_units(epsilon), 0, "r"))
        self.ledger = Ledger(loads, loads.at())


class Floating:
    """Keeps its budget as a float."""

    def __init__(self, budget: Fraction) -> None:
        self.budget, self.spent = float(budget), 0.0

    def ask(self, epsilon: Fraction) -> bool:
        if self.spent + float(epsilon) > self.budget:
            return False
        self.spent += float(epsilon)
        return True

    def failed(self, epsilon: Fraction) -> None:
        """No refund."""


def overspent(make: Callable[[Fraction], Book], *, failing: bool, part: Fraction) -> Fraction:
    """How much more than the budget of 1 is admitted: half of it, then as many small parts as it takes."""
    book, admitted = make(Fraction(1)), Fraction(0)
    for epsilon in [Fraction(1, 2), *[part] * 1000]:
        if book.ask(epsilon):
            admitted += epsilon
            if failing:
                book.failed(epsilon)
    return admitted - 1


def test_nothing_is_refunded() -> None:
    asks = Fraction(1, 8)
    assert overspent(Honest, failing=True, part=asks) == 0
    assert overspent(Refunding, failing=False, part=asks) == 0
    assert overspent(Refunding, failing=True, part=asks) > 100


def test_a_float_budget_overspends_and_refuses_what_fits() -> None:
    tenth = Fraction(1, 10)
    three: list[bool] = []
    for make in (Honest, Floating):
        book: Book = make(Fraction(3, 10))
        three.append(all([book.ask(tenth), book.ask(tenth * 2)]))
    assert three == [True, False]
    swallowed = Floating(Fraction(1))
    assert swallowed.ask(Fraction(1))
    assert swallowed.ask(Fraction(1, 10**17))  # more than its budget, for ever
    full = Honest(Fraction(1))
    assert full.ask(Fraction(1))
    assert not full.ask(Fraction(1, 10**17))


def test_ledgers_that_branch_do_not_see_each_other() -> None:
    root = Ledger.of(Fraction(1)).charge(Entry("root", 1, 0, "r"))
    left, right = (root.charge(Entry(name, 2, 0, "r")) for name in ("left", "right"))
    assert [e.name for e in left.entries] == ["root", "left"]
    assert [e.name for e in right.entries] == ["root", "right"]
    assert left != right
    assert root.charge(Entry("left", 2, 0, "r")) == left
    with pytest.raises(AttributeError):
        root.count = 0  # type: ignore[misc]
