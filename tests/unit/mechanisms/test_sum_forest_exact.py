"""Windows of sums: whatever one event may change costs epsilon, as a shift of one node's noises a level.

What an event may change is found by trying every content (oracles.event_contents). That a difference is such a shift,
and that no less would do, is shown of a forest of counts (test_forest_exact), with which a forest of sums is one at
what an event changes (test_linear).
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.event_contents import Row, differences
from unit.mechanisms import broken_sum_forests as broken

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import MOST_UNITS
from stream_dp.core.row_relations import AmountRows
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape, best_forest
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import SumsAndEver, WindowsAndEver
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import ZeroNoise

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
        rows, zero = mechanism.rows.relation(relation), np.zeros(setting[0], np.int64)
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


def answers(made: Any, noise: Any, rows: IntArray) -> IntArray:
    """The answers after each row, shape (ticks, windows * width)."""
    state, found = made.init(noise), []
    for row in rows:
        state, _ = made.step(state, Update(row), noise)
        _, answer = made.step(state, Query(), noise)
        assert answer is not None
        found.append(answer)
    return np.array(found)


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
        law = made.rows
        assert (law.weight, law.l1, law.lowest, law.highest) == (7, rows, -7, 5)
        relation = made.rows.relation(made.neighbors)
        assert isinstance(relation, AmountRows)
        assert relation.l1 == rows
        assert made.takes(Query())
        assert made.takes(Update(np.full(made.width, -5)))
        assert not made.takes(Update(np.zeros(made.width + 1, np.int64)))
    assert with_ever(None, 2).rows.ones == 2


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
    assert mixed.rows.weight == 1  # so that no series with amounts takes it


@pytest.mark.parametrize("kind", [WindowForest, SumForest])
def test_noise_that_is_too_little_is_not_derived(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kind(1, EPSILON, ADD, (1, 4), PAIRS, *((0, 9) if kind is SumForest else ()))
    assert derived(made, "it").guarantee == made.guarantee
    monkeypatch.setattr(kind, "scales", tuple(scale * 99 / 100 for scale in made.scales))
    with pytest.raises(NotDerivable, match="noise"):
        derived(replace(made), "it")


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


def test_the_largest_amounts_have_windows_of_a_week_of_minutes() -> None:
    """A million in cents, at a small epsilon: refused by no bound on its noise."""
    windows = (1, 1_440, 10_080)
    SumForest(1, Fraction(1, 20), ADD, windows, best_forest(windows), 0, 10**8)
    with pytest.raises(NotDerivable, match="64 bits"):
        SumForest(1, Fraction(1, 10**6), ADD, windows, best_forest(windows), 0, 10**8)
