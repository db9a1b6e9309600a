"""The forest of windows, exactly: an event is a shift of one noise a level; its answers are the best there are.

As for the tree counters (test_counters_exact) one more event at tick i has the effect of 1 more in the noise of every
node that holds i, and no other: a copy with one event less and that noise answers the same. Each node is drawn once,
when it is complete, at the scale of its level: the cost is the sum of the shares; with Gaussian noise half the sum of
squares over the variances, in zCDP. The dense oracle says which estimate is best (oracles.window_forest); how tight the
claim is, the linear program of `oracles.tree_privacy`, and of Gaussian noise the moments of all paths of noise.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from oracles import window_forest as oracle
from oracles.tree_privacy import least_shift
from unit.mechanisms.shifted_noise import Drawn, Shifted, answers, linear_map

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import MOST_UNITS
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
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ScriptedNoise, ZeroNoise


class WholeBudgetEach(WindowForest):
    """Every level has the whole epsilon: together they have more."""

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        return (1 / self.unit_epsilon,) * self.shape.height


class ColumnsFree(WindowForest):
    """Every column has the whole epsilon, also where an event touches two."""

    @property
    def unit_epsilon(self) -> Fraction:
        return self.epsilon


class NeverForgets(WindowForest):
    """What was counted in a node is counted in the next one too."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        after = super()._taken(state, row, noise)
        return replace(after, open=state.open + row)


class GainOnCounts(WindowForest):
    """A node's correction takes a part of its count, not of its surplus: what is rounded depends on the data."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        after = super()._taken(state, row, noise)
        if after.updates % self.shape.spans[1]:
            return after
        ring = after.surpluses[0]
        last = ring[-1].copy()
        last[-1] += (state.open[0] + row) << 12
        return replace(after, surpluses=((*ring[:-1], last), *after.surpluses[1:]))


class OneTickMore(WindowForest):
    """Windows are a tick too long."""

    def _window(self, state: WindowForestState, window: int) -> IntArray:
        return super()._window(state, window + 1 if window > 1 else window)


ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
ONE, HALF, THIRD = Fraction(1), Fraction(1, 2), Fraction(1, 3)
EPSILON = Fraction(2, 3)  # and rho is half of it: then variances are the scales of Laplace noise
PAIRS = ForestShape((2,), (HALF, HALF))
THREE = ForestShape((3, 2), (HALF, Fraction(1, 8), Fraction(3, 8)))
FOURS = ForestShape((4,), (THIRD, 1 - THIRD))
GREEDY = ForestShape((2,), (HALF, Fraction(2, 3)))
SHAPES = [
    (FLAT, (1, 5)), (PAIRS, (1, 2, 5)), (THREE, (1, 7, 20)),
    (ForestShape((2, 2, 2), (Fraction(1, 4),) * 4), (1, 8, 30)),
]  # fmt: skip
SHAPED = pytest.mark.parametrize(("shape", "windows"), SHAPES)


class WholeRhoEach(GaussianForest):
    """A twin: every level has the whole rho; together they have more."""

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        return (1 / (2 * self.rho),) * self.shape.height


class EntriesFree(GaussianForest):
    """A twin: one entry pays for all that an event touches."""

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        return tuple(1 / (2 * share * self.rho) for share in self.shape.shares)


class ShiftedGaussian(Shifted):
    """Hands out Gaussian noise as `Shifted` does Laplace noise; a node's scale is its variance."""

    gaussian = Shifted.laplace

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        raise AssertionError("a Gaussian forest draws Gaussian noise only")


def nodes(shape: ForestShape, updates: int) -> Iterator[Drawn]:
    """All that is drawn, in order: every node with its last tick."""
    for level, index in oracle.complete(shape.arities, updates):
        span = shape.spans[level]
        yield Drawn(1 / (shape.shares[level] * EPSILON), index * span + 1, (index + 1) * span)


def check(kind: type[Any], shape: ForestShape, windows: tuple[int, ...], updates: int) -> Shifted:
    """Column i has one event less than column 0, at tick i, and 1 more in the noises that hold it: answers agree."""
    gaussian = issubclass(kind, GaussianForest)
    noise = (ShiftedGaussian if gaussian else Shifted)(
        nodes(shape, updates), np.arange(1, updates + 1)
    )
    forest = kind(1 + updates, EPSILON / 2 if gaussian else EPSILON, ADD, windows, shape)
    state = forest.init(noise)
    for tick in range(1, updates + 1):
        row = np.full(forest.width, 1 + tick % 3, dtype=np.int64)
        row[tick] -= 1
        state, _ = forest.step(state, Update(row), noise)
        _, answer = forest.step(state, Query(), ZeroNoise())
        for view in answer.reshape(-1, forest.width):
            assert (view == view[0]).all(), f"answer {tick} tells who was there"
    return noise


@pytest.mark.parametrize("kind", [WindowForest, GaussianForest])
@SHAPED
def test_an_event_is_a_shift_that_costs_the_claim(
    kind: type[Any], shape: ForestShape, windows: tuple[int, ...]
) -> None:
    updates = 2 * max(windows) + shape.spans[-1] + 3
    noise = check(kind, shape, windows, updates)
    whole = updates // shape.spans[-1] * shape.spans[-1]
    assert {noise.cost(event) for event in range(1, whole + 1)} == {EPSILON}
    assert max(noise.cost(event) for event in range(1, updates + 1)) == EPSILON


@pytest.mark.parametrize("twin", [WholeBudgetEach, NeverForgets, GainOnCounts, WholeRhoEach])
def test_a_forest_that_is_broken_is_caught_by_the_shift(twin: type[Any]) -> None:
    with pytest.raises((AssertionError, StopIteration)):
        check(twin, PAIRS, (1, 5), 16)


def check_sums(forest: Any, lowest: int, ticks: int = 70) -> None:
    rows = np.random.default_rng(4).integers(lowest, 1 << 54, (ticks, 3))
    told = answers(forest, ZeroNoise(), rows)
    for tick in range(1, ticks + 1):
        right = [rows[max(0, tick - window) : tick].sum(axis=0) for window in forest.windows]
        np.testing.assert_array_equal(told[tick - 1], np.concatenate(right))


@SHAPED
def test_answers_without_noise_are_the_sums(shape: ForestShape, windows: tuple[int, ...]) -> None:
    forest = SumForest(3, EPSILON, ADD, windows, shape, -MOST_UNITS, MOST_UNITS)
    check_sums(forest, -(1 << 54))


def test_windows_too_long_are_caught() -> None:
    with pytest.raises(AssertionError):
        check_sums(OneTickMore(3, ONE, ADD, (1, 5), PAIRS), 0, 9)


@SHAPED
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
            weights = matrix[(tick - 1) * len(windows) + place]
            np.testing.assert_allclose(weights[: len(wanted)], wanted, atol=1e-4)
            assert not weights[len(wanted) :].any()


@pytest.mark.parametrize(("shape", "windows"), [*SHAPES[1:3], (FOURS, (1, 4, 9))])
def test_the_predicted_variances_are_the_exact_ones(
    shape: ForestShape, windows: tuple[int, ...]
) -> None:
    exact = tuple(1 / share**2 for share in shape.shares)
    of_nodes = [float(variance) for variance in exact]
    decoding = ForestDecoding(shape.arities, exact)
    for updates in range(1, 2 * shape.spans[-1] + 8):
        for window in windows:
            right = oracle.exact_least_variance(shape.arities, exact, updates, window)
            gains = decoding.weights(updates, window)
            by_gains = sum(number * of_nodes[level] * w**2 for number, level, w in gains)
            assert by_gains == pytest.approx(float(right), rel=1e-6)
            if updates > window:
                first = np.array([updates - window])
                (closed,) = window_variances(shape.arities, of_nodes, first, window)
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


def test_the_loss_of_the_real_map_is_the_claim() -> None:
    for shape, windows in ((FLAT, (1, 3)), (PAIRS, (1, 4)), (FOURS, (1, 8))):
        loss = least_loss(WindowForest(1, EPSILON, ADD, windows, shape), 2 * max(windows) + 2)
        assert loss == pytest.approx(float(EPSILON), abs=1e-3)
    assert least_loss(WholeBudgetEach(1, EPSILON, ADD, (1, 4), PAIRS), 10) > 1.9 * EPSILON


@pytest.mark.parametrize(
    ("relation", "width", "ones", "l0"),
    [(ADD, 4, 1, 1), (REPLACE, 1, 1, 1), (REPLACE, 4, 1, 2), (ADD, 7, 3, 3), (REPLACE, 4, 3, 4)],
)
def test_noise_is_exactly_that_of_the_entries_touched(
    relation: Neighbors, width: int, ones: int, l0: int
) -> None:
    for forest, kind in (
        (WindowForest(width, EPSILON, relation, (1, 6), THREE, ones), "laplace"),
        (GaussianForest(width, EPSILON / 2, relation, (1, 6), THREE, ones), "gaussian"),
    ):
        assert derived(forest, "it").guarantee == forest.guarantee
        noise = ScriptedNoise([0] * 1_000)
        answers(forest, noise, np.zeros((12, width), dtype=np.int64))
        drawn = {(call.kind, call.scale, call.size) for call in noise.calls}
        assert drawn == {(kind, l0 / (s * EPSILON), width) for s in THREE.shares}


def test_a_node_draws_its_noise_when_its_last_tick_has_come() -> None:
    """So what was answered before an event says nothing of the noise that the event shifts: a forest is fresh."""
    for forest in (
        WindowForest(2, EPSILON, ADD, (1, 6), THREE), GaussianForest(2, ONE, ADD, (1, 6), THREE),
    ):  # fmt: skip
        noise = ScriptedNoise([0] * 1_000)
        state = forest.init(noise)
        for tick in range(1, 13):
            assert len(noise.calls) == sum((tick - 1) // span for span in THREE.spans)
            state, _ = forest.step(state, Update(np.zeros(2, dtype=np.int64)), noise)
        assert forest.guarantee.fresh


def test_what_is_not_covered_is_not_derived() -> None:
    for shape in (GREEDY, ForestShape((2,), (HALF, THIRD))):
        for forest in (
            WindowForest(1, ONE, ADD, (1, 2), shape), SumForest(1, ONE, ADD, (1, 2), shape, 0, 9),
        ):  # fmt: skip
            with pytest.raises(NotDerivable, match="differs"):
                derived(forest, "it")
    with pytest.raises(NotDerivable):
        derived(GaussianForest(1, ONE, ADD, (1, 2), GREEDY), "it")
    for twin in (WholeBudgetEach, ColumnsFree, WholeRhoEach, EntriesFree):
        with pytest.raises(NotDerivable, match="not proven of a subclass"):
            derived(twin(2, ONE, REPLACE, (1, 2), PAIRS), "it")


@pytest.mark.parametrize(
    ("windows", "shape", "why"),
    [
        ((1, 0), FLAT, "1 or more"), ((), FLAT, "1 or more"), ((1,), PAIRS, "may be longer than"),
        ((MOST_HELD + 1,), FLAT, "would hold"),
    ],
)  # fmt: skip
def test_windows_that_cannot_be_are_refused(
    windows: tuple[int, ...], shape: ForestShape, why: str
) -> None:
    with pytest.raises(NotDerivable, match=why):
        WindowForest(1, ONE, ADD, windows, shape)


def test_levels_and_budgets_that_cannot_be_are_refused() -> None:
    for arities, shares in (((1,), (HALF, HALF)), ((2, 2), (HALF, HALF)), ((2,), (ONE, ONE * 0))):
        with pytest.raises(NotDerivable):
            ForestShape(arities, shares)
    for rho in (Fraction(0), Fraction(1_001)):
        with pytest.raises(NotDerivable, match="rho"):
            GaussianForest(1, rho, ADD, (1, 2), PAIRS)


def test_noise_beyond_64_bits_is_refused() -> None:
    for shape, wide in ((FLAT, 10**16), (FLAT, 2 * 10**12), (PAIRS, 10**12)):
        with pytest.raises(NotDerivable, match="64 bits"):
            WindowForest(1, Fraction(1, wide), ADD, (1, 100), shape)
    with pytest.raises(NotDerivable, match="64 bits"):
        GaussianForest(1, Fraction(1, 10**25), ADD, (1, 100), FOURS)
    week = (1, 1_440, 10_080)  # in minutes; a million in cents
    SumForest(1, Fraction(1, 20), ADD, week, best_forest(week), 0, 10**8)
    with pytest.raises(NotDerivable, match="64 bits"):
        SumForest(1, Fraction(1, 10**6), ADD, week, best_forest(week), 0, 10**8)


@pytest.mark.parametrize(("shape", "wide"), [(FLAT, 10**12), (PAIRS, 10**10)])
def test_noise_that_is_taken_stays_inside_64_bits(shape: ForestShape, wide: int) -> None:
    """Every node's noise as large as no more than e^-40 of them are: windows are still those of Python's integers."""
    forest = WindowForest(1, Fraction(1, wide), ADD, (1, 100), shape)
    huge = int(40 * max(forest.scales))
    told = answers(forest, ScriptedNoise([huge] * 1_000), np.zeros((250, 1), dtype=np.int64))
    assert 0 < told.min() <= told.max() <= 101 * huge


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
    hours = (1, 24, 168)
    assert best_forest(hours) == FLAT
    errors = [error(hours, place) for place in range(3)]
    assert errors == pytest.approx([2**0.5, 48**0.5, 336**0.5])
    day = [error((1, 60, 1_440), place) for place in range(3)]
    assert day[2] < 0.56 * 2_880**0.5
    assert np.prod(day) < np.prod([2**0.5, 120**0.5, 2_880**0.5])
    assert error((1, 10_080), 1) < 0.32 * 20_160**0.5


class EndsToBeNoisy(WindowForest):
    """Broken: a node that is complete after 4,000 ticks or more has no noise."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        return super()._taken(state, row, noise if state.updates < 4000 else ZeroNoise())


def from_then_on(kind: type[WindowForest], turns: int) -> Any:
    """Return the answers of twelve ticks after so many turns of the highest nodes, and what they draw."""
    forest, row = kind(2, EPSILON, ADD, (9, 4), THREE), Update(np.array([2, 1]))
    noise = ScriptedNoise([(7 * n) % 23 - 11 for n in range(400)])
    state, told = forest.init(noise), list[Any]()
    for _ in range(12):
        state, _ = forest.step(state, row, noise)
    before = len(noise.calls)
    state = replace(state, updates=state.updates + turns * THREE.spans[-1])
    for _ in range(12):
        state, _ = forest.step(state, row, noise)
        _, answer = forest.step(state, Query(), noise)
        told.append(np.array(answer).tolist())
    return told, noise.calls[before:]


@pytest.mark.parametrize("turns", [1, 700, 10**11])
def test_after_any_number_of_ticks_it_does_the_same(turns: int) -> None:
    """The exact checks end after some hundred ticks; from there on their number decides nothing but the place."""
    assert from_then_on(WindowForest, turns) == from_then_on(WindowForest, 0)
    assert (from_then_on(EndsToBeNoisy, turns) == from_then_on(EndsToBeNoisy, 0)) is (turns < 600)


# --- the moments of Gaussian noise ----------------------------------------------------------------


def moment(forest: GaussianForest, sides: tuple[Any, Any], order: int, radius: int) -> float:
    """sum P^order Q^(1-order) over all answers, by every path of noise within `radius`.

    Q has some more paths, so that each that answers as one of P's is among them.
    """
    silent = ScriptedNoise([0] * 100)
    answers(forest, silent, sides[0])
    variances = [float(call.scale) for call in silent.calls for _ in range(call.size)]
    laws: tuple[dict[bytes, float], ...] = ({}, {})
    for law, rows, reach in zip(laws, sides, (radius, radius + 2), strict=True):
        for path in itertools.product(range(-reach, reach + 1), repeat=len(variances)):
            mass = math.exp(-sum(z * z / (2 * v) for z, v in zip(path, variances, strict=True)))
            told = answers(forest, ScriptedNoise(path), rows).tobytes()
            law[told] = law.get(told, 0.0) + mass
    left, right = laws
    whole = sum(left.values())
    return sum(p**order / right[a] ** (order - 1) for a, p in left.items() if a in right) / whole


def gaussian(rho: Fraction, kind: type[GaussianForest] = GaussianForest) -> GaussianForest:
    return kind(1, rho, ADD, (1, 2), FLAT)


@pytest.mark.parametrize(("at", "order"), [(0, 2), pytest.param(1, 4, marks=pytest.mark.full)])
def test_two_levels_meet_their_claim(at: int, order: int) -> None:
    sides, claim = ([[1 - at], [at]], [[0], [0]]), math.exp(order * (order - 1) * HALF)
    forest = GaussianForest(1, HALF, ADD, (1, 2), PAIRS)  # variances 2 and 2
    assert 1 < moment(forest, sides, order, 8) <= claim * (1 + 1e-6)
    assert moment(WholeRhoEach(1, HALF, ADD, (1, 2), PAIRS), sides, order, 6) > claim


def test_single_ticks_meet_their_claim_and_no_less_would_do() -> None:
    for order in (2, 4):
        allowed = math.exp(order * (order - 1) * HALF)
        sides = ([[1], [0]], [[0], [0]])
        assert moment(gaussian(HALF), sides, order, 12) == pytest.approx(allowed, rel=1e-6)


def test_an_event_that_moves_costs_two_entries() -> None:
    moved, allowed = ([[1, 0]], [[0, 1]]), math.exp(2 * HALF)
    right, twin = (kind(2, HALF, REPLACE, (1,), FLAT) for kind in (GaussianForest, EntriesFree))
    assert moment(right, moved, 2, 12) == pytest.approx(allowed, rel=1e-6)
    assert moment(twin, moved, 2, 9) > 2 * allowed


def test_the_events_of_a_user_cost_the_square_of_their_number() -> None:
    allowed, nobody = math.exp(2 * HALF), [[0], [0]]
    for theirs in ([[2], [0]], [[1], [1]]):
        assert moment(gaussian(HALF / 4), (theirs, nobody), 2, 18) <= allowed * (1 + 1e-6)
    assert moment(gaussian(HALF), ([[2], [0]], nobody), 2, 12) > allowed
