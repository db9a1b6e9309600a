"""The counters' noise is exactly the linear map of the dense oracle, at exactly the claimed scales.

No statistics: unit vectors of noise give the real map column by column; its worst-case loss is then computed by
integer programming (`oracles.tree_privacy`). The broken twins lose more than they claim by the same computation.
"""

from fractions import Fraction

import numpy as np
import pytest
from oracles import tree
from oracles.tree_privacy import loss_bracket
from statistical import broken_privacy as broken

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.testing.noise import Draw, ScriptedNoise, ZeroNoise

ONE = Fraction(1)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
AnyCounter = Counter | HybridCounter


def answers(counter: AnyCounter, noise: ScriptedNoise, ticks: int) -> IntArray:
    """Answers on an empty stream, shape (ticks, width): the noise alone."""
    state: object = counter.init(noise)
    found = []
    for _ in range(ticks):
        row = np.zeros(counter.width, dtype=np.int64)
        state, _ = counter.step(state, Update(row), noise)  # type: ignore[arg-type]
        _, answer = counter.step(state, Query(), noise)  # type: ignore[arg-type]
        assert answer is not None
        found.append(answer)
    return np.array(found)


def calls(counter: AnyCounter, ticks: int) -> list[Draw]:
    """The noise asked for."""
    noise = ScriptedNoise(np.zeros(100_000, dtype=np.int64).tolist())
    answers(counter, noise, ticks)
    return noise.calls


def linear_map(counter: AnyCounter, ticks: int) -> tuple[IntArray, list[Fraction]]:
    """(matrix, scales) of the first column, from one run per noise value; unused values are left out."""
    scales = [call.scale for call in calls(counter, ticks) for _ in range(call.size)]
    columns = []
    for at in range(len(scales)):
        script = [0] * len(scales)
        script[at] = 1
        columns.append(answers(counter, ScriptedNoise(script), ticks)[:, 0])
    matrix = np.array(columns).T
    used = [at for at in range(len(scales)) if matrix[:, at].any()]
    return matrix[:, used], [scales[at] for at in used]


def canonical(matrix: IntArray) -> list[tuple[int, ...]]:
    """The columns as a sorted list: nodes are exchangeable."""
    return sorted(tuple(int(v) for v in column) for column in matrix.T)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 12, 13, 32, 40, 100, 200])
def test_the_tree_is_the_oracles_tree(horizon: int) -> None:
    counter = Counter(1, Fraction(3, 10), ADD, horizon)
    arity, height = tree.best(horizon)
    assert (counter.tree.shape.arity, counter.tree.shape.height) == (arity, height)
    matrix, scales = linear_map(counter, horizon)
    expected, nodes = tree.coefficient_matrix(arity, height, horizon)
    assert canonical(matrix) == canonical(expected)
    assert len(scales) == len(nodes)
    assert set(scales) == {height / Fraction(3, 10)}


@pytest.mark.parametrize("horizon", [1, 4, 13, 40, 300, 8760])
def test_a_tree_draws_what_its_shape_says(horizon: int) -> None:
    counter = Counter(3, ONE, ADD, horizon)
    shape = counter.tree.shape
    found = calls(counter, min(horizon, 2_000))
    assert found[0].size == 3 * shape.height * (shape.arity - 1)
    moves = [
        t for t in range(1, min(horizon, 2_000) + 1) if t % shape.arity == shape.arity // 2 + 1
    ]
    assert len(found) == 1 + (len(moves) if shape.height > 1 or horizon > shape.capacity else 0)
    assert {call.kind for call in found} == {"laplace"}


@pytest.mark.parametrize("ticks", [1, 3, 7, 40, 63, 127])
def test_the_hybrid_is_the_oracles_hybrid(ticks: int) -> None:
    matrix, scales = linear_map(HybridCounter(1, ONE, ADD), ticks)
    expected = tree.hybrid_matrix(ticks)
    weighted = [
        (*(int(v) for v in column), round(float(scale), 9))
        for column, scale in zip(matrix.T, scales, strict=True)
    ]
    oracle = [
        (*(int(v) for v in column), round(float(scale), 9))
        for column, scale in zip(expected.matrix.T, expected.scales, strict=True)
    ]
    assert sorted(weighted) == sorted(oracle)


@pytest.mark.parametrize(
    ("relation", "width", "ones", "l0"),
    [
        (ADD, 1, 1, 1),
        (ADD, 4, 1, 1),
        (REPLACE, 1, 1, 1),
        (REPLACE, 4, 1, 2),
        (ADD, 7, 3, 3),
        (REPLACE, 7, 3, 6),
        (REPLACE, 4, 4, 4),
    ],
)
def test_scales_are_exactly_the_claimed_ones(
    relation: Neighbors, width: int, ones: int, l0: int
) -> None:
    epsilon = Fraction(7, 10)
    counter = Counter(width, epsilon, relation, 40, ones)
    for each in (counter, HybridCounter(width, epsilon, relation, ones)):
        assert each.derivation().guarantee == each.guarantee
    height = counter.tree.shape.height
    assert {call.scale for call in calls(counter, 40)} == {height * l0 / epsilon}
    hybrid = HybridCounter(width, epsilon, relation, ones)
    heights = {tree.best(2**epoch)[1] for epoch in range(6)}
    inner = {h * l0 / (Fraction(3, 4) * epsilon) for h in heights}
    totals = {2 * l0 / (Fraction(1, 4) * epsilon)}
    assert {call.scale for call in calls(hybrid, 40)} == inner | totals


@pytest.mark.parametrize("horizon", [4, 13, 24])
def test_the_loss_of_the_real_map_is_exactly_the_claim(horizon: int) -> None:
    epsilon = Fraction(4, 5)
    matrix, scales = linear_map(Counter(1, epsilon, ADD, horizon), horizon)
    low, high = loss_bracket(matrix, np.array([float(s) for s in scales]))
    assert (low, high) == pytest.approx((0.8, 0.8))


def test_the_loss_of_the_real_hybrid_is_exactly_the_claim() -> None:
    matrix, scales = linear_map(HybridCounter(1, ONE, ADD), 63)
    assert loss_bracket(matrix, np.array([float(s) for s in scales])) == pytest.approx((1, 1))


def test_a_forgotten_height_and_a_free_total_lose_more_than_they_claim() -> None:
    for twin, ticks in (
        (broken.HeightForgotten(1, ONE, ADD, 100), 100),
        (broken.TotalsFree(1, ONE, ADD), 63),
    ):
        matrix, scales = linear_map(twin, ticks)
        low, _ = loss_bracket(matrix, np.array([float(s) for s in scales]))
        assert low > 1.2 * differential_privacy(twin.guarantee.measure).epsilon


@pytest.mark.parametrize("kind", [Counter, broken.WidthForgotten])
def test_columns_under_replace(kind: type[Counter]) -> None:
    counter = kind(3, ONE, REPLACE, 4)
    noise = ScriptedNoise(list(range(1, 1_000)))
    found = answers(counter, noise, 4)
    assert np.unique(found, axis=1).shape == (4, 3)  # no noise shared between columns
    one = Counter(1, ONE, ADD, 4)
    scale_ratio = counter.tree.scale / one.tree.scale
    loss = 2 / scale_ratio  # two columns, each at 1 / ratio of a counter that loses exactly epsilon
    assert (loss <= 1) == (kind is Counter)


def test_answers_are_exact_counts_plus_that_noise() -> None:
    rows = np.random.default_rng(3).integers(0, 50, (40, 2))
    for counter in (Counter(2, ONE, ADD, 40), HybridCounter(2, ONE, ADD)):
        noise = ScriptedNoise(np.random.default_rng(4).integers(-90, 90, 10_000).tolist())
        alone = answers(counter, noise, 40)
        noise = ScriptedNoise(noise.values)
        state: object = counter.init(noise)
        for t, row in enumerate(rows):
            state, _ = counter.step(state, Update(row), noise)  # type: ignore[arg-type]
            _, answer = counter.step(state, Query(), ZeroNoise())  # type: ignore[arg-type]
            np.testing.assert_array_equal(answer, rows[: t + 1].sum(axis=0) + alone[t])
