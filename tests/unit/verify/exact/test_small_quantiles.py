"""Small tumbling quantiles and their broken twins, all noise enumerated: the exact certificate of the real code.

Two buckets lose half of what many buckets lose (`statistical/test_privacy_quantiles.py`), so twins that pay too little
for several choices are caught with three or four of them.
"""

from fractions import Fraction

import pytest
from oracles.turns import Turns
from unit.mechanisms import broken_quantiles as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.quantiles.bucket_windows import TumblingQuantiles
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, THIRD, TWO_THIRDS = Fraction(1, 2), Fraction(1, 3), Fraction(2, 3)
COMES = (((0, 0), (1, 0)), ((1, 0), (0, 0)), ((0, 0), (0, 1)), ((0, 1), (0, 0)))
MOVES = (((1, 0), (0, 1)), ((0, 1), (1, 0)))
SILENT = Turns(((0, 0),), COMES)
ONE = Turns(((0, 0),), COMES[2:])
EIGHTH = Fraction(1, 8)
SMALL, LARGE = Fraction(1, 100), Fraction(1, 10)


def bounds(
    mechanism: TumblingQuantiles, pairs: Turns, units: Fraction | int, ticks: int, radius: int
) -> Bracket:
    """The bracket at a claim of `units` of epsilon, one unit being ln 8; rounded down where they are not whole."""
    machine = Enumerated(mechanism, EIGHTH, radius)
    ratio = Fraction(int(8 ** float(units) * 1_000), 1_000)
    return delta_bracket(machine, pairs, ratio, 2 * ticks)


def test_a_median_meets_its_claim_over_windows() -> None:
    """Windows of two ticks, the event in any of four; two buckets lose half of epsilon 2, and no less."""
    median = TumblingQuantiles(2, Fraction(2), ADD, (2,), (HALF,))
    pairs = Turns(((0, 0), (1, 0), (0, 1)), COMES)
    assert bounds(median, pairs, 2, 4, 4).upper < SMALL
    assert bounds(median, pairs, 1, 3, 4).upper < SMALL
    assert bounds(median, SILENT, HALF, 2, 4).lower > LARGE


def test_an_event_that_moves_meets_its_claim() -> None:
    median = TumblingQuantiles(2, Fraction(4), REPLACE, (1,), (HALF,))
    pairs = Turns(((0, 0), (1, 1)), (*MOVES, *COMES))
    assert bounds(median, pairs, 4, 2, 4).upper < SMALL
    assert bounds(median, pairs, Fraction(3, 2), 1, 4).lower > 0


def test_a_sensitivity_that_is_forgotten_is_caught() -> None:
    right = TumblingQuantiles(2, Fraction(18), ADD, (1,), (Fraction(9, 10),))
    twin = broken.SensitivityForgotten(2, Fraction(2), ADD, (1,), (Fraction(9, 10),))
    assert bounds(right, SILENT, 18, 1, 10).upper < SMALL
    assert bounds(twin, SILENT, 2, 1, 4).lower > HALF


@pytest.mark.parametrize(
    ("twin", "windows", "at"),
    [(broken.QuantilesFree, (1,), (HALF,) * 3), (broken.LengthsFree, (1, 1, 1), (HALF,))],
)
def test_choices_at_the_whole_budget_are_caught(
    twin: type[TumblingQuantiles], windows: tuple[int, ...], at: tuple[Fraction, ...]
) -> None:
    right = TumblingQuantiles(2, Fraction(6), ADD, windows, at)
    assert bounds(right, ONE, 6, 1, 2).upper < LARGE
    assert bounds(twin(2, Fraction(2), ADD, windows, at), ONE, 2, 1, 3).lower > 0


def test_a_window_that_leaks_into_the_next_is_caught() -> None:
    """Each window costs half of epsilon 2 with two buckets: three of them more than all of it."""
    right = TumblingQuantiles(2, Fraction(2), ADD, (1,), (HALF,))
    twin = broken.LeaksOn(2, Fraction(2), ADD, (1,), (HALF,))
    assert bounds(right, SILENT, 1, 4, 3).upper < SMALL
    assert bounds(twin, SILENT, 2, 4, 3).lower > 0


def test_the_same_flips_for_two_quantiles_are_caught() -> None:
    """They tell apart what independent ones hide: some pairs of buckets come up in one of two neighbours only."""
    right = TumblingQuantiles(2, Fraction(8), ADD, (1,), (THIRD, TWO_THIRDS))
    twin = broken.SameFlips(2, Fraction(8), ADD, (1,), (THIRD, TWO_THIRDS))
    assert bounds(right, SILENT, 8, 1, 4).upper < Fraction(1, 1_000)
    assert bounds(twin, SILENT, 8, 1, 11).lower > SMALL


def test_quantiles_chosen_together_meet_their_claim_over_windows() -> None:
    """Three tuples of two buckets, windows of two ticks; noise for the quantile that moves least is caught."""
    right = TumblingQuantiles(2, Fraction(4), ADD, (2,), (THIRD, TWO_THIRDS), 0, True)
    assert bounds(right, SILENT, 4, 4, 4).upper < LARGE
    assert bounds(right, SILENT, 1, 2, 4).lower > 0
    uneven = (HALF, Fraction(9, 10))
    right = TumblingQuantiles(2, Fraction(18), ADD, (1,), uneven, 0, True)
    assert bounds(right, SILENT, 18, 1, 18).upper < SMALL
    twin = broken.SmallestMove(2, Fraction(2), ADD, (1,), uneven, 0, True)
    assert bounds(twin, SILENT, 2, 1, 4).lower > LARGE
