"""A small tree over values and its broken twins, all noise enumerated: the exact certificate of the real code.

Three buckets under two nodes, so that an event is counted twice. What quantiles tell is a function of these answers.
"""

from fractions import Fraction

import pytest
from oracles.turns import Turns
from unit.mechanisms import broken_value_trees as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.quantiles.sliding_quantiles import SlidingQuantiles
from stream_dp.mechanisms.quantiles.value_tree import Over, ValueLevels, ValueTree
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
LEVELS = ValueLevels(3, 2)
NONE = (0, 0, 0)
COMES = Turns((NONE,), ((NONE, (1, 0, 0)), ((0, 0, 1), NONE)))
MOVES = Turns((NONE,), (((1, 0, 0), (0, 0, 1)), ((0, 1, 0), (1, 0, 0))))


def forest(epsilon: int, relation: Neighbors = ADD, ones: int = 2) -> WindowForest:
    return WindowForest(5, Fraction(epsilon), relation, (1,), FLAT, ones)


def bounds(
    mechanism: ValueTree | SlidingQuantiles, pairs: Turns, units: int, ticks: int, radius: int
) -> Bracket:
    """The bracket at a claim of `units` of epsilon."""
    machine = Enumerated(mechanism, BASE, radius)
    return delta_bracket(machine, pairs, BASE**-units, 2 * ticks)


@pytest.mark.parametrize("counts", [forest(2), Counter(5, Fraction(2), ADD, 1, 2)])
def test_two_levels_meet_their_claim(counts: Over) -> None:
    tree = ValueTree(LEVELS, counts)
    assert bounds(tree, COMES, 2, 1, 1).upper < Fraction(1, 5)
    assert bounds(tree, COMES, 1, 1, 1).lower > HALF


def test_an_event_that_moves_meets_its_claim() -> None:
    """It leaves a node of each level and enters another; with the buckets alone, no less would do."""
    tree = ValueTree(LEVELS, forest(4, REPLACE))
    assert bounds(tree, MOVES, 4, 1, 1).upper < Fraction(1, 5)
    flat = ValueTree(ValueLevels(3, 3), WindowForest(3, Fraction(2), REPLACE, (1,), FLAT))
    assert bounds(flat, MOVES, 2, 1, 1).upper < Fraction(1, 5)
    assert bounds(flat, MOVES, 1, 1, 1).lower > HALF


def test_an_event_lies_in_one_of_two_ticks() -> None:
    """Two buckets alone, over two ticks and the window of both."""
    window = WindowForest(2, Fraction(1), ADD, (1, 2), FLAT)
    pairs = Turns(((0, 0),), (((0, 0), (1, 0)), ((0, 1), (0, 0))))
    assert bounds(ValueTree(ValueLevels(2, 2), window), pairs, 1, 2, 1).upper < Fraction(1, 5)


@pytest.mark.parametrize(("pairs", "relation", "units"), [(COMES, ADD, 2), (MOVES, REPLACE, 4)])
def test_levels_that_are_forgotten_are_caught(
    pairs: Turns, relation: Neighbors, units: int
) -> None:
    twin = broken.LevelsForgotten(LEVELS, forest(units, relation, 1))
    assert bounds(twin, pairs, units, 1, units // 2).lower > HALF


def test_noise_that_is_used_for_two_levels_is_caught() -> None:
    twin = broken.NoiseReused(LEVELS, forest(2))
    assert bounds(twin, COMES, 2, 1, 2).lower > HALF


def test_an_event_that_is_counted_in_two_nodes_of_a_level_is_caught() -> None:
    twin = ValueTree(broken.CountedTwice(3, 2), forest(2))
    assert bounds(twin, COMES, 2, 1, 2).lower > HALF


HOPS = Turns(((0, 0),), (((0, 0), (1, 0)), ((0, 1), (0, 0))))
PAIR = ValueLevels(2, 2)


def over_hops(units: int, windows: tuple[int, ...] = (1, 2)) -> WindowForest:
    return WindowForest(2, Fraction(units), ADD, windows, FLAT)


def test_an_event_of_any_tick_of_a_hop_lies_in_one_count() -> None:
    """Hops of two ticks, and windows of one and of two hops: what a single tick costs, and no less."""
    for ticks in (2, 4):
        tree = ValueTree(PAIR, over_hops(1), hop=2)
        assert bounds(tree, HOPS, 1, ticks, 1).upper < Fraction(1, 5)
    half = ValueTree(PAIR, over_hops(2), hop=2)
    assert bounds(half, HOPS, 2, 2, 1).upper < Fraction(1, 5)
    assert bounds(half, HOPS, 1, 2, 1).lower > HALF


def test_hops_that_keep_what_the_one_before_had_are_caught() -> None:
    twin = broken.KeptOn(PAIR, over_hops(2), hop=1)
    assert bounds(ValueTree(PAIR, over_hops(2)), HOPS, 2, 2, 2).upper < Fraction(1, 5)
    assert bounds(twin, HOPS, 2, 2, 2).lower > HALF


def test_open_hops_that_are_told_with_noise_of_their_own_are_caught() -> None:
    """An event is counted in each tick's new look at the open hop."""
    twin = broken.LookedInto(PAIR, over_hops(2, (1,)), hop=2)
    assert bounds(twin, HOPS, 2, 2, 2).lower > HALF


def test_what_quantiles_tell_costs_no_more() -> None:
    """Three buckets alone; told are a place and what is ruled out. Half of the claim is used up."""
    tree = ValueTree(ValueLevels(3, 3), WindowForest(3, Fraction(2), ADD, (1,), FLAT))
    median = SlidingQuantiles(tree, (HALF,), Fraction(19, 20))
    assert bounds(median, COMES, 2, 1, 2).upper < Fraction(1, 100)
