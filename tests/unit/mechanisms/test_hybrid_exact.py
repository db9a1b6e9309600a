"""The hybrid counter's noise, exactly: each epoch has a tree of its own and the totals one, far beyond 2^10 updates.

As for the tree counters (test_tree_exact.py) an event is a shift of the node noises (`shifted_noise`): by 1 at the
nodes of its epoch's tree that hold it, and at those of the tree of totals that hold its epoch. Its cost, h / scale at
both, adds up to the whole epsilon of a column.
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

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.linear.counter import TOTALS_SHARE, HybridCounter
from stream_dp.mechanisms.linear.tree import TreeShape
from stream_dp.mechanisms.noise_quantiles import sum_variance

EPSILON = Fraction(2, 3)
TOTALS = (8, 2)
BEYOND = (1 << 11) + 40  # into epoch 11
TWINS = [broken.TotalsStay, broken.TotalsDrawnAnew, broken.InnerNoiseAgain]


def shape_of(epoch: int) -> tuple[int, int]:
    """The epoch's tree."""
    shape = TreeShape.best(1 << epoch)
    return shape.arity, shape.height


def totals_drawn(epoch: int) -> Iterator[Drawn]:
    """What the tree of totals draws with its item `epoch` (from 0): nodes that cover the steps of whole epochs."""
    scale = TOTALS[1] / (TOTALS_SHARE * EPSILON)
    for node in oracle.drawn_with(*TOTALS, epoch):
        first, last = oracle.first_and_last(node, TOTALS[0])  # epochs, counted from 1
        yield Drawn(scale, 1 << (first - 1), (1 << last) - 1)


def inner_drawn(epoch: int, item: int) -> Iterator[Drawn]:
    """What an epoch's tree draws with its item (from 0)."""
    shape, before = shape_of(epoch), (1 << epoch) - 1
    scale = shape[1] / ((1 - TOTALS_SHARE) * EPSILON)
    for node in oracle.drawn_with(*shape, item):
        first, last = oracle.first_and_last(node, shape[0])
        yield Drawn(scale, before + first, min(before + last, 2 * before + 1))


def nodes(updates: int) -> Iterator[Drawn]:
    """All that is drawn, in order."""
    yield from inner_drawn(0, 0)
    yield from totals_drawn(0)
    for update in range(2, updates + 1):
        epoch = update.bit_length() - 1
        if update == 1 << epoch and epoch > 1:
            yield from totals_drawn(epoch - 1)
        yield from inner_drawn(epoch, update - (1 << epoch))


def around(ends: list[int], most: int) -> IntArray:
    """Steps at and around the ends of epochs, and between."""
    near = {step for end in ends for step in (end - 1, end, end + 1, end + end // 3)}
    return np.array(sorted(step for step in near if 1 <= step <= most))


def check(kind: type[HybridCounter], updates: int) -> Shifted:
    """Events around the ends of all epochs, against every answer."""
    events = around([1 << e for e in range(updates.bit_length())], updates)
    return check_counter(
        lambda width: kind(width, EPSILON, Neighbors.ADD_REMOVE), nodes(updates), updates, events
    )


def test_an_event_is_a_shift_that_costs_the_epsilon_of_its_column() -> None:
    noise = check(HybridCounter, BEYOND)
    assert {noise.cost(step) for step in noise.steps.tolist()} == {EPSILON}


@pytest.mark.parametrize("twin", TWINS)
def test_a_hybrid_that_uses_a_noise_twice_or_none_is_caught(twin: type[HybridCounter]) -> None:
    with pytest.raises(AssertionError):
        check(twin, 40)


def test_every_epoch_has_its_own_noise_up_to_the_last() -> None:
    """What lies between the first two updates of an epoch and its end is leapt over; no window would change."""
    events = np.array([1])
    noise = Shifted(iter(leaping()), events)
    counter = HybridCounter(2, EPSILON, Neighbors.ADD_REMOVE)
    silent, state = Update(np.zeros(2, dtype=np.int64)), counter.init(noise)
    for epoch in range(1, 41):
        state = replace(state, inner=replace(state.inner, prefix=1 << (epoch - 1)))
        state, _ = counter.step(state, silent, noise)
        assert (state.epoch, state.inner.prefix) == (epoch, 1)
        _, answer = counter.step(state, Query(), noise)
        assert answer is not None
        assert answer[1] - answer[0] == 1
    state = replace(state, inner=replace(state.inner, prefix=1 << 40))
    with pytest.raises(RejectedMessage, match="create a new one"):
        counter.step(state, silent, noise)


def leaping() -> Iterator[Drawn]:
    """What is drawn at the beginnings of epochs."""
    yield from inner_drawn(0, 0)
    yield from totals_drawn(0)
    for epoch in range(1, 41):
        yield from totals_drawn(epoch - 1) if epoch > 1 else ()
        yield from inner_drawn(epoch, 0)


@pytest.mark.parametrize(("updates", "error"), [(2**10, 17.0), (2**16, 29.1)])
def test_the_errors_at_epsilon_one(updates: int, error: float) -> None:
    """RMSE over all prefixes; without the decoding it was 20.4 and 37.7."""
    counter = HybridCounter(1, Fraction(1), Neighbors.ADD_REMOVE)
    prefixes = range(1, updates + 1, 1 if updates < 5_000 else 37)
    found = [sum_variance(tuple(counter.noise_terms(t))) for t in prefixes]
    assert math.sqrt(np.mean(found)) == pytest.approx(error, abs=0.15)
