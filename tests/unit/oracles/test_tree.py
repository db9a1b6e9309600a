"""The dense tree oracle against known figures and against the naive counter."""

import numpy as np
import pytest
from oracles import naive, tree
from oracles import tree_privacy as privacy


@pytest.mark.parametrize(
    ("horizon", "shape", "average", "maximum"),
    [(2**10, (13, 3), 171, 324), (2**16, (21, 4), 615, 1184), (2**20, (19, 5), 1147, 2200)],
)
def test_mse_table_of_the_tree_with_subtraction(
    horizon: int, shape: tuple[int, int], average: float, maximum: float
) -> None:
    got = tree.mse(*shape, horizon)
    assert round(got[0]) == average
    assert got[1] == maximum


def test_best_shapes() -> None:
    assert tree.best(2**10) == (13, 3)
    assert tree.best(2**16) == (21, 4)


def test_hybrid_beats_the_binary_tree_of_known_length() -> None:
    for horizon, binary, expected in ((2**10, 1001, 416.6), (2**16, 4096, 1419.3)):
        average = float(tree.hybrid_variances(horizon).mean())
        assert average == pytest.approx(expected, abs=0.05)
        assert average < binary


def test_hybrid_matrix_agrees_with_its_closed_form() -> None:
    np.testing.assert_allclose(tree.hybrid_matrix(300).variances(), tree.hybrid_variances(300))


@pytest.mark.parametrize(("k", "h"), [(3, 1), (3, 2), (3, 4), (5, 2), (7, 2), (13, 3)])
def test_matrix_rows_are_the_naive_noise(k: int, h: int) -> None:
    horizon = min(tree.capacity(k, h), 200)
    matrix, nodes = tree.coefficient_matrix(k, h, horizon)
    noise = np.random.default_rng(1).integers(-50, 50, len(nodes))
    table = dict(zip(nodes, noise.tolist(), strict=True))
    items = [t % 3 for t in range(horizon)]
    got = naive.tree_counter(items, k, h, lambda level, i: table[level, i])
    assert got == (np.cumsum(items) + matrix @ noise).tolist()
    assert set(np.unique(matrix)) <= {-1, 0, 1}
    np.testing.assert_array_equal(np.abs(matrix).sum(axis=1), tree.term_counts(k, h, horizon))


def test_discrete_variance_is_below_the_continuous_one_by_a_sixth() -> None:
    assert tree.laplace_variance(9) - tree.discrete_laplace_variance(9) == pytest.approx(
        1 / 6, abs=1e-3
    )
    assert tree.variances(3, 2, 4, 2.0).tolist() == pytest.approx(
        (np.array([1, 2, 1, 2]) * tree.discrete_laplace_variance(2.0)).tolist()
    )


def test_a_tree_refuses_what_it_cannot_count() -> None:
    with pytest.raises(ValueError, match="cannot count"):
        tree.term_counts(3, 2, 5)
    with pytest.raises(ValueError, match="odd k"):
        tree.terms(1, 4, 2)


@pytest.mark.parametrize(
    ("k", "h", "horizon"), [(3, 2, 4), (9, 1, 4), (3, 3, 13), (5, 2, 12), (7, 2, 24)]
)
def test_tree_loss_is_exactly_the_claim(k: int, h: int, horizon: int) -> None:
    matrix, nodes = tree.coefficient_matrix(k, h, horizon)
    norms = []
    for step in range(1, horizon + 1):
        shift = privacy.step_shift(horizon, step)
        np.testing.assert_array_equal(matrix @ privacy.canonical_shift(nodes, k, step), shift)
        norms.append(privacy.only_shift_norm(matrix, shift))
    assert max(norms) == h
    epsilon = 0.8
    assert privacy.loss_bracket(matrix, h / epsilon) == pytest.approx((epsilon, epsilon))


def test_tree_loss_by_enumeration() -> None:
    matrix, _ = tree.coefficient_matrix(3, 2, 4)
    epsilon, counts = 4.0, np.array([1, 1, 2, 2])
    base = privacy.release_bounds(matrix, counts, 2 / epsilon, 8)
    worst = 0.0
    for step in range(1, 5):
        other = privacy.release_bounds(matrix, counts + privacy.step_shift(4, step), 2 / epsilon, 8)
        worst = max(worst, privacy.certain_loss(base, other))
    assert epsilon - 1e-3 < worst <= epsilon + 1e-12


def test_node_noise_of_one_level_only_breaks_the_claim() -> None:
    matrix, _ = tree.coefficient_matrix(3, 2, 4)
    assert privacy.loss_bracket(matrix, 1.0)[0] == pytest.approx(2.0)  # the factor h forgotten


def test_hybrid_loss_is_exactly_the_claim() -> None:
    hybrid = tree.hybrid_matrix(63, epsilon=1.0)
    assert privacy.loss_bracket(hybrid.matrix, hybrid.scales) == pytest.approx((1.0, 1.0))


def test_a_release_without_noise_is_told_apart_for_sure() -> None:
    matrix, _ = tree.coefficient_matrix(3, 2, 4)
    matrix[0] = 0
    with pytest.raises(ArithmeticError):
        privacy.loss_bracket(matrix, 2.0)
