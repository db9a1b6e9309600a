"""The forest of windows, exactly: an event is a shift of one noise a level; its answers are the best there are.

As for the tree counters (test_tree_exact) one more event at tick i has the effect of 1 more in the noise of every node
that holds i, and no other: a copy with one event less and that noise answers the same. Each node is drawn once, when it
is complete, at the scale of its level: the cost is the sum of the shares. The dense oracle says which
estimate is best (oracles.window_forest); how tight the claim is, the linear program of `oracles.tree_privacy`.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles import window_forest as oracle
from oracles.tree_privacy import least_shift
from unit.mechanisms import broken_forests as broken
from unit.mechanisms.shifted_noise import Drawn, Shifted

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.noisy_forest import (
    FLAT,
    MOST_HELD,
    ForestDecoding,
    ForestShape,
    WindowForestState,
    best_forest,
    window_variances,
)
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import Draw, ScriptedNoise, ZeroNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, THIRD = Fraction(1), Fraction(1, 2), Fraction(1, 3)
EPSILON = Fraction(2, 3)
PAIRS = ForestShape((2,), (HALF, HALF))
THREE = ForestShape((3, 2), (HALF, Fraction(1, 8), Fraction(3, 8)))
FOURS = ForestShape((4,), (THIRD, 1 - THIRD))
SHAPES = [
    (FLAT, (1, 5)),
    (PAIRS, (1, 2, 5)),
    (THREE, (1, 7, 20)),
    (FOURS, (1, 4, 9)),
    (ForestShape((2, 2, 2), (Fraction(1, 4),) * 4), (1, 8, 30)),
]
BIG = 1 << 20


def nodes(shape: ForestShape, updates: int, each: Fraction) -> Iterator[Drawn]:
    """All that is drawn, in order: every node with its last tick."""
    for level, index in oracle.complete(shape.arities, updates):
        span = shape.spans[level]
        yield Drawn(1 / (shape.shares[level] * each), index * span + 1, (index + 1) * span)


def check(
    forest: type[WindowForest], shape: ForestShape, windows: tuple[int, ...], updates: int
) -> Shifted:
    """Column i has one event less than column 0, at tick i, and 1 more in the noises that hold it: answers agree."""
    events = np.arange(1, updates + 1)
    noise = Shifted(nodes(shape, updates, EPSILON), events)
    made = forest(1 + updates, EPSILON, ADD, windows, shape)
    state = made.init(noise)
    for tick in range(1, updates + 1):
        row = np.full(made.width, 1 + tick % 3, dtype=np.int64)
        row[tick] -= 1
        state, _ = made.step(state, Update(row), noise)
        _, answer = made.step(state, Query(), ZeroNoise())
        assert answer is not None
        for found in answer.reshape(-1, made.width):
            assert (found == found[0]).all(), f"answer {tick} tells who was there"
    return noise


@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_an_event_is_a_shift_that_costs_the_epsilon(
    shape: ForestShape, windows: tuple[int, ...]
) -> None:
    updates = 2 * max(windows) + shape.spans[-1] + 3
    noise = check(WindowForest, shape, windows, updates)
    whole = updates // shape.spans[-1] * shape.spans[-1]
    assert {noise.cost(event) for event in range(1, whole + 1)} == {EPSILON}
    assert max(noise.cost(event) for event in range(1, updates + 1)) == EPSILON


@pytest.mark.parametrize(
    "twin",
    [broken.WholeBudgetEach, broken.NeverForgets, broken.BeforeItsTime, broken.GainOnCounts],
)
def test_a_forest_that_is_broken_is_caught_by_the_shift(twin: type[WindowForest]) -> None:
    with pytest.raises((AssertionError, StopIteration)):
        check(twin, PAIRS, (1, 5), 16)


@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_answers_without_noise_are_the_counts(shape: ForestShape, windows: tuple[int, ...]) -> None:
    check_counts(WindowForest(3, ONE, ADD, windows, shape))


def check_counts(forest: WindowForest) -> None:
    """Large random counts, against sums over each window."""
    windows, noise = forest.windows, ZeroNoise()
    rows = np.random.default_rng(4).integers(0, 1 << 44, (150, 3))
    state = forest.init(noise)
    for tick, row in enumerate(rows, start=1):
        state, _ = forest.step(state, Update(row), noise)
        _, answer = forest.step(state, Query(), noise)
        right = [rows[max(0, tick - window) : tick].sum(axis=0) for window in windows]
        np.testing.assert_array_equal(answer, np.concatenate(right))


def test_a_window_that_is_a_tick_too_long_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_counts(broken.OneTickMore(3, ONE, ADD, (1, 5), PAIRS))


def linear_map(forest: WindowForest, updates: int) -> tuple[NDArray[np.float64], list[Fraction]]:
    """(matrix, scales): answers after every tick, flattened, of one column, per unit of each noise that is drawn."""

    def answers(noise: ScriptedNoise) -> IntArray:
        state, found = forest.init(noise), []
        for _ in range(updates):
            state, _ = forest.step(state, Update(np.zeros(1, dtype=np.int64)), noise)
            _, answer = forest.step(state, Query(), noise)
            assert answer is not None
            found.append(answer)
        return np.concatenate(found)

    silent = ScriptedNoise([0] * 10_000)
    answers(silent)
    scales = [call.scale for call in silent.calls for _ in range(call.size)]
    columns = []
    for place in range(len(scales)):
        script = [0] * len(scales)
        script[place] = BIG
        columns.append(answers(ScriptedNoise(script)) / BIG)
    return np.array(columns).T, scales


@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_the_real_map_is_the_dense_least_squares(
    shape: ForestShape, windows: tuple[int, ...]
) -> None:
    updates = max(windows) + shape.spans[-1] + 2
    matrix, scales = linear_map(WindowForest(1, ONE, ADD, windows, shape), updates)
    variances = [float(1 / share**2) for share in shape.shares]
    assert len(scales) == len(oracle.complete(shape.arities, updates))
    for tick in range(1, updates + 1):
        for place, window in enumerate(windows):
            wanted = oracle.best(shape.arities, variances, tick, window)
            found = matrix[(tick - 1) * len(windows) + place]
            np.testing.assert_allclose(found[: len(wanted)], wanted, atol=1e-4)
            assert not found[len(wanted) :].any()


@pytest.mark.parametrize(("shape", "windows"), SHAPES[1:])
def test_the_predicted_variances_are_the_exact_ones(
    shape: ForestShape, windows: tuple[int, ...]
) -> None:
    exact = tuple(1 / share**2 for share in shape.shares)
    nodes = [float(each) for each in exact]
    decoding = ForestDecoding(shape.arities, exact)
    for updates in range(1, 2 * shape.spans[-1] + 8):
        for window in windows:
            right = oracle.exact_least_variance(shape.arities, exact, updates, window)
            found = decoding.weights(updates, window)
            by_gains = sum(number * nodes[level] * w**2 for number, level, w in found)
            assert by_gains == pytest.approx(float(right), rel=1e-6)
            if updates > window:
                first = np.array([updates - window])
                (closed,) = window_variances(shape.arities, nodes, first, window)
                assert closed == pytest.approx(float(right), rel=1e-9)


def least_loss(forest: WindowForest, updates: int) -> float:
    """What some event loses for sure, far out in the tails."""
    matrix, scales = linear_map(forest, updates)
    used = np.abs(matrix).max(axis=0) > 1e-4
    weights = np.array([float(1 / scale) for scale in scales])[used]
    ticks = np.repeat(np.arange(1, updates + 1), len(forest.windows))
    windows = np.tile(forest.windows, updates)
    losses = []
    for event in range(1, updates + 1):
        moves = ((event <= ticks) & (event > ticks - windows)).astype(np.int64)
        shift = least_shift(matrix[:, used], moves, weights, integer=False)
        losses.append(float(weights @ np.abs(shift)))
    return max(losses)


@pytest.mark.parametrize(("shape", "windows"), [(FLAT, (1, 3)), (PAIRS, (1, 4)), (FOURS, (1, 8))])
def test_the_loss_of_the_real_map_is_the_claim(
    shape: ForestShape, windows: tuple[int, ...]
) -> None:
    found = least_loss(WindowForest(1, EPSILON, ADD, windows, shape), 2 * max(windows) + 2)
    assert found == pytest.approx(float(EPSILON), abs=1e-3)


def test_levels_at_the_whole_budget_lose_more_than_they_claim() -> None:
    twin = broken.WholeBudgetEach(1, EPSILON, ADD, (1, 4), PAIRS)
    assert least_loss(twin, 10) > 1.9 * EPSILON


def test_an_answer_draws_no_noise() -> None:
    """Noise drawn for each window and answer averages to the exact counts."""
    with pytest.raises(AssertionError, match="draws noise"):
        drawn_for_queries(broken.FreshForEachWindow(1, EPSILON, ADD, (1, 3), FLAT))
    drawn_for_queries(WindowForest(1, EPSILON, ADD, (1, 3), FLAT))


def drawn_for_queries(forest: WindowForest) -> None:
    """Fail where an answer draws noise: then asking again tells more."""
    noise = ScriptedNoise([0] * 100)
    state, _ = forest.step(forest.init(noise), Update(np.zeros(1, dtype=np.int64)), noise)
    before = len(noise.calls)
    forest.step(state, Query(), noise)
    assert len(noise.calls) == before, "an answer draws noise"


@pytest.mark.parametrize(
    ("relation", "width", "ones", "l0"),
    [
        (ADD, 1, 1, 1),
        (ADD, 4, 1, 1),
        (REPLACE, 1, 1, 1),
        (REPLACE, 4, 1, 2),
        (ADD, 7, 3, 3),
        (REPLACE, 7, 3, 6),
    ],
)
def test_scales_are_exactly_the_claimed_ones(
    relation: Neighbors, width: int, ones: int, l0: int
) -> None:
    forest = WindowForest(width, EPSILON, relation, (1, 6), THREE, ones)
    assert derived(forest, "it").guarantee == forest.guarantee
    noise = ScriptedNoise([0] * 1_000)
    state = forest.init(noise)
    for _ in range(12):
        state, _ = forest.step(state, Update(np.zeros(width, dtype=np.int64)), noise)
    assert {call.scale for call in noise.calls} == {l0 / (s * EPSILON) for s in THREE.shares}
    assert {call.size for call in noise.calls} == {width}


def test_shares_that_are_more_than_the_whole_are_refused() -> None:
    greedy = ForestShape((2,), (HALF, Fraction(2, 3)))
    for shape in (greedy, ForestShape((2,), (HALF, THIRD))):
        with pytest.raises(NotDerivable, match="differs"):
            derived(WindowForest(1, ONE, ADD, (1, 2), shape), "it")
    for twin in (broken.WholeBudgetEach, broken.ColumnsFree):
        with pytest.raises(NotDerivable, match="not proven of a subclass"):
            derived(twin(2, ONE, REPLACE, (1, 2), PAIRS), "it")


@pytest.mark.parametrize(
    ("windows", "shape", "why"),
    [
        ((), FLAT, "1 or more"),
        ((1, 0), FLAT, "1 or more"),
        ((1,), PAIRS, "no longer than"),
        ((MOST_HELD + 1,), FLAT, "would hold"),
    ],
)
def test_what_cannot_be_is_refused(windows: tuple[int, ...], shape: ForestShape, why: str) -> None:
    with pytest.raises(NotDerivable, match=why):
        WindowForest(1, ONE, ADD, windows, shape)


@pytest.mark.parametrize(
    ("shape", "epsilon"), [(FLAT, 10**16), (FLAT, 2 * 10**12), (PAIRS, 10**12)]
)
def test_noise_beyond_64_bits_is_refused(shape: ForestShape, epsilon: int) -> None:
    with pytest.raises(NotDerivable, match="64 bits"):
        WindowForest(1, Fraction(1, epsilon), ADD, (1, 100), shape)


@pytest.mark.parametrize(("shape", "epsilon"), [(FLAT, 10**12), (PAIRS, 10**10)])
def test_noise_that_is_taken_stays_inside_64_bits(shape: ForestShape, epsilon: int) -> None:
    """Every node's noise as large as no more than e^-40 of them are: windows are still those of Python's integers."""
    forest = WindowForest(1, Fraction(1, epsilon), ADD, (1, 100), shape)
    huge = int(40 * max(forest.scales))
    drawn = ScriptedNoise([huge] * 1_000)
    state = forest.init(drawn)
    for _ in range(250):
        state, _ = forest.step(state, Update(np.zeros(1, dtype=np.int64)), drawn)
        _, answer = forest.step(state, Query(), drawn)
        assert answer is not None
        assert 0 < answer.min() <= answer.max() <= 101 * huge


@pytest.mark.parametrize("arities", [(1,), (2, 2)])
def test_levels_that_are_none_are_refused(arities: tuple[int, ...]) -> None:
    with pytest.raises(NotDerivable):
        ForestShape(arities, (HALF, HALF))
    with pytest.raises(NotDerivable):
        ForestShape((2,), (ONE, Fraction(0)))


def error(windows: tuple[int, ...], place: int) -> float:
    """RMSE of a window at epsilon 1, over the phases."""
    forest = WindowForest(1, ONE, ADD, windows, best_forest(windows))
    longest, turn = max(windows), forest.shape.spans[-1]
    squares = [
        sum(2 * float(t.scale) ** 2 * t.number * t.weight**2 for t in forest.noise_terms(place, n))
        for n in range(longest + 1, longest + turn + 1)
    ]
    return float(np.sqrt(np.mean(squares)))


def test_errors_are_those_of_the_theory_and_better_than_single_ticks() -> None:
    """sqrt(2 W) / epsilon up to some hundred ticks; half of it for a day of minutes, a quarter for a week."""
    assert best_forest((1, 24, 168)) == FLAT
    assert [error((1, 24, 168), place) for place in range(3)] == pytest.approx(
        [2**0.5, 48**0.5, 336**0.5]
    )
    day = [error((1, 60, 1_440), place) for place in range(3)]
    assert day[2] < 0.56 * 2_880**0.5
    assert np.prod(day) < np.prod([2**0.5, 120**0.5, 2_880**0.5])
    assert error((1, 10_080), 1) < 0.32 * 20_160**0.5


class EndsToBeNoisy(WindowForest):
    """Broken: a node that is complete after 4,000 ticks or more has no noise."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        """As if all noise were drawn."""
        return super()._taken(state, row, noise if state.updates < 4000 else ZeroNoise())


def from_then_on(kind: type[WindowForest], turns: int) -> tuple[list[list[int]], list[Draw]]:
    """Return the answers of twelve ticks after so many turns of the highest nodes, and what they draw."""
    forest, row = kind(2, EPSILON, ADD, (9, 4), THREE), np.array([2, 1])
    noise = ScriptedNoise([(7 * n) % 23 - 11 for n in range(400)])
    state, answers = forest.init(noise), list[list[int]]()
    for _ in range(12):
        state, _ = forest.step(state, Update(row), noise)
    state, before = (
        replace(state, updates=state.updates + turns * THREE.spans[-1]),
        len(noise.calls),
    )
    for _ in range(12):
        state, _ = forest.step(state, Update(row), noise)
        _, answer = forest.step(state, Query(), noise)
        assert answer is not None
        answers.append(answer.tolist())
    return answers, noise.calls[before:]


@pytest.mark.parametrize("turns", [1, 333, 700, 10**6, 10**11])
def test_after_any_number_of_ticks_it_does_the_same(turns: int) -> None:
    """The exact checks end after some hundred ticks; from there on their number decides nothing but the place."""
    assert from_then_on(WindowForest, turns) == from_then_on(WindowForest, 0)
    assert (from_then_on(EndsToBeNoisy, turns) == from_then_on(EndsToBeNoisy, 0)) is (turns < 600)
