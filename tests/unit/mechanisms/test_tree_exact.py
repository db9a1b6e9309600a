"""The tree counters' noise, exactly: which answer uses which node, and the privacy that follows, at height 3 and more.

The linear map L from node noises to answers is read off the streaming code and compared with the dense oracle's. One
more event at step i adds s_i = [t >= i] to the counts; where an integer v_i with L v_i = s_i exists, shifting z by v_i
gives the same answers with a density ratio of at most e^(|v_i|_1 / scale) (Andersson, Pagh et al., arXiv 2408.07021).
At full capacity L is square, and the v_i as columns turn it into the triangle of ones: so both are invertible, each v_i
is the only one, and the loss is |v_i|_1 / scale, neither more nor less. Height 2 would prove nothing: there only the
lowest window ever changes.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from oracles import tree as oracle
from oracles import tree_privacy as privacy
from unit.mechanisms import broken_trees as broken
from unit.mechanisms.symbolic_noise import Coefficients, LinearMap, Symbols, dense, places

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.tree import TreeNoise, TreeShape

SCALE = Fraction(7, 2)
SHAPES = [(3, 3), (3, 4), (5, 3), (3, 5)]
TWINS = [
    broken.LowestWindowOnly,
    broken.HighestChangedForgotten,
    broken.OneLevelNeverRedrawn,
    broken.WindowHandedDown,
    broken.SameLevelTwice,
]


def streamed(kind: type[TreeNoise], shape: TreeShape, steps: int) -> LinearMap:
    """The map of a tree's values at prefixes 1 to `steps`."""

    def play(width: int, noise: Symbols) -> Iterator[IntArray]:
        tree = kind(shape, SCALE, width)
        state = tree.init(noise)
        assert not tree.value(state).any()
        for _ in range(steps):
            state = tree.advance(state, noise)
            yield tree.value(state)

    return LinearMap.streamed(play)


def expected(shape: TreeShape, steps: int) -> tuple[LinearMap, Coefficients]:
    """The oracle's map, and the shifts v_1 .. v_steps as columns: 1 at every node that holds the step."""
    rows = [oracle.terms(t, shape.arity, shape.height) for t in range(1, steps + 1)]
    nodes = sorted({node for row in rows for node in row})
    matrix, scales = dense(rows, nodes), [SCALE] * len(nodes)
    shifts = [privacy.canonical_shift(nodes, shape.arity, i) for i in range(1, steps + 1)]
    order = places(matrix, scales)
    return LinearMap.of(matrix, scales), np.array(shifts, dtype=np.int8).T[order]


def check_structure(kind: type[TreeNoise], shape: TreeShape, steps: int) -> LinearMap:
    """Each answer uses the nodes of its digits, and each node has one noise, drawn once, at one scale."""
    found, right = streamed(kind, shape, steps), expected(shape, steps)[0]
    assert found.scales == right.scales
    assert np.array_equal(found.matrix, right.matrix)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_answer_uses_the_nodes_of_its_digits(shape: tuple[int, int]) -> None:
    check_structure(TreeNoise, TreeShape(*shape), oracle.capacity(*shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_exactly_height_over_scale(shape: tuple[int, int]) -> None:
    tree = TreeShape(*shape)
    steps = tree.capacity
    found, shifts = streamed(TreeNoise, tree, steps), expected(tree, steps)[1]
    square = (steps, steps)
    assert found.matrix.shape == shifts.shape == square
    triangle = np.tril(np.ones(square, dtype=np.int64))
    assert np.array_equal(found.matrix.astype(np.int64) @ shifts, triangle)
    norms = np.abs(shifts.astype(np.int64)).sum(axis=0)
    assert max(norms.tolist()) == tree.height
    assert set(found.scales) == {SCALE}


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (5, 3)])
@pytest.mark.parametrize("twin", TWINS)
def test_a_tree_that_uses_a_noise_twice_is_caught(
    twin: type[TreeNoise], shape: tuple[int, int]
) -> None:
    with pytest.raises(AssertionError):
        check_structure(twin, TreeShape(*shape), oracle.capacity(*shape))


def test_height_two_shows_none_of_it() -> None:
    """Why the shapes above are as high as they are."""
    check_structure(broken.LowestWindowOnly, TreeShape(5, 2), 12)


def test_a_window_that_stays_has_no_finite_loss() -> None:
    """No shift of the noise explains one more event: some combination of answers holds no noise, but the event."""
    found = streamed(broken.LowestWindowOnly, TreeShape(3, 3), 13)
    scale = float(SCALE)
    with pytest.raises(ArithmeticError):
        privacy.loss_bracket(found.matrix.astype(np.int64), scale)
    right = streamed(TreeNoise, TreeShape(3, 3), 13).matrix.astype(np.int64)
    assert privacy.loss_bracket(right, scale) == pytest.approx((3 / scale, 3 / scale))


@pytest.mark.parametrize(
    ("horizon", "relation"), [(300, Neighbors.REPLACE), (1_000, Neighbors.ADD_REMOVE)]
)
def test_a_counter_is_its_counts_and_its_tree(horizon: int, relation: Neighbors) -> None:
    """With the shape it chooses itself (at 1,000 of height 3); nothing but its counts and the right nodes."""
    epsilon = Fraction(1, 3)

    def play(width: int, noise: Symbols) -> Iterator[IntArray]:
        counter = Counter(width, epsilon, relation, horizon)
        state, total = counter.init(noise), np.zeros(width, dtype=np.int64)
        for t in range(horizon):
            row = (np.arange(width) + t) % 3
            total += row
            state, _ = counter.step(state, Update(row), noise)
            answer = counter.step(state, Query(), noise)[1]
            assert answer is not None
            yield answer - total

    shape = TreeShape(*oracle.best(horizon))
    found, (right, shifts) = LinearMap.streamed(play), expected(shape, horizon)
    assert np.array_equal(found.matrix, right.matrix)
    assert set(found.scales) == {shape.height * relation.l0(2) / epsilon}
    moved = found.matrix.astype(np.float32) @ shifts.astype(np.float32)
    assert np.array_equal(moved, np.tril(np.ones_like(moved)))
    assert int(np.abs(shifts).sum(axis=0).max()) == shape.height
