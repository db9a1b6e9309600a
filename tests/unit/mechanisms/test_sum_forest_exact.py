"""Windows of sums, exactly: whatever one event may change is a shift of one node's noises a level, and costs epsilon.

What an event may change is found by trying every content (oracles.event_contents). Two runs on neighbouring streams
are played with noises that differ in the nodes that hold the event, by the rows' difference: all answers are the same,
so the loss is at most the sum of |shift| / scale. That no less would do says the linear program of
`oracles.tree_privacy`.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles import window_forest as oracle
from oracles.event_contents import Row, differences
from oracles.tree_privacy import least_shift
from unit.mechanisms import broken_sum_forests as broken

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import AmountRows
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.event_amounts import MOST_UNITS
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.serving import derived, event_rows, ones_of, weight_of
from stream_dp.mechanisms.windows.forest_shape import FLAT, ForestShape, best_forest
from stream_dp.mechanisms.windows.sum_forest import SumForest
from stream_dp.mechanisms.windows.window_forest import WindowForest
from stream_dp.mechanisms.windows.windows_and_ever import SumsAndEver, WindowsAndEver
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
EPSILON, HALF, EIGHTH = Fraction(2, 3), Fraction(1, 2), Fraction(1, 8)
PAIRS = ForestShape((2,), (HALF, HALF))
THREE = ForestShape((3, 2), (HALF, EIGHTH, 3 * EIGHTH))
SHAPES = [(FLAT, (1, 3)), (PAIRS, (1, 2, 5)), (THREE, (1, 7))]
SMALL = [
    (width, ones, lowest, highest)
    for width in (1, 2, 3)
    for ones in (1, 2)
    for lowest, highest in ((0, 1), (0, 3), (2, 3), (-1, 2), (-3, -1), (-2, 2), (-1, -1), (-3, 0))
]
BIG = 1 << 20


def forest(
    relation: Neighbors, setting: tuple[int, int, int, int], kind: type[SumForest] = SumForest
) -> SumForest:
    """A forest of two levels for these rows."""
    width, ones, lowest, highest = setting
    return kind(width, EPSILON, relation, (1, 4), PAIRS, lowest, highest, ones)


def loss(mechanism: SumForest, difference: Row) -> Fraction:
    """What this difference costs: each unit is one more in the noise of one node a level."""
    return sum(map(abs, difference)) * sum((1 / s for s in mechanism.scales), Fraction(0))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_noise_is_for_what_one_event_changes(relation: Neighbors) -> None:
    for setting in SMALL:
        mechanism, found = forest(relation, setting), differences(relation, *setting)
        assert max(loss(mechanism, each) for each in found) == EPSILON, setting
        rows, zero = event_rows(mechanism, relation), np.zeros(setting[0], np.int64)
        assert isinstance(rows, AmountRows)
        for each in found:
            assert rows.accept(zero, np.array(each)) is not None


@pytest.mark.parametrize("name", broken.TOO_LITTLE_NOISE)
def test_a_twin_loses_more_than_it_claims(name: str) -> None:
    worst = max(
        loss(forest(relation, setting, broken.TOO_LITTLE_NOISE[name]), each) / EPSILON
        for relation in (ADD, REPLACE)
        for setting in SMALL
        for each in differences(relation, *setting)
    )
    assert worst >= Fraction(3, 2)


class Nodes:
    """Noise for one node after the other, in the order of the oracle; those that hold `tick` (from 0) have `more`."""

    def __init__(self, made: SumForest, ticks: int, tick: int, more: IntArray) -> None:
        arities, spans = made.shape.arities, made.shape.spans
        self.made, self.more, self.cost = made, more, Fraction(0)
        self.left = [
            (level, i * spans[level] <= tick < (i + 1) * spans[level])
            for level, i in oracle.complete(arities, ticks)
        ]
        self.rng = np.random.default_rng(7)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """The next node's noises, one for each entry of a row, at the scale of its level."""
        level, holds = self.left.pop(0)
        assert size == self.made.width
        assert scale == self.made.l1 / (self.made.shape.shares[level] * self.made.epsilon)
        drawn = self.rng.integers(-(1 << 24), 1 << 24, size)
        self.cost += Fraction(int(np.abs(self.more).sum())) / scale * holds
        return drawn + self.more * holds

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """A forest has no use for it."""
        raise AssertionError("a forest draws Laplace noise only")

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Nor for this."""
        raise AssertionError("a forest draws Laplace noise only")


def check(
    kind: type[SumForest], relation: Neighbors, shape: ForestShape, windows: tuple[int, ...]
) -> None:
    """At every tick, for every difference: the run without it and with that much more noise answers the same."""
    setting = (2, 2, -2, 3)
    width, ones, lowest, highest = setting
    made = kind(width, EPSILON, relation, windows, shape, lowest, highest, ones)
    ticks = 2 * max(windows) + shape.spans[-1]
    rows = np.random.default_rng(1).integers(-9, 9, (ticks, width))
    for tick in (0, 1, 3, max(windows)):
        for each in differences(relation, *setting):
            moved, costs, found = np.array(each), [], []
            for more in (np.zeros(width, np.int64), moved):
                noise = Nodes(made, ticks, tick, more)
                with_event = rows.copy()
                with_event[tick] -= more
                found.append(answers(made, noise, with_event))
                costs.append(noise.cost)
            assert (found[0] == found[1]).all(), f"tick {tick}: {each} shows"
            assert costs[1] <= made.epsilon


def answers(made: Any, noise: Any, rows: IntArray) -> IntArray:
    """The answers after each row, shape (ticks, windows * width)."""
    state, found = made.init(noise), []
    for row in rows:
        state, _ = made.step(state, Update(row), noise)
        _, answer = made.step(state, Query(), noise)
        assert answer is not None
        found.append(answer)
    return np.array(found)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_what_an_event_changes_is_a_shift_of_the_noise(
    relation: Neighbors, shape: ForestShape, windows: tuple[int, ...]
) -> None:
    check(SumForest, relation, shape, windows)


@pytest.mark.parametrize(
    "twin",
    [broken.ForestOfOnes, broken.ForestOfWholeBudgets, broken.FirstNodeBare, broken.SurplusOfRows],
)
def test_a_forest_that_is_broken_is_caught_by_the_shift(twin: type[SumForest]) -> None:
    with pytest.raises(AssertionError):
        check(twin, ADD, PAIRS, (1, 5))


@pytest.mark.parametrize(("shape", "windows"), SHAPES)
def test_answers_without_noise_are_the_sums(shape: ForestShape, windows: tuple[int, ...]) -> None:
    made = SumForest(3, EPSILON, ADD, windows, shape, -MOST_UNITS, MOST_UNITS)
    check_sums(made, windows)


def check_sums(made: Any, windows: tuple[int, ...]) -> None:
    """Large random rows of both signs, against sums over each window."""
    rows = np.random.default_rng(4).integers(-(1 << 54), 1 << 54, (60, 3))
    found = answers(made, ZeroNoise(), rows)
    for tick in range(1, 61):
        right = [rows[max(0, tick - window) : tick].sum(axis=0) for window in windows]
        np.testing.assert_array_equal(found[tick - 1], np.concatenate(right))


def test_a_sum_that_is_clipped_below_nothing_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_sums(broken.ClippedSums(3, EPSILON, ADD, (1, 4), FLAT, -1, 1), (1, 4))


@pytest.mark.parametrize(("lowest", "highest"), [(0, 1), (0, 3), (-2, 1)])
@pytest.mark.parametrize(("shape", "windows"), [(FLAT, (1, 3)), (PAIRS, (1, 4))])
def test_the_real_noise_loses_the_claim_on_the_largest_amount(
    shape: ForestShape, windows: tuple[int, ...], lowest: int, highest: int
) -> None:
    made = SumForest(1, EPSILON, ADD, windows, shape, lowest, highest)
    assert least_loss(made, made.weight) == pytest.approx(float(EPSILON), abs=1e-3)
    assert least_loss(made, 1) == pytest.approx(float(EPSILON) / made.weight, abs=1e-3)


def test_a_forest_made_for_ones_loses_as_many_times_its_claim_as_an_amount_has_units() -> None:
    made = broken.ForestOfOnes(1, EPSILON, ADD, (1, 4), PAIRS, 0, 3)
    assert least_loss(made, 3) == pytest.approx(3 * float(EPSILON), abs=1e-3)


def least_loss(made: SumForest, units: int) -> float:
    """The least that an event of so many units loses, out in the tails, by the real map of the noises."""
    ticks = 2 * max(made.windows) + 2
    empty = np.zeros((ticks, 1), dtype=np.int64)
    called = ScriptedNoise([0] * 1_000)
    answers(made, called, empty)
    scales = [call.scale for call in called.calls]
    columns = []
    for place in range(len(scales)):
        script = [0] * len(scales)
        script[place] = BIG
        columns.append(answers(made, ScriptedNoise(script), empty).ravel() / BIG)
    matrix = np.array(columns).T
    used = np.abs(matrix).max(axis=0) > 1e-4
    weights = np.array([float(1 / scale) for scale in scales])[used]
    now = np.repeat(np.arange(ticks), len(made.windows))
    spans = np.tile(made.windows, ticks)
    found = []
    for event in range(ticks):
        moved = units * ((event <= now) & (event > now - spans)).astype(np.int64)
        shift = least_shift(matrix[:, used], moved, weights, integer=False)
        found.append(float(weights @ np.abs(shift)))
    return max(found)


def test_its_noise_is_that_of_a_count_times_what_an_event_changes() -> None:
    """The same draws, the same bands: l1 times those of a forest of counts at epsilon, to a unit."""
    shape = best_forest((1, 200))
    sums = SumForest(1, EPSILON, ADD, (1, 200), shape, -70, 240)
    counts = WindowForest(1, EPSILON / 240, ADD, (1, 200), shape)
    rows = np.random.default_rng(2).integers(0, 50, (230, 1))
    assert (answers(sums, SeededNoise(3), rows) == answers(counts, SeededNoise(3), rows)).all()
    for place, updates in ((0, 1), (1, 30), (1, 230)):
        assert sums.view_band(place, updates, 0.95) == counts.view_band(place, updates, 0.95)


def with_ever(horizon: int | None, ones: int = 1) -> SumsAndEver:
    """Windows at two thirds, the sum so far at a third."""
    sums = SumForest(2, EPSILON * 2 / 3, REPLACE, (1, 4), PAIRS, -7, 5, ones)
    return SumsAndEver(sums, SumCounter(2, EPSILON / 3, REPLACE, horizon, -7, 5, ones))


def test_it_is_derived_and_says_what_it_is_made_for() -> None:
    for made, rows in (
        (SumForest(3, EPSILON, ADD, (1, 4), PAIRS, -7, 5, ones=2), 14),
        (SumForest(3, EPSILON, REPLACE, (1, 4), FLAT, -7, 5), 14),
        (with_ever(None, 2), 24),
        (with_ever(9), 14),
    ):
        assert derived(made, "volume").guarantee == made.guarantee
        assert made.guarantee.measure.epsilon == EPSILON  # type: ignore[union-attr]
        assert (weight_of(made), made.l1, made.lowest, made.highest) == (7, rows, -7, 5)
        relation = event_rows(made, made.neighbors)
        assert isinstance(relation, AmountRows)
        assert relation.l1 == rows
        assert made.takes(Query())
        assert made.takes(Update(np.full(made.width, -5)))
        assert not made.takes(Update(np.zeros(made.width + 1, np.int64)))
    assert ones_of(with_ever(None, 2)) == 2


def test_what_is_not_proven_is_not_derived() -> None:
    twin = broken.ForestOfOnes(1, EPSILON, ADD, (1, 4), PAIRS, 0, 9)
    with pytest.raises(NotDerivable, match="not proven of a subclass"):
        derived(twin, "it")
    with pytest.raises(NotDerivable, match="another class than what is proven"):
        derived(SumsAndEver(twin, SumCounter(1, EPSILON, ADD, 9, 0, 9)), "it")
    greedy = SumForest(1, EPSILON, ADD, (1, 4), ForestShape((2,), (HALF, 5 * EIGHTH)), 0, 9)
    with pytest.raises(NotDerivable, match="differs"):
        derived(greedy, "it")
    with pytest.raises(NotDerivable, match="two rows"):
        SumForest(2, EPSILON, MOVES, (1, 4), PAIRS, 0, 9)
    counted: Any = Counter(1, EPSILON, ADD, 9)
    mixed = WindowsAndEver(SumForest(1, EPSILON, ADD, (1, 4), PAIRS, 0, 9), counted)  # type: ignore[arg-type]
    assert weight_of(mixed) == 1  # so that no series with amounts takes it


@pytest.mark.parametrize(
    "other",
    [
        SumCounter(2, EPSILON, ADD, 9, -1, 3), SumCounter(2, EPSILON, ADD, 9, 0, 2),
        SumCounter(1, EPSILON, ADD, 9, 0, 3), SumCounter(2, EPSILON, REPLACE, 9, 0, 3),
        SumCounter(2, EPSILON, ADD, 9, 0, 3, 2),
    ],
)  # fmt: skip
def test_two_that_are_made_for_different_events_are_not_put_together(other: SumCounter) -> None:
    sums = SumForest(2, EPSILON, ADD, (1, 4), PAIRS, 0, 3)
    with pytest.raises(NotDerivable, match="differ in"):
        SumsAndEver(sums, other)


@pytest.mark.parametrize("amounts", [(3, 2), (0, 0), (0, MOST_UNITS + 1), (-MOST_UNITS - 1, 0)])
def test_amounts_that_are_none_are_refused(amounts: tuple[int, int]) -> None:
    with pytest.raises(NotDerivable, match="a sum needs amounts"):
        SumForest(1, EPSILON, ADD, (1, 4), PAIRS, *amounts)


def test_windows_that_are_none_are_refused() -> None:
    for windows, why in (((), "1 or more"), ((1,), "no longer than"), ((500_000,), "would hold")):
        with pytest.raises(NotDerivable, match=why):
            SumForest(1, EPSILON, ADD, windows, PAIRS, 0, 3)


def test_the_largest_amounts_have_windows_of_a_week_of_minutes() -> None:
    """A million in cents, at a small epsilon: refused by no bound on its noise."""
    windows = (1, 1_440, 10_080)
    SumForest(1, Fraction(1, 20), ADD, windows, best_forest(windows), 0, 10**8)
    with pytest.raises(NotDerivable, match="64 bits"):
        SumForest(1, Fraction(1, 10**6), ADD, windows, best_forest(windows), 0, 10**8)


def test_bad_rows_are_refused_without_their_content() -> None:
    made = SumForest(2, EPSILON, ADD, (1, 4), PAIRS, -1, 1)
    state = made.init(ZeroNoise())
    bad: list[Any] = [np.zeros(3, np.int64), np.zeros(2), np.array([1 << 61, 0])]
    for row in bad:
        with pytest.raises(RejectedMessage) as caught:
            made.step(state, Update(row), ZeroNoise())
        assert str(1 << 61) not in str(caught.value)
