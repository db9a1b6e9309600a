"""The exact optimal filter of the oracles: against the closed form, at its budget, and along a chain."""

import math
from fractions import Fraction

import pytest
from oracles.compositions import closed_form
from oracles.optimal_filter import admits, chain, least_delta, root

F = Fraction


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_the_listed_answers_give_the_closed_form(count: int) -> None:
    exact = least_delta((F(2),) * count, F(3))
    assert closed_form(math.log(2), 0, count, math.log(3)) == pytest.approx(float(exact))


def test_the_rule_admits_up_to_its_budget_and_no_further() -> None:
    below = F(2, 9) - F(1, 10**30)
    assert admits([], F(2), F(2), F(0))
    assert admits([F(2)], F(2), F(2), F(2, 9))
    assert not admits([F(2)], F(2), F(2), below)
    assert admits([F(4)], F(4), F(4), F(2, 3), steps=2)
    assert not admits([F(4)], F(4), F(4), 3 * below, steps=2)
    assert not admits([], F(9, 4), F(2), F(1, 100))


@pytest.mark.parametrize("ratio", [F(1), F(3, 2), F(7)])
def test_the_chain_is_that_of_its_steps(ratio: Fraction) -> None:
    delta, steps = F(1, 50), 4
    ahead = steps if ratio == 1 else (ratio**steps - 1) / (ratio - 1)
    assert chain(ratio, delta, steps) == (ratio**steps, delta * ahead)
    assert root(ratio**steps, steps) == ratio


def test_a_ratio_without_a_rational_root_is_refused() -> None:
    with pytest.raises(ValueError, match="no rational root"):
        admits([], F(2), F(4), F(1, 9), steps=2)
