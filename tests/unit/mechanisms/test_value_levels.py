"""The tree over values: its counts and estimates against the dense oracle, and which tree is taken."""

from fractions import Fraction

import numpy as np
import pytest
from oracles import value_tree as oracle

from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.quantiles.value_tree import FRACTION_BITS, ValueLevels, best_levels

SHAPES = [(1, 2), (2, 2), (5, 5), (4, 2), (7, 2), (9, 3), (10, 3), (22, 8), (65, 4)]
HALF, HIGH = Fraction(1, 2), Fraction(99, 100)


@pytest.mark.parametrize(("leaves", "arity"), SHAPES)
def test_an_event_is_counted_in_the_nodes_that_hold_it_one_a_level(leaves: int, arity: int) -> None:
    levels = ValueLevels(leaves, arity)
    counted = np.array([levels.counted(row) for row in np.eye(leaves, dtype=np.int64)]).T
    np.testing.assert_array_equal(counted, oracle.membership(leaves, arity))
    assert levels.nodes == len(counted)
    assert set(counted.sum(axis=0)) == {levels.height}


@pytest.mark.parametrize(("leaves", "arity"), SHAPES)
def test_estimates_are_the_dense_least_squares(leaves: int, arity: int) -> None:
    found = ValueLevels(leaves, arity).weights
    np.testing.assert_allclose(found, oracle.best(leaves, arity), atol=1e-4)


@pytest.mark.parametrize(("leaves", "arity"), SHAPES)
def test_estimates_of_counts_without_noise_are_the_counts_however_large(
    leaves: int, arity: int
) -> None:
    levels = ValueLevels(leaves, arity)
    counts = np.random.default_rng(1).integers(0, 1 << 50, leaves)
    own, more = levels.estimates(levels.counted(counts))
    np.testing.assert_array_equal(own, counts)
    assert not more.any()


def test_wide_noise_is_averaged_as_narrow_one_is() -> None:
    levels = ValueLevels(22, 4)
    noise = np.random.default_rng(2).integers(-(1 << 40), 1 << 40, levels.nodes)
    own, more = levels.estimates(noise)
    found = own + more / (1 << FRACTION_BITS)
    wanted = oracle.best(22, 4) @ noise
    np.testing.assert_allclose(found, wanted, atol=1e-4 * (1 << 40))


@pytest.mark.parametrize(("leaves", "arity"), [(5, 5), (22, 8), (10, 3)])
def test_the_spread_of_ranks_is_that_of_the_dense_estimates(leaves: int, arity: int) -> None:
    through = np.cumsum(oracle.best(leaves, arity), axis=0)
    squares, fourths = ValueLevels(leaves, arity).spread((HALF, HIGH))
    for place, quantile in enumerate((0.5, 0.99)):
        weights = through - quantile * through[-1]
        np.testing.assert_allclose(squares[place], (weights**2).sum(axis=1), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(fourths[place], (weights**4).sum(axis=1), rtol=1e-3, atol=1e-4)


def worst(levels: ValueLevels, quantiles: tuple[float, ...]) -> float:
    """The largest deviation of a rank at epsilon 1, by the dense estimates."""
    through = np.cumsum(oracle.best(levels.leaves, levels.arity), axis=0)
    found = max(float(((through - q * through[-1]) ** 2).sum(axis=1).max()) for q in quantiles)
    return float(np.sqrt(2 * found)) * levels.height


@pytest.mark.parametrize(
    ("leaves", "at", "error", "flat"),
    [(22, (HALF,), 3.32, 3.32), (202, (HALF,), 7.39, 10.1), (202, (HALF, HIGH), 10.44, 19.9)],
)
def test_the_tree_that_is_taken_is_the_best_and_better_than_the_buckets_alone(
    leaves: int, at: tuple[Fraction, ...], error: float, flat: float
) -> None:
    taken, asked = best_levels(leaves, at), tuple(map(float, at))
    found = worst(taken, asked)
    assert found == pytest.approx(error, abs=0.02)
    assert worst(ValueLevels(leaves, leaves), asked) == pytest.approx(flat, abs=0.1)
    for arity in (2, 3, 5, 7, 14, 40, 64):
        assert worst(ValueLevels(leaves, arity), asked) >= 0.99 * found


@pytest.mark.parametrize(("leaves", "arity"), [(0, 2), (4, 1)])
def test_what_is_no_tree_is_refused(leaves: int, arity: int) -> None:
    with pytest.raises(NotDerivable, match="one bucket or more"):
        ValueLevels(leaves, arity)
