"""A small forest of sums and its broken twins, all noise enumerated: the exact certificate of the real code.

One unit of epsilon is -ln(BASE). Amounts of several weights and of both signs, events that are there or not and that
are replaced, lists, and all events of a user under a cap (accounting rule Group).
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from oracles.event_contents import neighbouring_rows
from oracles.turns import Turns
from unit.mechanisms import broken_sum_forests as broken

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import SumForest
from stream_dp.mechanisms.linear.windows_and_ever import SumsAndEver
from stream_dp.verify.exact.enumeration import Enumerated
from stream_dp.verify.exact.exact_delta import Bracket, delta_bracket

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, BASE = Fraction(1, 2), Fraction(1, 64)
PAIRS = ForestShape((2,), (HALF, HALF))
ENOUGH, LITTLE = Fraction(1, 4), Fraction(1, 20)


def turns(relation: Neighbors, *setting: int) -> Turns:
    """Empty rows, and once any pair that one event makes."""
    pairs = {pair for pair in neighbouring_rows(relation, *setting) if pair[0] != pair[1]}
    return Turns(((0,) * setting[0],), tuple(sorted(pairs)))


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


AMOUNTS = [(0, 2), (-2, 1), (-1, 2), (1, 2), (-2, -1)]


@pytest.mark.parametrize(("lowest", "highest"), AMOUNTS)
def test_single_ticks_meet_their_claim(lowest: int, highest: int) -> None:
    """Two ticks, windows of one and of two; the event in any of them, with any amount."""
    made = SumForest(1, Fraction(2), ADD, (1, 2), FLAT, lowest, highest)
    assert met(made, turns(ADD, 1, 1, lowest, highest), 2, 2, 3)


@pytest.mark.parametrize(("lowest", "highest"), AMOUNTS)
def test_replaced_amounts_meet_their_claim(lowest: int, highest: int) -> None:
    """One amount for another, or for nothing: the span, where signs differ, and the weight where they do not."""
    made = SumForest(
        1, Fraction(3 if lowest < 0 < highest else 2), REPLACE, (1,), FLAT, lowest, highest
    )
    assert made.l1 == made.epsilon
    assert met(made, turns(REPLACE, 1, 1, lowest, highest), int(made.epsilon), 2, 4)


def test_two_levels_meet_their_claim() -> None:
    """The largest amount, in either of two ticks."""
    made = SumForest(1, Fraction(4), ADD, (1, 2), PAIRS, -2, 1)
    assert met(made, Turns(((0,),), (((0,), (-2,)), ((-2,), (0,)))), 4, 2, 4)


@pytest.mark.parametrize(
    ("relation", "ones", "highest", "l1"), [(REPLACE, 1, 2, 4), (ADD, 2, 2, 4), (REPLACE, 2, 1, 4)]
)
def test_two_entries_meet_their_claim(
    relation: Neighbors, ones: int, highest: int, l1: int
) -> None:
    """An amount that moves to another key, one at two keys, and one of another sign at both."""
    made = SumForest(2, Fraction(l1), relation, (1,), FLAT, -1, highest, ones)
    assert made.l1 == l1
    assert met(made, turns(relation, 2, ones, -1, highest), l1, 1, 3)


def test_windows_with_the_sum_so_far_meet_their_claim() -> None:
    """Both see the row: two units for the windows, two for the sum so far."""
    sums = SumForest(1, Fraction(2), ADD, (1,), FLAT, -1, 2)
    made = SumsAndEver(sums, SumCounter(1, Fraction(2), ADD, 1, -1, 2))
    assert met(made, turns(ADD, 1, 1, -1, 2), 4, 1, 4)


@dataclass(frozen=True)
class UserTurns(Turns):
    """Pairs of rows that a user's events make in a tick, until `left` events are spent; `spent`: how many each has."""

    left: int = 2
    spent: tuple[int, ...] = ()

    def moves(self) -> Any:
        """The pairs allowed next."""
        after = replace(self, query=not self.query)
        if self.query:
            yield from (((level, level), after) for level in self.levels)
            return
        yield from (((row, row), after) for row in self.rows)
        for pair, events in zip(self.moved, self.spent, strict=True):
            if events <= self.left:
                yield pair, replace(after, left=self.left - events)


def user_turns(k: int, lowest: int, highest: int) -> UserTurns:
    """All that up to k events of one user may add to a tick, on one side."""
    pairs: dict[Any, int] = {}
    for events in range(1, k + 1):
        for each in product(range(lowest, highest + 1), repeat=events):
            for pair in (((sum(each),), (0,)), ((0,), (sum(each),))):
                pairs.setdefault(pair, events)
    told = {pair: events for pair, events in pairs.items() if pair[0] != pair[1]}
    return UserTurns(((0,),), tuple(told), left=k, spent=tuple(told.values()))


def test_two_events_of_a_user_cost_twice_and_no_less() -> None:
    """Rule Group: all in one tick, or one in each; so a file gives the mechanism a half of the series' epsilon."""
    made = SumForest(1, Fraction(2), ADD, (1, 2), FLAT, -1, 2)
    pairs = user_turns(2, -1, 2)
    assert bounds(made, pairs, 4, 2, 5).upper < LITTLE
    assert bounds(made, pairs, 3, 2, 5).lower > ENOUGH
    one = user_turns(1, -1, 2)
    assert bounds(made, one, 2, 2, 5).upper < LITTLE


@pytest.mark.parametrize(
    ("twin", "relation", "setting"),
    [
        (broken.ForestOfOnes, ADD, (1, 1, 0, 2)),
        (broken.ForestAsAdded, REPLACE, (1, 1, -1, 1)),
        (broken.ForestAsAdded, REPLACE, (2, 1, 0, 1)),
        (broken.ForestOfOneEntry, ADD, (2, 2, 0, 1)),
        (broken.ForestOfRanges, REPLACE, (1, 1, 1, 2)),
        (broken.FirstNodeBare, ADD, (1, 1, -1, 1)),
    ],
)
def test_a_twin_does_not_meet_its_claim(
    twin: type[SumForest], relation: Neighbors, setting: tuple[int, ...]
) -> None:
    """The same units with which the right one meets it."""
    width, ones, lowest, highest = setting
    right = SumForest(width, Fraction(2), relation, (1,), FLAT, lowest, highest, ones)
    made = twin(width, Fraction(right.l1), relation, (1,), FLAT, lowest, highest, ones)
    pairs = turns(relation, *setting)
    right = replace(right, epsilon=Fraction(right.l1))
    assert bounds(right, pairs, right.l1, 1, 4).upper < LITTLE
    assert bounds(made, pairs, right.l1, 1, 4).lower > ENOUGH


def test_levels_at_the_whole_budget_are_caught() -> None:
    made = broken.ForestOfWholeBudgets(1, Fraction(2), ADD, (1, 2), PAIRS, 0, 2)
    assert bounds(made, turns(ADD, 1, 1, 0, 2), 2, 2, 3).lower > ENOUGH
