"""The hand-over counter's noise, exactly, across all hand-overs; and where it is better than the hybrid counter.

As for the tree counters (test_tree_exact.py) an event is a shift of the node noises (`shifted_noise`): by 1 at the
nodes of its own tree that hold it, and at none of the trees before and after. Its cost is h / scale: the whole epsilon
of a column.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from oracles import decoded_tree as oracle
from unit.mechanisms import broken_trees as broken
from unit.mechanisms.shifted_noise import Drawn, Shifted, check_counter

from stream_dp.core.mechanism import IntArray, Message, Noise, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.linear.counter import (
    LAST_TREE,
    HandOverCounter,
    HandOverSchedule,
    HandOverState,
    HybridCounter,
)
from stream_dp.mechanisms.linear.tree import TreeShape
from stream_dp.mechanisms.noise_quantiles import sum_variance
from stream_dp.testing.noise import ZeroNoise

EPSILON, ONE = Fraction(2, 3), Fraction(1)
SCHEDULE = HandOverCounter.schedule
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
TWO = 64 + 256  # updates before the second hand-over
BEYOND = TWO + 120
TWINS = [broken.BaseForgotten, broken.OldWindow, broken.StartsLate]


class Hasty(HandOverCounter):
    """The counter with trees of three updates each, which comes to every tree that there may be."""

    schedule = HandOverSchedule(3, 1)


class LateBaseForgotten(Hasty):
    """Broken: what tree 9 answered last is exact from then on."""

    def step(
        self, state: HandOverState, message: Message, noise: Noise
    ) -> tuple[HandOverState, IntArray | None]:
        """The base stays where it was at this one hand-over."""
        after, answer = super().step(state, message, noise)
        return (replace(after, base=state.base) if after.number == 10 else after), answer


def nodes(
    updates: int, epsilon: Fraction, schedule: HandOverSchedule = SCHEDULE
) -> Iterator[Drawn]:
    """All that is drawn, in order: each tree's nodes, which end with the tree's last update."""
    for update in range(1, updates + 1):
        number, item = (0, 0) if update == 1 else schedule.place(update)
        before = update - max(item, 1)
        shape = TreeShape.best(schedule.size(number))
        arity, height = shape.arity, shape.height
        for node in oracle.drawn_with(arity, height, max(item, 1) - 1):
            first, last = oracle.first_and_last(node, arity)
            end = min(last, schedule.size(number))
            yield Drawn(height / epsilon, before + first, before + end)


def check(kind: type[HandOverCounter], updates: int, relation: Neighbors = ADD) -> Shifted:
    """Events around the hand-overs and between, against every answer."""
    near = {e + d for e in (1, 64, TWO) for d in (-1, 0, 1, 2, 30)} | {200, updates - 1, updates}
    events = np.array(sorted(step for step in near if 1 <= step <= updates))
    each = EPSILON / relation.l0(len(events) + 1)
    return check_counter(
        lambda width: kind(width, EPSILON, relation), nodes(updates, each), updates, events
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_an_event_is_a_shift_that_costs_the_epsilon_of_its_column(relation: Neighbors) -> None:
    noise = check(HandOverCounter, BEYOND, relation)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON / relation.l0(9)}


@pytest.mark.parametrize("twin", TWINS)
def test_a_hand_over_that_keeps_or_forgets_noise_is_caught(twin: type[HandOverCounter]) -> None:
    with pytest.raises(AssertionError):
        check(twin, BEYOND)


def check_all(kind: type[HandOverCounter]) -> Shifted:
    """An event at each update of all trees, against every answer."""
    updates = 3 * (LAST_TREE + 1)
    drawn = nodes(updates, EPSILON, Hasty.schedule)
    return check_counter(
        lambda width: kind(width, EPSILON, ADD), drawn, updates, np.arange(1, updates + 1)
    )


def test_every_hand_over_keeps_the_noise_of_the_tree_that_ends() -> None:
    noise = check_all(Hasty)
    assert {noise.cost(e) for e in noise.steps.tolist()} == {EPSILON}
    with pytest.raises(AssertionError, match="answer 31 moves otherwise"):
        check_all(LateBaseForgotten)


def test_places_are_the_trees_one_after_the_other() -> None:
    found = [SCHEDULE.place(t) for t in range(64 + 256 + 1024 + 2)]
    assert found[0] == (0, 0)
    assert found[64:66] == [(0, 64), (1, 1)]
    assert found[TWO : TWO + 2] == [(1, 256), (2, 1)]
    assert found[-1] == (3, 1)
    assert SCHEDULE.place(2**40)[0] <= 17


def test_the_last_tree_refuses_more_than_it_takes() -> None:
    counter = HandOverCounter(1, ONE, ADD)
    tree, zero = counter.tree(17), np.zeros(1, dtype=np.int64)
    full = tree.init(ZeroNoise())
    full = replace(full, prefix=SCHEDULE.size(17))
    with pytest.raises(RejectedMessage, match="create a new one"):
        counter.step(HandOverState(zero, 17, zero, full), Update(zero), ZeroNoise())


def deviation(counter: HandOverCounter | HybridCounter, updates: int) -> float:
    """Standard deviation of the answer, from its exact terms."""
    return math.sqrt(sum_variance(tuple(counter.noise_terms(updates))))


def test_the_errors_at_epsilon_one() -> None:
    counter = HandOverCounter(1, ONE, ADD)
    found = [deviation(counter, t) for t in (3, 8, 20, 50, 100, 300, 1_000, 4_000)]
    assert found == pytest.approx([4.25, 4.91, 5.60, 6.50, 10.53, 13.17, 17.97, 24.10], abs=0.02)


def test_it_beats_the_hybrid_for_long_but_not_at_every_number_of_updates() -> None:
    """Why an endless tree counter is the hybrid, and the counter inside of HSS is this one."""
    hand_over, hybrid = HandOverCounter(1, ONE, ADD), HybridCounter(1, ONE, ADD)
    worse = [t for t in range(2, 1_200) if deviation(hand_over, t) >= deviation(hybrid, t)]
    assert min(worse) == 256
    for far in (2**13, 2**16, 2**20, 2**30):
        assert deviation(hand_over, far) > deviation(hybrid, far)
    early = [deviation(hand_over, t) / deviation(hybrid, t) for t in range(2, 65)]
    assert np.mean(early) < 0.5
