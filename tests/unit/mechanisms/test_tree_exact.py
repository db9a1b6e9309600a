"""The tree counters' noise, exactly: which nodes are drawn when, the privacy that follows, and the decoding's quality.

Privacy: the shift of the node noises that stands for one event (`shifted_noise`), at every step, in the streaming code,
in integers; its cost is the height over the scale. Quality: the linear map of the streaming code, read off with large
unit vectors, is that of least squares (`oracles.decoded_tree`) within the rounding of gains.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import decoded_tree as oracle
from oracles import tree as walk
from unit.mechanisms import broken_trees as broken
from unit.mechanisms.shifted_noise import Drawn, check_counter, check_tree

from stream_dp.core.mechanism import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.tree import (
    FRACTION_BITS,
    TreeNoise,
    TreeShape,
    sampled,
    worst_prefix,
)
from stream_dp.mechanisms.noise_quantiles import sum_variance

SCALE = Fraction(7, 2)
SHAPES = [(2, 1), (3, 2), (2, 4), (3, 3), (4, 3), (5, 3), (3, 4), (14, 2)]
BIG = 1 << 20
TWINS = [
    broken.WindowStays,
    broken.WindowHandedDown,
    broken.TopStays,
    broken.TotalCountsMore,
    broken.SharesApart,
    broken.FloatEstimates,
    broken.ChildrenForgotten,
]


def steps_of(shape: tuple[int, int]) -> int:
    """Some way into the third of the highest nodes."""
    return 2 * int(shape[0] ** (shape[1] - 1)) + shape[0] + 1


def nodes(shape: tuple[int, int], steps: int, scale: Fraction = SCALE) -> Iterator[Drawn]:
    """What the tree must draw, in order."""
    for node in oracle.drawn(*shape, steps):
        yield Drawn(scale, *oracle.first_and_last(node, shape[0]))


def linear_map(shape: tuple[int, int], steps: int) -> NDArray[np.float64]:
    """L, shape (steps, draws): the values at large unit vectors of node noises."""
    number = len(oracle.drawn(*shape, steps))
    tree, units = TreeNoise(TreeShape(*shape), SCALE, number), Units(number)
    state, rows = tree.init(units), []
    for _ in range(steps):
        state = tree.advance(state, units)
        rows.append(tree.fine(state) / (BIG << FRACTION_BITS))
    assert units.drawn == number
    return np.array(rows)


class Units:
    """The n-th node drawn is BIG in column n and 0 elsewhere."""

    def __init__(self, width: int) -> None:
        self.width, self.drawn = width, 0

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The next unit vectors."""
        here = self.drawn + np.arange(size // self.width)
        self.drawn += len(here)
        units = here[:, None] == np.arange(self.width)
        return np.where(units, BIG, 0).astype(np.int64).reshape(-1)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Not drawn."""
        raise AssertionError

    gaussian = geometric


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_is_a_shift_of_the_noises_that_costs_height_over_scale(
    shape: tuple[int, int],
) -> None:
    steps = steps_of(shape)
    noise = check_tree(TreeNoise(TreeShape(*shape), SCALE, steps + 1), nodes(shape, steps), steps)
    assert {noise.cost(step) for step in range(1, steps + 1)} == {shape[1] / SCALE}


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 3), (5, 3)])
@pytest.mark.parametrize("twin", TWINS)
def test_a_tree_that_no_shift_explains_is_caught(
    twin: type[TreeNoise], shape: tuple[int, int]
) -> None:
    steps = steps_of(shape)
    with pytest.raises(AssertionError):
        check_tree(twin(TreeShape(*shape), SCALE, steps + 1), nodes(shape, steps), steps)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_decoding_is_least_squares(shape: tuple[int, int]) -> None:
    steps = steps_of(shape)
    found, best = linear_map(shape, steps), oracle.least_squares(*shape, steps)
    assert np.abs(found - best).max() < 2e-3
    variances = (best**2).sum(axis=1)
    np.testing.assert_allclose((found**2).sum(axis=1), variances, rtol=1e-5)
    stated = TreeShape(*shape).variances(np.arange(1, steps + 1))
    np.testing.assert_allclose(stated, variances, rtol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_stated_terms_are_the_weights_of_the_streaming_code(shape: tuple[int, int]) -> None:
    steps = steps_of(shape)
    found, tree = linear_map(shape, steps), TreeNoise(TreeShape(*shape), SCALE, 1)
    assert tree.terms(0) == [(SCALE, 0, 1.0)] or not tree.terms(0)
    for prefix in range(1, steps + 1):
        stated = [w for _, number, w in tree.terms(prefix) for _ in range(number)]
        used = np.sort(np.abs(found[prefix - 1]))[::-1]
        wanted = np.sort(np.array(stated))[::-1]
        assert np.abs(used[len(wanted) :]).max(initial=0) < 1e-5
        np.testing.assert_allclose(used[: len(wanted)], wanted, atol=1e-5)


@pytest.mark.parametrize(("shape", "steps"), [((3, 3), 25), ((4, 3), 60), ((7, 3), 160)])
def test_what_comes_later_would_help_by_less_than_two_percent(
    shape: tuple[int, int], steps: int
) -> None:
    of_all = (oracle.least_squares_of_all(*shape, steps) ** 2).sum(axis=1).mean()
    here = TreeShape(*shape).variances(np.arange(1, steps + 1)).mean()
    assert of_all <= here * (1 + 1e-9)
    assert math.sqrt(here / of_all) < 1.02


@pytest.mark.parametrize(("horizon", "error", "most"), [(2**10, 10.9, 13.8), (2**16, 20.5, 25.9)])
def test_the_errors_at_epsilon_one(horizon: int, error: float, most: float) -> None:
    """RMSE and largest standard deviation of the counter's own shape; a walk of one shape has 13.1 and 24.8."""
    counter = Counter(1, Fraction(1), Neighbors.ADD_REMOVE, horizon)
    shape, prefixes = counter.tree.shape, np.arange(1, horizon + 1)
    variances = shape.variances(prefixes) * 2 * shape.height**2
    assert math.sqrt(variances.mean()) == pytest.approx(error, abs=0.1)
    assert math.sqrt(variances.max()) == pytest.approx(most, abs=0.1)
    assert variances.mean() < 0.72 * walk.mse(*walk.best(horizon), horizon)[0]
    stated = sum_variance(tuple(counter.noise_terms(horizon)))
    assert stated == pytest.approx(variances[-1], rel=0.01)


def test_the_sample_stands_for_the_whole() -> None:
    for horizon in (3_000, 2**16):
        shape = TreeShape.best(horizon)
        variances = shape.variances(np.arange(1, horizon + 1))
        assert shape.variances(sampled(horizon)).mean() == pytest.approx(variances.mean(), rel=0.01)
        worst = variances[worst_prefix(shape, horizon) - 1]
        assert 0.97 * variances.max() <= worst <= variances.max()


@pytest.mark.parametrize(
    ("horizon", "relation", "ones"),
    [(300, Neighbors.REPLACE, 1), (700, Neighbors.ADD_REMOVE, 1), (300, Neighbors.ADD_REMOVE, 3)],
)
def test_a_counter_is_its_counts_and_its_tree(horizon: int, relation: Neighbors, ones: int) -> None:
    """With the shape it chooses itself; an event costs each of L0 columns epsilon / L0."""
    epsilon, events = Fraction(1, 3), np.arange(1, horizon + 1)
    l0 = relation.l0(len(events) + 1, ones)
    shape = TreeShape.best(horizon)
    wanted = nodes((shape.arity, shape.height), horizon, shape.height * l0 / epsilon)
    noise = check_counter(
        lambda width: Counter(width, epsilon, relation, horizon, ones), wanted, horizon, events
    )
    assert {noise.cost(step) for step in (1, 2, horizon)} == {epsilon / l0}


def test_noise_too_wide_for_64_bits_is_refused() -> None:
    assert Counter(1, Fraction(1, 10**6), Neighbors.REPLACE, 2**20).tree.scale > 10**6
    with pytest.raises(NotDerivable, match="too wide for 64 bits"):
        _ = Counter(1, Fraction(1, 10**12), Neighbors.ADD_REMOVE, 2**20).tree
