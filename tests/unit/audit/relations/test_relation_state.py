"""What keeps the relations' cost constant: persistent sequences, multisets, and a product of bounded length."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.audit.relations.toys import toy

from stream_dp.audit.relations.pair_conditions import DeltaBudget
from stream_dp.audit.relations.persistent import Multiset, Vector
from stream_dp.core.guarantee import ApproxDP

operations = st.lists(st.one_of(st.none(), st.integers(0, 10**6)), max_size=200)


@settings(deadline=None)
@given(operations, st.sampled_from([0, 31, 32, 1023, 1024, 1025]))
def test_a_vector_is_a_list_and_old_versions_stay(changes: list[int | None], start: int) -> None:
    """None appends, a number replaces; every version so far reads as it did."""
    vector: Vector[int] = Vector()
    expected: list[int] = []
    for i in range(start):
        vector, expected = vector.appended(i), [*expected, i]
    first, as_first = vector, expected
    for change in changes:
        if change is None or not expected:
            vector, expected = vector.appended(-1), [*expected, -1]
        else:
            place = change % len(expected)
            vector = vector.replaced(place, change)
            expected = [*expected[:place], change, *expected[place + 1 :]]
    assert [vector[i] for i in range(vector.size)] == expected
    assert [first[i] for i in range(first.size)] == as_first


def test_a_vector_grows_by_levels() -> None:
    vector: Vector[int] = Vector()
    for i in range(32**3 + 1):
        vector = vector.appended(i)
    assert (vector.height, vector[0], vector[32**3], vector[12345]) == (3, 0, 32**3, 12345)


@pytest.mark.parametrize("index", [-1, 1])
def test_there_is_nothing_outside(index: int) -> None:
    empty: Vector[str] = Vector()
    one = empty.appended("a")
    for change in (lambda: one[index], lambda: one.replaced(index, "b")):
        with pytest.raises(IndexError):
            change()


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_a_multiset_gives_each_item_as_often_as_it_has_it(of: list[int], items: list[int]) -> None:
    left: Multiset | None = Multiset.of(of)
    for item in items:
        left = left.without(item) if left else None
    assert (left is not None) == all(items.count(i) <= of.count(i) for i in items)


def test_the_product_of_deltas_stays_short_and_never_admits_more() -> None:
    """Against the exact product, over 1,500 creations: whatever is admitted is within the budget, and the rest is
    refused where exact arithmetic does, for the budgets lie 2^-900 beside the exact values."""
    delta = Fraction(1, 10**6 + 3)
    create = toy("m", ApproxDP(Fraction(1), delta))
    exact = 1 - (1 - delta) ** 1_500
    hair = Fraction(1, 2**900)
    for budget, admitted in ((exact + hair, True), (exact - hair, False)):
        budgeted: DeltaBudget | None = DeltaBudget(budget)
        for _ in range(1_500):
            assert budgeted is not None
            assert budgeted.unfailed.denominator.bit_length() <= 1025
            budgeted = budgeted.creation(create)
        assert (budgeted is not None) == admitted
    assert DeltaBudget(Fraction(0), Fraction(1)).creation(
        toy("p", ApproxDP(Fraction(1), Fraction(0)))
    )
