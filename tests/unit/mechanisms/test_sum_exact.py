"""Sums: what one event changes, found by trying every content; the loss of the real noise on it, exactly; broken twins.

Independent of the code: contents are enumerated, the worst difference of rows is counted by hand. The loss of integer
noise on a difference y is found on one tick in Fractions from the two-sided geometric law; that of all ticks is shown
of counters, with which sums are one at what an event changes (test_linear).
"""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracles.event_contents import differences
from unit.mechanisms.broken_sums import EPSILON, TWINS

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import MOST_UNITS
from stream_dp.core.row_relations import AMOUNTS, AmountRows
from stream_dp.errors import NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.serving import derived
from stream_dp.testing.noise import SeededNoise, ZeroNoise

ADD, REPLACE, MOVES = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Neighbors.REPLACE_ANY_TICK
BIG = 1 << 20
SMALL = [
    (width, ones, lowest, highest)
    for width in (1, 2, 3)
    for ones in (1, 2)
    for lowest, highest in ((0, 1), (0, 3), (2, 3), (-1, 2), (-3, -1), (-2, 2), (1, 1), (-3, 0))
]


def sums(relation: Neighbors, *setting: int, kind: type[SumCounter] = SumCounter) -> SumCounter:
    """A sum counter for five ticks."""
    width, ones, lowest, highest = setting
    return kind(width, EPSILON, relation, 5, lowest, highest, ones)


def loss(mechanism: SumCounter, difference: tuple[int, ...]) -> Fraction:
    """What this difference in the last tick costs: each unit shifts one noise by one in each level of a tree."""
    per_unit = sum((Fraction(t.shape.height) / t.scale for t in mechanism.trees), Fraction(0))
    return per_unit * sum(map(abs, difference))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_what_one_event_changes_is_what_the_noise_is_made_for(relation: Neighbors) -> None:
    for setting in SMALL:
        mechanism, found = sums(relation, *setting), differences(relation, *setting)
        assert mechanism.l1 == max(sum(map(abs, each)) for each in found), setting
        assert max(loss(mechanism, each) for each in found) == EPSILON
        rows = mechanism.rows.relation(relation)
        assert isinstance(rows, AmountRows)
        assert rows.linf == max(max(map(abs, each)) for each in found)
        zero = np.zeros(setting[0], np.int64)
        for each in found:
            assert rows.accept(zero, np.array(each)) is not None
            assert rows.accept(np.array(each), zero) is not None


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_loses_more_than_it_claims(name: str) -> None:
    worst = max(
        loss(sums(relation, *setting, kind=TWINS[name]), each) / EPSILON
        for relation in (ADD, REPLACE)
        for setting in SMALL
        for each in differences(relation, *setting)
    )
    assert worst >= Fraction(3, 2)


def test_the_range_alone_is_too_little_where_the_other_content_adds_nothing() -> None:
    """Amounts from 2 to 3: a record that then fails `where` takes 3 away, and not 1."""
    setting = (1, 1, 2, 3)
    assert sums(REPLACE, *setting).l1 == 3
    twin = sums(REPLACE, *setting, kind=TWINS["RangeAlone"])
    assert max(loss(twin, each) for each in differences(REPLACE, *setting)) == 3 * EPSILON


def answers(mechanism: SumCounter, noise: Any, rows: IntArray) -> IntArray:
    """The answers after each row, shape (ticks, width)."""
    state, found = mechanism.init(noise), []
    for row in rows:
        state, _ = mechanism.step(state, Update(row), noise)
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        found.append(answer)
    return np.array(found)


def geometric(scale_inverse: int, at: int, base: Fraction) -> Fraction:
    """The two-sided geometric law with ratio `base` ** (1 / scale_inverse), at a multiple of it; up to a constant."""
    return base ** abs(at * scale_inverse)


@pytest.mark.parametrize(("lowest", "highest"), [(0, 1), (0, 2), (0, 3), (-3, 2), (-1, 2)])
def test_one_tick_in_fractions(lowest: int, highest: int) -> None:
    """One row, its sum with noise of ratio a = (2/3) per unit: the largest ratio of any answer is (3/2)^l1 exactly."""
    ratio = Fraction(2, 3)
    worst = Fraction(0)
    every = [0, *range(lowest, highest + 1)]
    for left, right in itertools.product(every, every):
        if 0 not in (left, right):
            continue  # add_remove: one of them is without the event
        for answer in range(-12, 13):
            worst = max(
                worst, geometric(1, answer - left, ratio) / geometric(1, answer - right, ratio)
            )
    mechanism = SumCounter(1, EPSILON, ADD, 1, lowest, highest)
    assert worst == (1 / ratio) ** mechanism.l1
    (tree,) = mechanism.trees
    assert (tree.shape.height, tree.scale) == (1, mechanism.l1 / EPSILON)


def test_relation_of_amounts_counts_the_fewest_events() -> None:
    """Every small difference, against dealing out units to events by search."""
    l1, linf = 3, 2
    events = [
        each
        for each in itertools.product(range(-linf, linf + 1), repeat=2)
        if 0 < sum(map(abs, each)) <= l1
    ]
    reached: dict[tuple[int, ...], int] = {(0, 0): 0}
    for number in (1, 2, 3):
        for base in [each for each, least in reached.items() if least == number - 1]:
            for event in events:
                reached.setdefault((base[0] + event[0], base[1] + event[1]), number)
    zero = np.zeros(2, np.int64)
    for gap in itertools.product(range(-7, 8), repeat=2):
        for most in (1, 2, 3):
            taken = AmountRows(l1, linf, most).accept(np.array(gap), zero)
            assert (taken is not None) == (reached.get(gap, 99) <= most)
    one = AmountRows(l1, linf).accept(np.array([2, -1]), zero)
    assert one is not None
    assert one.accept(zero, zero) is one
    assert one.accept(np.array([1, 0]), zero) is None
    assert AmountRows(l1, linf).accept(np.array([0.5, 0]), zero) is None
    assert not one.first_pair_consistent


def test_a_moved_replacement_is_two_events() -> None:
    mechanism = SumCounter(2, EPSILON, ADD, 5, -1, 3)
    rows, zero = mechanism.rows.relation(MOVES), np.zeros(2, np.int64)
    first = rows.accept(np.array([3, 0]), zero)
    assert first is not None
    second = first.accept(zero, np.array([0, 3]))
    assert second is not None
    assert second.accept(zero, np.array([0, 1])) is None
    with pytest.raises(NotDerivable):
        _ = SumCounter(2, EPSILON, MOVES, 5, -1, 3).l1


def test_answers_are_exact_sums_with_that_noise_and_signed_rows_are_taken() -> None:
    rows = np.random.default_rng(3).integers(-50, 50, (12, 2))
    for horizon in (12, None):
        mechanism = SumCounter(2, EPSILON, ADD, horizon, -50, 50)
        assert (answers(mechanism, ZeroNoise(), rows) == rows.cumsum(axis=0)).all()
        noise = answers(mechanism, SeededNoise(5), rows * 0)
        assert (answers(mechanism, SeededNoise(5), rows) == rows.cumsum(axis=0) + noise).all()
        state, _ = mechanism.step(mechanism.init(ZeroNoise()), Update(rows[0]), ZeroNoise())
        assert not state.noise.total.any()  # the counter inside has counted nothing


def test_it_is_derived_and_says_what_it_is_made_for() -> None:
    mechanism = SumCounter(3, EPSILON, ADD, None, -7, 5, ones=2)
    found = derived(mechanism, "volume")
    assert found.guarantee == mechanism.guarantee
    assert "14 * " in found.conditions[0].why
    assert (mechanism.rows.weight, mechanism.rows.ones) == (7, 2)
    twin = TWINS["HalfTheNoise"](3, EPSILON, ADD, None, -7, 5, ones=2)
    with pytest.raises(NotDerivable):
        derived(twin, "volume")


@pytest.mark.parametrize("amounts", [(3, 2), (0, 0), (0, MOST_UNITS + 1), (-MOST_UNITS - 1, 0)])
def test_amounts_that_are_none_are_refused(amounts: tuple[int, int]) -> None:
    with pytest.raises(NotDerivable, match="a sum needs amounts"):
        SumCounter(1, EPSILON, ADD, 5, *amounts)


def test_bad_rows_are_refused_without_their_content() -> None:
    mechanism = SumCounter(2, EPSILON, ADD, 5, -1, 1)
    state = mechanism.init(ZeroNoise())
    bad: list[Any] = [
        np.zeros(3, np.int64),
        np.zeros(2),
        np.array([1 << 61, 0]),
        np.array([-(1 << 61), 0]),
    ]
    for row in bad:
        with pytest.raises(RejectedMessage) as caught:
            mechanism.step(state, Update(row), ZeroNoise())
        assert str(1 << 61) not in str(caught.value)
        assert not mechanism.takes(Update(row))
    assert mechanism.takes(Update(np.array([-5, 5])))
    assert mechanism.takes(Query())
    assert AMOUNTS.holds(np.array([-(1 << 60)]))
