"""What alerts and sparse vectors mean with chosen noise; public thresholds and bounds, by their definitions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.mechanisms.shifted_noise import answers

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS, error_bound
from stream_dp.mechanisms.hss.sparse_vector import (
    LEAST,
    NODES,
    SHORTEST,
    ErrorLaw,
    SelfTuned,
    SparseVector,
    ceil_root,
)
from stream_dp.mechanisms.linear.counter import HybridCounter
from stream_dp.mechanisms.noise_law import geometric_tail, index_probability, laplace_sum_tail
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import ScriptedNoise, ZeroNoise

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)


def test_an_alert_comes_with_the_nth_event_and_starts_from_zero() -> None:
    for threshold, counts, ticks in (
        (3, [1, 1, 1, 1, 1, 1], [2, 5]),
        (3, [100, 1, 1, 0, 1], [0, 4]),  # one alert per tick, no overshoot carried
        (1, [0, 1, 0, 5], [1, 3]),
    ):
        fired = answers(Alerts(1, ONE, ADD, threshold), ZeroNoise(), [[n] for n in counts])
        assert np.flatnonzero(fired).tolist() == ticks


def test_only_the_keys_that_alerted_get_a_new_threshold() -> None:
    mechanism = Alerts(3, ONE, ADD, 10)
    noise = ScriptedNoise([1, 2, 3, 0, 0, 0, 9])
    state = mechanism.init(noise)
    state, _ = mechanism.step(state, Update(np.array([5, 12, 12])), noise)
    after, answer = mechanism.step(state, Query(), noise)
    assert answer is not None
    assert answer.tolist() == [0, 1, 0]
    assert after.lift.tolist() == [1, 9, 3]
    assert after.count.tolist() == [5, 0, 12]
    assert noise.used == len(noise.values)


def test_a_sparse_vector_compares_strictly_with_both_noises() -> None:
    for query_noise, expected in ((4, 0), (5, 1)):
        mechanism = SparseVector(2, ONE, ONE, ADD, (3, 0))
        noise = ScriptedNoise([2, query_noise])
        state = mechanism.init(noise)
        state, _ = mechanism.step(state, Update(np.array([1, 1])), noise)
        state, answer = mechanism.step(state, Query(6), noise)  # 3 + 1 + noise > 6 + 2
        assert answer is not None
        assert answer.tolist() == [expected]
        assert state.halted == bool(expected)


def test_gamma_never_falls() -> None:
    shares = (Fraction(1, 10), Fraction(1, 10), Fraction(8, 10))
    endless = HSS(5, None, *shares, ADD, None)
    table = np.array([[endless.gamma(t, j) for j in range(40)] for t in (1, 2, 10, 1_000, 10**6)])
    assert (np.diff(table, axis=0) >= 0).all()
    assert (np.diff(table, axis=1) >= 0).all()
    known = HSS(5, None, *shares, ADD, 100)
    assert known.gamma(1, 3) == known.gamma(100, 3)


def test_failure_shares_add_up_to_at_most_the_whole() -> None:
    assert sum(index_probability(0.3, t, 50) for t in range(1, 51)) == pytest.approx(0.3)
    some = sum(index_probability(1.0, t, None) for t in range(1, 200_000))
    rest = 1 / (2.10975 * math.log(200_000))  # the integral from there on
    assert 0.999 < some + rest <= 1 + 1e-5


@given(st.fractions(min_value=Fraction(1, 5), max_value=200), st.floats(1e-9, 0.9))
def test_a_geometric_exceeds_its_tail_bound_rarely(scale: Fraction, probability: float) -> None:
    bound = geometric_tail(scale, probability)
    assert math.exp(-(bound + 1) / float(scale)) <= probability * (1 + 1e-9)


@pytest.mark.parametrize(("number", "weight"), [(0, 1.0), (1, 1.7), (3, 0.3), (12, 1.0)])
def test_the_chernoff_bound_is_above_the_exact_quantile(number: int, weight: float) -> None:
    terms = [Term(Fraction(20), number, weight), Term(Fraction(7, 2), 2 * number)]
    for probability in (0.3, 1e-5):
        exact = laplace_quantile(tuple(terms), probability)
        assert exact <= laplace_sum_tail(terms, probability) <= max(3.2 * exact, 1)


def test_the_counter_bound_rises_and_does_not_depend_on_who_asks_first() -> None:
    counter, other = HybridCounter(3, ONE, ADD), HybridCounter(3, ONE, REPLACE)
    law, share = ErrorLaw(added=1, high=3, low=1), 0.05 / 3
    late = error_bound(counter, 6, law, share)
    rising = [error_bound(counter, epoch, law, share) for epoch in range(7)]
    assert rising == sorted(rising)
    assert rising[6] == late
    assert error_bound(other, 6, law, share) > late


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
