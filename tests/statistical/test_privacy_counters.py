"""The counters' noise is the linear map of the dense oracle, at exactly the claimed scales, and loses the claim.

No statistics: large unit vectors of noise give the real map column by column, up to the rounding of answers; the least
loss that it must have is then computed by linear programming (`oracles.tree_privacy`). That it has no more is shown
step by step, in integers, beside the mechanisms (unit/mechanisms/test_counters_exact.py). The broken
twins lose more than they claim by the same computation.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import decoded_tree as oracle
from oracles.tree_privacy import least_shift, step_shift
from statistical import broken_privacy as broken

from stream_dp.core.guarantee import differential_privacy
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter
from stream_dp.mechanisms.linear.tree import TreeShape
from stream_dp.testing.noise import Draw, ScriptedNoise, ZeroNoise

ONE = Fraction(1)
ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
AnyCounter = Counter | HybridCounter | HandOverCounter
Floats = NDArray[np.float64]
BIG = 1 << 20


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


def linear_map(counter: AnyCounter, ticks: int) -> tuple[Floats, list[Fraction]]:
    """(matrix, scales) of the first column, from one run per noise value."""
    scales = [call.scale for call in calls(counter, ticks) for _ in range(call.size)]
    columns = []
    for at in range(len(scales)):
        script = [0] * len(scales)
        script[at] = BIG
        columns.append(answers(counter, ScriptedNoise(script), ticks)[:, 0] / BIG)
    return np.array(columns).T, scales


def least_loss(matrix: Floats, scales: list[Fraction]) -> float:
    """What some event loses for sure, far out in the tails: the least real shift of the noises that explains it."""
    used = np.abs(matrix).max(axis=0) > 1e-4
    weights = np.array([float(1 / scale) for scale in scales])[used]
    shifts = (step_shift(len(matrix), step) for step in range(1, len(matrix) + 1))
    found = (least_shift(matrix[:, used], s, weights, integer=False) for s in shifts)
    return max(float(weights @ np.abs(shift)) for shift in found)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 12, 40, 100, 150])
def test_the_tree_is_the_oracles_tree(horizon: int) -> None:
    counter = Counter(1, Fraction(3, 10), ADD, horizon)
    arity, height = counter.tree.shape.arity, counter.tree.shape.height
    matrix, scales = linear_map(counter, horizon)
    np.testing.assert_allclose(matrix, oracle.least_squares(arity, height, horizon), atol=2e-3)
    assert set(scales) == {height / Fraction(3, 10)}


@pytest.mark.parametrize("horizon", [1, 4, 13, 40, 300, 8760])
def test_a_tree_draws_what_its_shape_says(horizon: int) -> None:
    counter, ticks = Counter(3, ONE, ADD, horizon), min(horizon, 2_000)
    arity, height = counter.tree.shape.arity, counter.tree.shape.height
    found = calls(counter, ticks)
    wanted = [len(oracle.drawn_with(arity, height, item)) for item in range(ticks)]
    assert [call.size for call in found] == [3 * number for number in wanted if number]
    assert {call.kind for call in found} == {"laplace"}


@pytest.mark.parametrize("ticks", [1, 3, 7, 40, 63])
def test_the_hybrid_is_the_oracles_hybrid(ticks: int) -> None:
    matrix, _ = linear_map(HybridCounter(1, ONE, ADD), ticks)
    for tick in range(1, ticks + 1):
        epoch = tick.bit_length() - 1
        shape = TreeShape.best(1 << epoch)
        inner = oracle.least_squares(shape.arity, shape.height, tick - (1 << epoch) + 1)[-1]
        totals = oracle.least_squares(8, 2, epoch)[-1] if epoch else np.zeros(0)
        wanted = np.sort(np.abs(np.concatenate([inner, totals])))[::-1]
        found = np.sort(np.abs(matrix[tick - 1]))[::-1]
        np.testing.assert_allclose(found[: len(wanted)], wanted, atol=2e-3)
        assert not found[len(wanted) :].any()


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
    endless = (HybridCounter, HandOverCounter)
    for each in (counter, *(kind(width, epsilon, relation, ones) for kind in endless)):
        assert each.derivation().guarantee == each.guarantee
    height = counter.tree.shape.height
    assert {call.scale for call in calls(counter, 40)} == {height * l0 / epsilon}
    hybrid = HybridCounter(width, epsilon, relation, ones)
    heights = {TreeShape.best(2**epoch).height for epoch in range(6)}
    inner = {h * l0 / (Fraction(7, 10) * epsilon) for h in heights}
    totals = {2 * l0 / (Fraction(3, 10) * epsilon)}
    assert {call.scale for call in calls(hybrid, 40)} == inner | totals
    hand_over = HandOverCounter(width, epsilon, relation, ones)
    assert {call.scale for call in calls(hand_over, 330)} == {
        TreeShape.best(64 * 4**number).height * l0 / epsilon for number in range(3)
    }


@pytest.mark.parametrize("horizon", [4, 13, 24, 40])
def test_the_loss_of_the_real_map_is_at_least_the_claim(horizon: int) -> None:
    found = least_loss(*linear_map(Counter(1, Fraction(4, 5), ADD, horizon), horizon))
    assert found == pytest.approx(0.8, abs=1e-3)


def test_the_losses_of_the_real_endless_counters_are_at_least_the_claim() -> None:
    assert least_loss(*linear_map(HybridCounter(1, ONE, ADD), 63)) == pytest.approx(1, abs=1e-3)
    assert least_loss(*linear_map(HandOverCounter(1, ONE, ADD), 80)) == pytest.approx(1, abs=1e-3)


def test_a_forgotten_height_and_a_free_total_lose_more_than_they_claim() -> None:
    for twin, ticks in (
        (broken.HeightForgotten(1, ONE, ADD, 100), 100),
        (broken.TotalsFree(1, ONE, ADD), 63),
    ):
        low = least_loss(*linear_map(twin, ticks))
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
    every = (Counter(2, ONE, ADD, 40), HybridCounter(2, ONE, ADD), HandOverCounter(2, ONE, ADD))
    for counter in every:
        noise = ScriptedNoise(np.random.default_rng(4).integers(-90, 90, 10_000).tolist())
        alone = answers(counter, noise, 40)
        noise = ScriptedNoise(noise.values)
        state: object = counter.init(noise)
        for t, row in enumerate(rows):
            state, _ = counter.step(state, Update(row), noise)  # type: ignore[arg-type]
            _, answer = counter.step(state, Query(), ZeroNoise())  # type: ignore[arg-type]
            np.testing.assert_array_equal(answer, rows[: t + 1].sum(axis=0) + alone[t])
