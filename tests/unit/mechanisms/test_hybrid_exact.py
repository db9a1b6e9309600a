"""The hybrid counter's noise, exactly: each epoch has a tree of its own and the totals one, far beyond 2^10 updates.

As for the tree counters (test_tree_exact.py) the linear map from node noises to answers is read off the streaming code
and compared with the dense oracle's, scales included. The shift that explains one more event is 1 at the nodes of its
epoch's tree that hold it, and at those of the tree of totals that hold its epoch: norms h / scale at both, which add up
to the whole epsilon of a column.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pytest
from oracles import tree as oracle
from unit.mechanisms import broken_trees as broken
from unit.mechanisms.symbolic_noise import LinearMap, Symbols, dense, places

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hybrid_counter import TOTALS_SHARE, HybridCounter, HybridState
from stream_dp.mechanisms.tree import TreeShape, TreeState

Node: TypeAlias = tuple[int, int, int]  # epoch (-1: the tree of totals), level, index
EPSILON = Fraction(2, 3)
TOTALS = (9, 2)
BEYOND = (1 << 11) + 40  # into epoch 11
TWINS = [broken.TotalsStay, broken.TotalsDrawnAnew, broken.InnerNoiseAgain]


def streamed(kind: type[HybridCounter], updates: int) -> LinearMap:
    """The map of the answers after 1 to `updates` updates."""

    def play(width: int, noise: Symbols) -> Iterator[IntArray]:
        counter = kind(width, EPSILON, Neighbors.ADD_REMOVE)
        state, total = counter.init(noise), np.zeros(width, dtype=np.int64)
        for t in range(updates):
            row = (np.arange(width) + t) % 3
            total += row
            state, _ = counter.step(state, Update(row), noise)
            yield answered(counter, state) - total

    return LinearMap.streamed(play)


def stops(shape: TreeShape, epoch: int) -> list[int]:
    """Prefixes of an epoch's tree that between them use its first window whole, and the one after it."""
    half = shape.arity // 2
    return sorted({n for n in (1, half, half + 1) if n <= 1 << epoch})


def leaping(kind: type[HybridCounter], epochs: int) -> LinearMap:
    """The map of the answers at the `stops` of each epoch but the first; what lies between is leapt over.

    No window changes up to the second stop, so the states there are those of a counter that took every step.
    """

    def play(width: int, noise: Symbols) -> Iterator[IntArray]:
        counter = kind(width, EPSILON, Neighbors.ADD_REMOVE)
        silent = Update(np.zeros(width, dtype=np.int64))
        state = counter.init(noise)
        for epoch in range(1, epochs):
            state = at(state, 1 << state.epoch)
            for stop in stops(counter.inner(epoch).shape, epoch):
                state = state if stop == 1 else at(state, stop - 1)
                state, _ = counter.step(state, silent, noise)
                assert (state.epoch, state.inner.prefix) == (epoch, stop)
                yield answered(counter, state)

    return LinearMap.streamed(play)


def at(state: HybridState, prefix: int) -> HybridState:
    """The state with its epoch's tree at another prefix."""
    return replace(state, inner=TreeState(prefix, state.inner.windows))


def answered(counter: HybridCounter, state: HybridState) -> IntArray:
    """What it answers; a query changes nothing and draws nothing."""
    after, answer = counter.step(state, Query(), Symbols(0))
    assert after is state
    assert answer is not None
    return answer


def scale_of(node: Node, heights: Mapping[int, int]) -> Fraction:
    """A node's scale: the height of its tree over the tree's share of epsilon."""
    if node[0] < 0:
        return TOTALS[1] / (TOTALS_SHARE * EPSILON)
    return heights[node[0]] / ((1 - TOTALS_SHARE) * EPSILON)


def check_structure(kind: type[HybridCounter], updates: int) -> None:
    """Every answer uses the nodes that the oracle says, each drawn once, at its tree's scale."""
    rows = [oracle.hybrid_terms(t, TOTALS) for t in range(1, updates + 1)]
    nodes: list[Node] = sorted({node for row in rows for node in row})
    heights = {e: oracle.best(1 << e)[1] for e in range(updates.bit_length())}
    scales = [scale_of(node, heights) for node in nodes]
    check_same(streamed(kind, updates), LinearMap.of(dense(rows, nodes), scales))


def check_leaps(kind: type[HybridCounter], epochs: int) -> None:
    """Every answer uses the nodes of its epoch's tree, and those of the totals of the epochs before it."""
    counter = HybridCounter(1, EPSILON, Neighbors.ADD_REMOVE)
    shapes = {epoch: counter.inner(epoch).shape for epoch in range(epochs)}
    rows: list[dict[Node, int]] = []
    for epoch in range(1, epochs):
        totals = {(-1, *node): sign for node, sign in oracle.terms(epoch, *TOTALS).items()}
        for stop in stops(shapes[epoch], epoch):
            inside = oracle.terms(stop, shapes[epoch].arity, shapes[epoch].height)
            rows.append(totals | {(epoch, *node): sign for node, sign in inside.items()})
    nodes = sorted({node for row in rows for node in row})
    heights = {epoch: shape.height for epoch, shape in shapes.items()}
    scales = [scale_of(node, heights) for node in nodes]
    check_same(leaping(kind, epochs), LinearMap.of(dense(rows, nodes), scales))


def check_same(found: LinearMap, right: LinearMap) -> None:
    """The same map, draw by draw."""
    assert found.scales == right.scales
    assert np.array_equal(found.matrix, right.matrix)


def test_every_answer_uses_the_nodes_of_its_epoch_and_of_the_totals() -> None:
    check_structure(HybridCounter, BEYOND)


def test_every_epoch_has_its_own_noise_up_to_the_last() -> None:
    check_leaps(HybridCounter, 41)


@pytest.mark.parametrize("twin", TWINS)
def test_a_hybrid_that_uses_a_noise_twice_or_none_is_caught(twin: type[HybridCounter]) -> None:
    with pytest.raises(AssertionError):
        check_structure(twin, 40)
    with pytest.raises(AssertionError):
        check_leaps(twin, 20)


def test_one_event_costs_the_epsilon_of_its_column() -> None:
    """The shift of events around the ends of all epochs, checked against every later answer; its cost is epsilon."""
    rows = [oracle.hybrid_terms(t, TOTALS) for t in range(1, BEYOND + 1)]
    nodes: list[Node] = sorted({node for row in rows for node in row})
    heights = {e: oracle.best(1 << e)[1] for e in range(BEYOND.bit_length())}
    scales = [scale_of(node, heights) for node in nodes]
    matrix, found = dense(rows, nodes), streamed(HybridCounter, BEYOND)
    order = places(matrix, scales)
    ends = [1 << e for e in range(1, BEYOND.bit_length())]
    steps = sorted({u for end in ends for u in (end - 1, end, end + 1, end + end // 3)} - {0})
    steps = [u for u in steps if u <= BEYOND]
    shifts = np.array([shift(u, nodes) for u in steps], dtype=np.float32).T[order]
    moved = found.matrix.astype(np.float32) @ shifts
    after = np.arange(1, BEYOND + 1)[:, None] >= np.array(steps)[None, :]
    assert np.array_equal(moved, after.astype(np.float32))
    losses = [
        sum((1 / s for s, v in zip(found.scales, column, strict=True) if v), Fraction(0))
        for column in shifts.T.tolist()
    ]
    assert max(losses) == EPSILON


def shift(update: int, nodes: list[Node]) -> list[int]:
    """1 at every node that holds this update (counted from 1)."""
    epoch = update.bit_length() - 1
    inside, (arity, _) = update - (1 << epoch), oracle.best(1 << epoch)
    return [
        int(index == (epoch // TOTALS[0] ** level if of < 0 else inside // arity**level))
        if of in (-1, epoch)
        else 0
        for of, level, index in nodes
    ]
