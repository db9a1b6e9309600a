"""A small forest of windows and its broken twins, all noise enumerated: the exact certificate of the real code."""

from fractions import Fraction

import pytest
from oracles.turns import Turns
from unit.mechanisms import broken_forests as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
PAIRS = ForestShape((2,), (HALF, HALF))
ONE_MORE = Turns(((0,),), (((0,), (1,)), ((1,), (0,))))
MOVED = Turns(((0, 0),), (((1, 0), (0, 1)), ((0, 1), (1, 0))))
PAIR_MORE = Turns(((0, 0),), (((0, 0), (1, 1)), ((1, 1), (0, 0))))


def bounds(forest: WindowForest, pairs: Turns, units: int, ticks: int, radius: int) -> Bracket:
    """The bracket at a claim of `units` of epsilon."""
    machine = Enumerated(forest, BASE, radius)
    return delta_bracket(machine, pairs, BASE**-units, 2 * ticks)


def test_two_levels_meet_their_claim() -> None:
    """Three ticks, the event in any of them, windows of one and of two; and no less would do."""
    forest = WindowForest(1, Fraction(2), ADD, (1, 2), PAIRS)
    assert bounds(forest, ONE_MORE, 2, 3, 1).upper < Fraction(1, 20)
    assert bounds(forest, ONE_MORE, 1, 3, 1).lower > HALF


def test_single_ticks_meet_their_claim() -> None:
    forest = WindowForest(1, Fraction(1), ADD, (1, 2), FLAT)
    assert bounds(forest, ONE_MORE, 1, 3, 2).upper < Fraction(1, 1_000)
    assert bounds(forest, ONE_MORE, 0, 3, 2).lower > HALF


@pytest.mark.parametrize(("pairs", "ones", "relation"), [(MOVED, 1, REPLACE), (PAIR_MORE, 2, ADD)])
def test_two_columns_meet_their_claim(pairs: Turns, ones: int, relation: Neighbors) -> None:
    """An event that moves between two columns, and one that sets both."""
    forest = WindowForest(2, Fraction(2), relation, (1, 2), FLAT, ones)
    assert bounds(forest, pairs, 2, 2, 1).upper < Fraction(1, 20)
    assert bounds(forest, pairs, 1, 2, 1).lower > HALF
    twin = broken.ColumnsFree(2, Fraction(1), relation, (1, 2), FLAT, ones)
    assert bounds(twin, pairs, 1, 2, 1).lower > HALF


def test_levels_at_the_whole_budget_are_caught() -> None:
    twin = broken.WholeBudgetEach(1, Fraction(1), ADD, (1, 2), PAIRS)
    assert bounds(twin, ONE_MORE, 1, 2, 2).lower > HALF


def test_noise_drawn_for_each_window_is_caught() -> None:
    right = WindowForest(1, Fraction(1), ADD, (1, 1), FLAT)
    twin = broken.FreshForEachWindow(1, Fraction(1), ADD, (1, 1), FLAT)
    assert bounds(right, ONE_MORE, 1, 1, 3).upper < Fraction(1, 1_000)
    assert bounds(twin, ONE_MORE, 1, 1, 3).lower > HALF
