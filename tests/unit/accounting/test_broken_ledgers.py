"""Ledgers with a known fault are caught by the rules that ours keeps."""

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import pytest

from stream_dp.accounting.amounts import cost_units
from stream_dp.accounting.ledger import Entry, Ledger
from stream_dp.errors import BudgetRefused


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
