"""Sums: what one event changes, found by trying every content; the loss of the real noise on it, exactly; broken twins.

Independent of the code: contents are enumerated (`oracles.event_contents`, of means `oracles.mean_contents`), the worst
difference of rows is counted by hand. Each unit of a difference costs what one unit costs in every level of a tree or a
forest; that it is a shift of one noise a level is shown of counts (test_counters_exact, test_forest_exact), with which
sums are one at what an event changes (test_linear).
"""

import itertools
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pytest
from oracles.event_contents import differences
from oracles.mean_contents import Row, pairs
from unit.mechanisms.broken_means import ScaleOfCounts
from unit.mechanisms.shifted_noise import answers

from stream_dp.core.guarantee import PureDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import MOST_UNITS
from stream_dp.core.row_relations import AMOUNTS, AmountRows, HalvedRows
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.counter import Counter, SumCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.pairs import (
    SumsAndCounts,
    SumsAndEver,
    WindowsAndEver,
    sums_share,
)
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
ONE, HALF, EPSILON = Fraction(1), Fraction(1, 2), Fraction(4, 5)
PAIRS = ForestShape((2,), (HALF, HALF))
Setting: TypeAlias = tuple[int, int, int, int]
SMALL: list[Setting] = [
    (width, ones, lowest, highest)
    for width in (1, 2, 3)
    for ones in (1, 2)
    for lowest, highest in ((0, 1), (0, 3), (2, 3), (-1, 2), (-3, -1), (-2, 2), (1, 1), (-3, 0))
]


class ForestOfOneEntry(SumForest):
    """Broken: an event sets one entry."""

    @property
    def l1(self) -> int:
        return self.weight


class ForestAsAdded(SumForest):
    """Broken: under replace, the scale of add_remove."""

    @property
    def l1(self) -> int:
        return min(self.ones, self.width) * self.weight


def sums(kind: Any, relation: Neighbors, setting: Setting) -> Any:
    width, ones, *amounts = setting
    shape = (5,) if kind is SumCounter else ((1, 4), PAIRS)
    return kind(width, EPSILON, relation, *shape, *amounts, ones)


def unit_cost(mechanism: Any) -> Fraction:
    """What one unit costs: it shifts one noise by one in each level."""
    if isinstance(mechanism, SumCounter | Counter):
        return sum((t.shape.height / t.scale for t in mechanism.trees), Fraction(0))
    return sum((1 / scale for scale in mechanism.scales), Fraction(0))


@pytest.mark.parametrize("kind", [SumCounter, SumForest])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_what_one_event_changes_is_what_the_noise_is_made_for(
    relation: Neighbors, kind: type[Any]
) -> None:
    for setting in SMALL:
        mechanism, changes = sums(kind, relation, setting), differences(relation, *setting)
        assert mechanism.l1 == max(sum(map(abs, change)) for change in changes), setting
        assert mechanism.l1 * unit_cost(mechanism) == EPSILON
        rows = mechanism.rows.relation(relation)
        assert isinstance(rows, AmountRows)
        assert rows.linf == max(max(map(abs, change)) for change in changes)
        zero = np.zeros(setting[0], np.int64)
        for change in changes:
            assert rows.accept(zero, np.array(change)) is not None
            assert rows.accept(np.array(change), zero) is not None


@pytest.mark.parametrize("twin", [ForestOfOneEntry, ForestAsAdded])
def test_a_twin_loses_more_than_it_claims(twin: type[SumForest]) -> None:
    worst = max(
        sum(map(abs, change)) * unit_cost(sums(twin, relation, setting))
        for relation in (ADD, REPLACE)
        for setting in SMALL
        for change in differences(relation, *setting)
    )
    assert worst >= Fraction(3, 2) * EPSILON


def test_relation_of_amounts_counts_the_fewest_events() -> None:
    """Every small difference, against dealing out units to events by search."""
    l1, linf = 3, 2
    events = [
        event
        for event in itertools.product(range(-linf, linf + 1), repeat=2)
        if 0 < sum(map(abs, event)) <= l1
    ]
    reached: dict[tuple[int, ...], int] = {(0, 0): 0}
    for number in (1, 2, 3):
        for base in [gap for gap, least in reached.items() if least == number - 1]:
            for event in events:
                reached.setdefault((base[0] + event[0], base[1] + event[1]), number)
    zero = np.zeros(2, np.int64)
    for gap in itertools.product(range(-7, 8), repeat=2):
        for most in (1, 2, 3):
            taken = AmountRows(l1, linf, most).accept(np.array(gap), zero)
            assert (taken is not None) == (reached.get(gap, 99) <= most)
    after = AmountRows(l1, linf).accept(np.array([2, -1]), zero)
    assert after is not None
    assert after.accept(zero, zero) is after
    assert after.accept(np.array([1, 0]), zero) is None
    assert AmountRows(l1, linf).accept(np.array([0.5, 0]), zero) is None
    assert not after.first_pair_consistent


def test_a_moved_replacement_is_two_events() -> None:
    rows, zero = SumCounter(2, EPSILON, ADD, 5, -1, 3).rows.relation(MOVES), np.zeros(2, np.int64)
    first = rows.accept(np.array([3, 0]), zero)
    assert first is not None
    second = first.accept(zero, np.array([0, 3]))
    assert second is not None
    assert second.accept(zero, np.array([0, 1])) is None
    with pytest.raises(NotDerivable):
        _ = SumCounter(2, EPSILON, MOVES, 5, -1, 3).l1
    with pytest.raises(NotDerivable, match="two rows"):
        SumForest(2, EPSILON, MOVES, (1, 4), PAIRS, 0, 9)


def test_answers_are_exact_sums_with_noise_that_no_row_changes() -> None:
    rows = np.random.default_rng(3).integers(-50, 50, (12, 2))
    for horizon in (12, None):
        mechanism = SumCounter(2, EPSILON, ADD, horizon, -50, 50)
        assert (answers(mechanism, ZeroNoise(), rows) == rows.cumsum(axis=0)).all()
        noise = answers(mechanism, SeededNoise(5), rows * 0)
        assert (answers(mechanism, SeededNoise(5), rows) == rows.cumsum(axis=0) + noise).all()
        state, _ = mechanism.step(mechanism.init(ZeroNoise()), Update(rows[0]), ZeroNoise())
        assert not state.noise.total.any()  # the counter inside has counted nothing


def with_ever(horizon: int | None, ones: int = 1) -> SumsAndEver:
    windows = SumForest(2, EPSILON * 2 / 3, REPLACE, (1, 4), PAIRS, -7, 5, ones)
    return SumsAndEver(windows, SumCounter(2, EPSILON / 3, REPLACE, horizon, -7, 5, ones))


def test_sums_are_derived_and_say_what_they_are_made_for() -> None:
    for made, l1 in (
        (SumCounter(3, EPSILON, ADD, None, -7, 5, ones=2), 14),
        (SumForest(3, EPSILON, REPLACE, (1, 4), FLAT, -7, 5), 14),
        (with_ever(None, 2), 24),
    ):
        assert derived(made, "volume").guarantee == made.guarantee
        assert made.guarantee.measure.epsilon == EPSILON  # type: ignore[union-attr]
        law, relation = made.rows, made.rows.relation(made.neighbors)
        assert (law.weight, law.l1, law.lowest, law.highest) == (7, l1, -7, 5)
        assert isinstance(relation, AmountRows)
        assert relation.l1 == l1
    assert with_ever(None, 2).rows.ones == 2


def test_what_is_not_proven_of_sums_is_not_derived() -> None:
    twin = ForestOfOneEntry(1, EPSILON, ADD, (1, 4), PAIRS, 0, 9)
    with pytest.raises(NotDerivable, match="not proven of a subclass"):
        derived(twin, "it")
    with pytest.raises(NotDerivable, match="is proven for another class"):
        derived(SumsAndEver(twin, SumCounter(1, EPSILON, ADD, 9, 0, 9)), "it")
    counted: Any = Counter(1, EPSILON, ADD, 9)
    mixed = WindowsAndEver(SumForest(1, EPSILON, ADD, (1, 4), PAIRS, 0, 9), counted)  # type: ignore[arg-type]
    assert mixed.rows.weight == 1  # so that no series with amounts takes it


@pytest.mark.parametrize(
    "other",
    [
        SumCounter(2, EPSILON, ADD, 9, -1, 3), SumCounter(2, EPSILON, ADD, 9, 0, 2),
        SumCounter(1, EPSILON, ADD, 9, 0, 3), SumCounter(2, EPSILON, REPLACE, 9, 0, 3),
        SumCounter(2, EPSILON, ADD, 9, 0, 3, 2),
    ],
)  # fmt: skip
def test_sums_for_different_events_are_not_put_together(other: SumCounter) -> None:
    windows = SumForest(2, EPSILON, ADD, (1, 4), PAIRS, 0, 3)
    with pytest.raises(NotDerivable, match="must have the same"):
        SumsAndEver(windows, other)


def test_amounts_that_are_none_are_refused() -> None:
    for amounts in ((3, 2), (0, 0), (0, MOST_UNITS + 1), (-MOST_UNITS - 1, 0)):
        with pytest.raises(NotDerivable, match="a sum needs a lowest and a highest amount"):
            SumCounter(1, EPSILON, ADD, 5, *amounts)
        with pytest.raises(NotDerivable, match="a sum needs a lowest and a highest amount"):
            SumForest(1, EPSILON, ADD, (1, 4), PAIRS, *amounts)


def test_bad_rows_are_refused_without_their_content() -> None:
    mechanism = SumCounter(2, EPSILON, ADD, 5, -1, 1)
    state = mechanism.init(ZeroNoise())
    for row in (np.zeros(3, np.int64), np.array([1 << 61, 0]), np.array([-(1 << 61), 0])):
        with pytest.raises(RejectedMessage) as caught:
            mechanism.step(state, Update(row), ZeroNoise())
        assert str(1 << 61) not in str(caught.value)
        assert not mechanism.takes(Update(row))
    assert mechanism.takes(Update(np.array([-5, 5])))
    assert mechanism.takes(Query())
    assert AMOUNTS.holds(np.array([-(1 << 60)]))


# --- sums beside counts: what a mean is read off ---------------------------------------------------

MEANS: list[Setting] = [
    (keys, ones, low, high)
    for keys in (1, 2, 3)
    for ones in (1, 2)
    for low, high in ((0, 1), (0, 4), (7, 10), (-2, 2))
]


def mean(relation: Neighbors, setting: Setting, kind: type[SumForest] = SumForest) -> SumsAndCounts:
    """Windows of one tick and of two, and so far: 3 units of epsilon for sums, 2 for counts."""
    keys, ones, low, high = setting
    middle = (low + high) // 2
    amounts = low - middle, high - middle
    added = SumsAndEver(
        kind(keys, 2 * ONE, relation, (1, 2), PAIRS, *amounts, ones),
        SumCounter(keys, ONE, relation, 5, *amounts, ones),
    )
    counted = WindowsAndEver(
        WindowForest(keys, ONE, relation, (1, 2), PAIRS, ones),
        Counter(keys, ONE, relation, 5, ones),
    )
    return SumsAndCounts(added, counted)


def test_a_mean_is_its_halves_with_noise_of_their_own() -> None:
    both, rows = mean(ADD, (2, 1, 0, 4)), np.random.default_rng(4).integers(0, 9, (5, 4))
    halves: tuple[Any, Any] = (both.sums, both.counts)
    noise, own = SeededNoise(4), SeededNoise(4)
    state, parts = both.init(noise), [half.init(own) for half in halves]
    for row in rows:
        state, _ = both.step(state, Update(row), noise)
        told = []
        for at, half in enumerate(halves):
            parts[at], _ = half.step(parts[at], Update(np.split(row, 2)[at]), own)
            told.append(half.step(parts[at], Query(), own)[1].reshape(both.views, 2))
        _, answer = both.step(state, Query(), noise)
        assert answer is not None
        assert answer.tolist() == np.hstack(told).ravel().tolist()
    assert noise.calls == own.calls


def loss(both: Any, pair: tuple[Row, Row]) -> Fraction:
    gap = np.abs(np.array(pair[0]) - np.array(pair[1]))
    added, counted = (int(half.sum()) for half in np.split(gap, 2))
    costs = [unit_cost(h.forest) + unit_cost(h.ever) for h in (both.sums, both.counts)]
    return added * costs[0] + counted * costs[1]


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_record_of_a_mean_costs_more_than_is_claimed(relation: Neighbors) -> None:
    """Under replace with one key never both at once: a changed amount changes no count."""
    for setting in MEANS:
        both, records = mean(relation, setting), pairs(relation, *setting)
        assert both.guarantee.measure == PureDP(Fraction(5))
        assert derived(both, "it").guarantee == both.guarantee
        worst = max(loss(both, pair) for pair in records)
        assert worst <= 5
        if relation is ADD or (setting[:2] == (2, 1) and (setting[2] + setting[3]) % 2 == 0):
            assert worst == 5, setting


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_relation_of_a_mean_takes_every_record_and_not_two(relation: Neighbors) -> None:
    for setting in MEANS:
        both, records = mean(relation, setting), pairs(relation, *setting)
        rows = both.rows.relation(relation)
        assert isinstance(rows, HalvedRows)
        for left, right in records:
            assert rows.accept(np.array(left), np.array(right)) is not None
            assert both.takes(Update(np.array(left)))
        nothing = np.zeros(both.width, np.int64)
        beyond, twice = nothing.copy(), nothing.copy()
        beyond[0] = both.sums.rows.l1 + 1
        twice[setting[0]] = 2
        record = next(np.array(row) for pair in records for row in pair if any(row))
        after = rows.accept(nothing, record)
        assert after is not None
        assert after.accept(nothing, record) is None
        assert rows.accept(nothing, beyond) is None
        assert rows.accept(nothing, twice) is None
        assert rows.accept(nothing[1:], nothing[1:]) is None
        assert not both.takes(Update(-twice))


def test_twins_of_a_mean_lose_more_and_are_not_derived() -> None:
    setting = (1, 1, 3, 8)
    twin = mean(ADD, setting, ScaleOfCounts)
    assert max(loss(twin, pair) for pair in pairs(ADD, *setting)) > 7
    forgetful = pairs(ADD, *setting, centred=False)
    assert max(loss(mean(ADD, setting), pair) for pair in forgetful) > 8
    with pytest.raises(NotDerivable):
        derived(twin, "it")


def test_the_share_of_sums_is_the_best_of_twenty() -> None:
    """By hand, of the mean square error over the clamp; its neighbours are worse."""
    for l1, touched, half in ((120, 1, 120), (240, 2, 120), (3, 5, 3)):
        best = sums_share(l1, touched, Fraction(half))

        def error(share: float, l1: int = l1, touched: int = touched, half: int = half) -> float:
            return (l1 / share) ** 2 + (touched * half / (1 - share)) ** 2 / 3

        assert error(float(best)) <= min(error(float(best) + 0.05), error(float(best) - 0.05))
        right = 1 / (1 + (touched * half / l1) ** (2 / 3) * 3 ** (-1 / 3))
        assert abs(float(best) - right) <= 0.05
