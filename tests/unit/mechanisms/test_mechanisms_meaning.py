"""What the mechanisms mean, without noise or with chosen noise; their limits and their public bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.hss.hss import HSS, error_bound
from stream_dp.mechanisms.hss.quantities import ErrorLaw
from stream_dp.mechanisms.hss.sparse_vector import SparseVector
from stream_dp.mechanisms.linear.counter import Counter, HandOverCounter, HybridCounter
from stream_dp.mechanisms.linear.tree import TreeShape, sampled
from stream_dp.mechanisms.noise_law import geometric_tail, index_probability, laplace_sum_tail
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.testing.noise import ScriptedNoise, SeededNoise, ZeroNoise

ADD, REPLACE, ONE = Neighbors.ADD_REMOVE, Neighbors.REPLACE, Fraction(1)


def alert_ticks(threshold: int, counts: list[int]) -> list[int]:
    """The ticks that alert without noise, one key."""
    mechanism, found = Alerts(1, ONE, ADD, threshold), []
    state = mechanism.init(ZeroNoise())
    for tick, count in enumerate(counts):
        state, _ = mechanism.step(state, Update(np.array([count])), ZeroNoise())
        state, answer = mechanism.step(state, Query(), ZeroNoise())
        assert answer is not None
        found += [tick] * int(answer[0])
    return found


def test_an_alert_comes_with_the_nth_event_and_starts_from_zero() -> None:
    assert alert_ticks(3, [1, 1, 1, 1, 1, 1]) == [2, 5]
    assert alert_ticks(3, [100, 1, 1, 0, 1]) == [0, 4]  # one alert per tick, no overshoot carried
    assert alert_ticks(1, [0, 1, 0, 5]) == [1, 3]


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


@pytest.mark.parametrize("horizon", [1, 2, 13, 40])
def test_a_counter_serves_its_whole_horizon_and_no_more(horizon: int) -> None:
    mechanism, noise = Counter(1, ONE, ADD, horizon), ZeroNoise()
    state = mechanism.init(noise)
    for _ in range(horizon):
        state, _ = mechanism.step(state, Update(np.array([1])), noise)
    with pytest.raises(RejectedMessage, match="declare a longer horizon"):
        mechanism.step(state, Update(np.array([1])), noise)
    answer = mechanism.step(state, Query(), noise)[1]
    assert answer is not None
    assert answer.tolist() == [horizon]


@pytest.mark.parametrize("horizon", [1, 2, 3, 9, 10, 40, 64, 300, 1_000, 2_999, 70_000])
def test_the_best_shape_is_the_best(horizon: int) -> None:
    """No other height, nor another arity near by, has a smaller error."""
    shape, prefixes = TreeShape.best(horizon), sampled(horizon)
    error = shape.height**2 * shape.variances(prefixes).mean()
    near = [TreeShape(shape.arity + d, shape.height) for d in (-2, -1, 1, 2) if shape.arity + d > 1]
    for other in [*near, TreeShape(2, 1), TreeShape(5, 4), TreeShape(12, 2), TreeShape(14, 3)]:
        assert error <= other.height**2 * other.variances(prefixes).mean() * (1 + 1e-12)
    digits = [shape.digit(level, horizon) for level in range(shape.height)]
    assert sum(d * shape.arity**i for i, d in enumerate(digits)) == horizon


@pytest.mark.parametrize("updates", [0, 1, 2, 3, 7, 8, 100, 1_000])
def test_the_stated_noise_terms_are_those_of_the_answer(updates: int) -> None:
    """Variance of the answers at width 4,000 against the stated terms, within 25% (error below 1e-6)."""
    for mechanism in (
        HybridCounter(4_000, ONE, ADD),
        HandOverCounter(4_000, ONE, ADD),
        Counter(4_000, ONE, ADD, 1_000),
    ):
        noise = SeededNoise(updates)
        state: object = mechanism.init(noise)
        row = np.zeros(4_000, dtype=np.int64)
        for _ in range(updates):
            state, _ = mechanism.step(state, Update(row), noise)  # type: ignore[arg-type]
        _, answer = mechanism.step(state, Query(), noise)  # type: ignore[arg-type]
        assert answer is not None
        stated = sum(n * w**2 * variance(float(s)) for s, n, w in mechanism.noise_terms(updates))
        assert float((answer**2).mean()) == pytest.approx(stated, rel=0.25, abs=0)


def variance(scale: float) -> float:
    """Of the discrete Laplace variable."""
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


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


@pytest.mark.parametrize("probability", [0.3, 1e-2, 1e-5])
@pytest.mark.parametrize("weight", [1.0, 0.3, 1.7])
@pytest.mark.parametrize("number", [0, 1, 3, 12])
def test_the_chernoff_bound_is_above_the_exact_quantile(
    number: int, weight: float, probability: float
) -> None:
    terms = [Term(Fraction(20), number, weight), Term(Fraction(7, 2), 2 * number)]
    exact = laplace_quantile(tuple(terms), probability)
    assert exact <= laplace_sum_tail(terms, probability) <= max(3.2 * exact, 1)


def test_the_counter_bound_rises_and_does_not_depend_on_who_asks_first() -> None:
    counter, other = HybridCounter(3, ONE, ADD), HybridCounter(3, ONE, REPLACE)
    law, share = ErrorLaw(added=1, high=3, low=1), 0.05 / 3
    late = error_bound(counter, 50, law, share)
    rising = [error_bound(counter, j, law, share) for j in range(51)]
    assert rising == sorted(rising)
    assert rising[50] == late
    assert error_bound(other, 50, law, share) > late
