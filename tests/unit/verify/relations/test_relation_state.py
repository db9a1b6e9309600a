"""What keeps the relations' cost constant: persistent sequences, multisets, and a product of bounded length."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from pyrsistent import PVector, pvector
from unit.verify.relations.toys import toy

from stream_dp.core.guarantee import ApproxDP, PureDP
from stream_dp.verify.relations.creation import epsilon
from stream_dp.verify.relations.pair_conditions import CreatedWithin, DeltaBudget

operations = st.lists(st.one_of(st.none(), st.integers(0, 10**6)), max_size=200)


@settings(deadline=None)
@given(operations, st.sampled_from([0, 31, 32, 1023, 1024, 1025]))
def test_a_vector_is_a_list_and_old_versions_stay(changes: list[int | None], start: int) -> None:
    """What the relations rely on: None appends, a number replaces; every version so far reads as it did."""
    vector: PVector[int] = pvector(range(start))
    expected = list(range(start))
    first, as_first = vector, expected
    for change in changes:
        if change is None or not expected:
            vector, expected = vector.append(-1), [*expected, -1]
        else:
            place = change % len(expected)
            vector = vector.set(place, change)
            expected = [*expected[:place], change, *expected[place + 1 :]]
    assert [vector[i] for i in range(len(vector))] == expected
    assert [first[i] for i in range(len(first))] == as_first


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 4), max_size=8))
def test_a_multiset_gives_each_item_as_often_as_it_has_it(of: list[int], items: list[int]) -> None:
    left: CreatedWithin | None = CreatedWithin.of(map(Fraction, of), epsilon)
    for item in items:
        left = left.creation(toy("m", PureDP(Fraction(item)))) if left else None
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
