"""Small sums beside counts and their broken twins, all noise enumerated: the exact certificate of the real code.

One unit of epsilon is -ln(BASE). Rows are what raw records add: an amount beyond the middle of the clamp, and 1.
"""

from fractions import Fraction
from typing import Any

import pytest
from oracles.mean_contents import pairs
from oracles.turns import Turns
from unit.mechanisms.broken_means import BareCounts, ScaleOfCounts, WholeForBoth

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.sums_and_counts import SumsAndCounts
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
ENOUGH, LITTLE = Fraction(1, 4), Fraction(1, 20)
Clamp = tuple[int, int]


def bounds(made: Any, pairs: Any, units: Fraction | int, ticks: int, radius: int) -> Bracket:
    """The bracket at a claim of `units` of epsilon; e^epsilon is a whole power of 1 / BASE or of its root 8."""
    return delta_bracket(
        Enumerated(made, BASE, radius), pairs, Fraction(8) ** int(2 * units), 2 * ticks
    )


def met(made: Any, pairs: Any, units: int, ticks: int, radius: int) -> bool:
    """Whether the claim is met, but for the mass beyond the radius, and half a unit less is not."""
    upper = bounds(made, pairs, units, ticks, radius).upper
    lower = bounds(made, pairs, units - HALF, ticks, radius).lower
    return upper < LITTLE and lower > ENOUGH


def made(
    relation: Neighbors,
    keys: int,
    ones: int,
    clamp: Clamp,
    units: tuple[int, int],
    kinds: tuple[type[SumsAndCounts], type[SumForest]] = (SumsAndCounts, SumForest),
    windows: tuple[int, ...] = (1,),
) -> SumsAndCounts:
    both, kind = kinds
    middle = sum(clamp) // 2
    low, high = (bound - middle for bound in clamp)
    sums = kind(keys, Fraction(units[0]), relation, windows, FLAT, low, high, ones)
    counts = WindowForest(keys, Fraction(units[1]), relation, windows, FLAT, ones)
    return both(sums, counts)


def turns(relation: Neighbors, *setting: int, centred: bool = True) -> Turns:
    """Empty rows, and once any pair that one record makes."""
    return Turns(((0,) * (2 * setting[0]),), pairs(relation, *setting, centred=centred))


CLAMPS = [((4, 6), (1, 2)), ((-9, -5), (2, 1))]


@pytest.mark.parametrize(("clamp", "units"), CLAMPS)
def test_a_record_more_or_less_meets_the_claim_and_no_smaller_one(
    clamp: Clamp, units: tuple[int, int]
) -> None:
    """The record in a tick, with any amount or none: at an end of the clamp it costs all of both."""
    both = made(ADD, 1, 1, clamp, units)
    assert met(both, turns(ADD, 1, 1, *clamp), sum(units), 1, 3)


def test_a_replaced_record_meets_the_claim() -> None:
    """One amount for another changes the sums by the whole range and no count; for none, by half of it and one count:
    never both at once, so of three units two are lost.
    """
    both = made(REPLACE, 1, 1, (0, 2), (2, 1))
    moved = turns(REPLACE, 1, 1, 0, 2)
    assert bounds(both, moved, 2, 1, 4).upper < LITTLE
    assert bounds(both, moved, 2 - HALF, 1, 4).lower > ENOUGH


@pytest.mark.parametrize(
    ("relation", "ones", "pair"),
    [(REPLACE, 1, ((1, 0, 1, 0), (0, 1, 0, 1))), (ADD, 2, ((1, 1, 1, 1), (0, 0, 0, 0)))],
)
def test_two_keys_meet_the_claim(relation: Neighbors, ones: int, pair: Any) -> None:
    """A record that moves to another key, and one at two keys: what costs most of all that records do.

    With four noises a radius of 1 leaves 6 % out; that no smaller claim holds is in test_sum_exact.
    """
    both = made(relation, 2, ones, (0, 2), (2, 2))
    assert pair in pairs(relation, 2, ones, 0, 2)
    moved = Turns(((0,) * 4,), (pair, pair[::-1]))
    assert bounds(both, moved, 4, 1, 1).upper < Fraction(1, 10)
    assert bounds(both, moved, 4 - HALF, 1, 1).upper > HALF


def test_a_mean_so_far_meets_the_claim() -> None:
    sums = SumCounter(1, Fraction(1), ADD, 1, -1, 1)
    assert met(
        SumsAndCounts(sums, Counter(1, Fraction(1), ADD, 1)), turns(ADD, 1, 1, 3, 5), 2, 1, 3
    )


TWINS: dict[str, tuple[Any, bool]] = {
    "sums at the scale of counts": ((SumsAndCounts, ScaleOfCounts), True),
    "the middle is forgotten": ((SumsAndCounts, SumForest), False),
    "bare counts": ((BareCounts, SumForest), True),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_does_not_meet_its_claim(name: str) -> None:
    kinds, centred = TWINS[name]
    clamp, units = (3, 7), (2, 1)
    right = made(ADD, 1, 1, clamp, units)
    assert bounds(right, turns(ADD, 1, 1, *clamp), 3, 1, 4).upper < LITTLE
    twin = made(ADD, 1, 1, clamp, units, kinds)
    moved = turns(ADD, 1, 1, *clamp, centred=centred)
    assert bounds(twin, moved, 3, 1, 4).lower > ENOUGH


def test_the_whole_epsilon_for_both_is_caught() -> None:
    twin = made(ADD, 1, 1, (0, 2), (1, 1), (WholeForBoth, SumForest))
    claimed = differential_privacy(twin.guarantee.measure).epsilon
    assert claimed == 1
    assert bounds(twin, turns(ADD, 1, 1, 0, 2), claimed, 1, 4).lower > ENOUGH
