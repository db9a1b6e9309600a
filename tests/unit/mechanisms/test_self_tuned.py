"""Self-tuned thresholds by hand: integers, rounded up, functions of public numbers that never fall below zero."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.mechanisms.hss.sparse_vector import LEAST, NODES, SHORTEST, SelfTuned, ceil_root

SCALES = st.fractions(Fraction(1, 100), 1_000, max_denominator=1_000)


@given(st.fractions(0, 10**30, max_denominator=10**6))
def test_the_root_is_the_least_integer_whose_square_is_enough(square: Fraction) -> None:
    root = ceil_root(square)
    assert root**2 >= square
    assert root == 0 or (root - 1) ** 2 < square


@given(SCALES, SCALES, st.integers(0, 10**6), st.integers(1, 1_000))
def test_growth_by_its_definition(
    node: Fraction, watch: Fraction, intervals: int, spread: int
) -> None:
    """The least integers not below 0.35 nodes * sqrt(spread (j + 1)) and 3/4 of the query noise."""
    growth = SelfTuned(node, watch, 1_000, spread).growth(intervals)
    square = (NODES * node) ** 2 * spread * (intervals + 1)
    assert growth**2 >= square
    assert growth >= LEAST * watch
    assert growth - 1 < LEAST * watch or (growth - 1) ** 2 < square


@given(SCALES, SCALES, st.integers(1, 10**6), st.integers(0, 10**6))
def test_gamma_is_a_count_and_growth_plus_what_keeps_false_crossings_rare(
    node: Fraction, watch: Fraction, horizon: int, intervals: int
) -> None:
    tuned = SelfTuned(node, watch, horizon)
    gamma = tuned.gamma(1, intervals)
    rare = max(0.0, math.log(horizon / (intervals + 1)))
    assert isinstance(gamma, int)
    assert gamma == max(0, tuned.growth(intervals) + math.ceil(float(watch) * (rare - 1)))
    assert gamma == tuned.gamma(horizon, intervals)  # with a horizon the query does not matter


def test_gamma_by_hand() -> None:
    """Nodes and query noise of scale 10 over 1,000 queries: ceil(7.5) + ceil(10 (6.9078 - 1)) = 8 + 60."""
    assert SelfTuned(Fraction(10), Fraction(10), 1_000).gamma(1, 0) == 68
    assert SelfTuned(Fraction(10), Fraction(10), 1_000).gamma(1, 99) == 35 + 14
    assert SelfTuned(Fraction(10), Fraction(10), 1_000).gamma(1, 999) == 111 - 10


@pytest.mark.parametrize(("query", "horizon"), [(1, SHORTEST), (5_000, 8_192), (8_192, 16_384)])
def test_without_a_horizon_it_is_the_next_power_of_two(query: int, horizon: int) -> None:
    node, watch = Fraction(3), Fraction(7, 2)
    known, unknown = (SelfTuned(node, watch, h) for h in (horizon, None))
    assert unknown.gamma(query, 4) == known.gamma(query, 4)
