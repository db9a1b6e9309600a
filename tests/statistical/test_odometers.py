"""Odometers by simulation: how often the privacy loss of randomized response ever exceeds the bound.

Error probability: a true rate of at most delta' = .05 gives more than `LIMIT` crossings in `RUNS` runs with
probability below 10^-6 (exact binomial tail, asserted below); seeds are fixed. Twins that forget the drift, or believe
the delta of an (epsilon, delta)-DP mechanism, cross far more often.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.guarantee import ApproxDP, ProbabilisticDP, PureDP
from stream_dp.errors import NotDerivable
from stream_dp.verify.odometers import (
    Boundary,
    FilterBoundary,
    MixtureBoundary,
    Odometer,
    OneSidedMixtureBoundary,
    StitchedBoundary,
)

RUNS, STEPS = 20_000, 300
RATE = Fraction(1, 20)
LIMIT = 1151
PARTS = {Fraction(1, 10): 11, Fraction(1): 12}  # epsilon of a step: seed


def boundaries(epsilon: Fraction) -> Iterator[tuple[str, Boundary, bool]]:
    """All odometers, set for about a third of the way."""
    middle = 100 * epsilon**2
    target = Fraction(math.sqrt(2 * math.log(20) * middle) + float(middle) / 2)
    line = FilterBoundary.tuned(target, RATE)
    for tight in (False, True):
        yield "filter", line, tight
        yield "stitched", StitchedBoundary(RATE, epsilon**2), tight
    yield "mixture", MixtureBoundary(RATE, middle), False
    yield "mixture", OneSidedMixtureBoundary(RATE, middle), True


def losses(epsilon: Fraction, seed: int) -> np.ndarray:
    """Cumulated privacy losses of RR, one run per row."""
    e = float(epsilon)
    heads = np.random.default_rng(seed).random((RUNS, STEPS)) < 1 / (1 + math.exp(-e))
    found: np.ndarray = np.cumsum(np.where(heads, e, -e), axis=1)
    return found


def bounds(boundary: Boundary, epsilon: Fraction, *, tight: bool) -> tuple[np.ndarray, np.ndarray]:
    """The bound after each step, and the drift in it."""
    odometer, curve, drift = Odometer.of(boundary, tight=tight), [], []
    for _ in range(STEPS):
        odometer = odometer.observe(PureDP(epsilon))
        bound = odometer.bound()
        curve.append(math.inf if bound is None else float(bound))
        drift.append(odometer.drift / 10**24)
    return np.array(curve), np.array(drift)


def crossings(paths: np.ndarray, curve: np.ndarray) -> int:
    """How many runs are ever above the curve."""
    return int(np.any(paths > curve, axis=1).sum())


def test_the_limit_has_the_stated_error_probability() -> None:
    assert stats.binom.sf(LIMIT, RUNS, float(RATE)) < 1e-6


@pytest.mark.parametrize(("epsilon", "seed"), PARTS.items())
def test_the_loss_exceeds_an_odometer_no_more_often_than_promised(
    epsilon: Fraction, seed: int
) -> None:
    paths, found = losses(epsilon, seed), {}
    for name, boundary, tight in boundaries(epsilon):
        curve, drift = bounds(boundary, epsilon, tight=tight)
        found[name, tight] = crossings(paths, curve)
        assert found[name, tight] <= LIMIT, (name, tight)
        if (
            epsilon == 1 or name == "filter"
        ):  # V/2 (or R) forgotten; the others are looser than that
            assert crossings(paths, curve - drift) > LIMIT, (name, tight)
    for name in ("filter", "mixture", "stitched"):
        assert found[name, False] <= found[name, True]  # the tight forms are tighter
    assert found["filter", True] > RUNS / 100  # the bound is nearly met: nothing here is vacuous
    assert found["mixture", True] > 0


def test_an_approximate_mechanism_in_place_of_a_pdp_one_breaks_the_odometer() -> None:
    """Two points, P = (p, 1-p), Q = (q, 1-q) with p - e^eps q = delta exactly, but P(L > eps) = p far above delta.

    Exact, one step, as conjectured in [WRRW] App. F. The mechanism is (.1, .01)-DP; the loss ln(p/q) exceeds the
    odometer, whose promise is delta' + delta'' = .0101, with probability p = .0231.
    """
    e, delta, p = 0.1, 0.01, 0.0231
    q = (p - delta) / math.exp(e)
    assert (1 - q) / (1 - p) < math.exp(
        e
    )  # the other point is within e^eps, so this is (e, delta)-DP
    assert q - math.exp(e) * p < delta
    boundary = FilterBoundary.tuned(Fraction(43, 100), Fraction(1, 10**4))
    odometer = Odometer.of(boundary, Fraction(1, 100))
    claim = ProbabilisticDP(Fraction(1, 10), Fraction(1, 100))  # false: it is no pDP
    bound = odometer.observe(claim).bound()
    assert bound is not None
    assert math.log(p / q) > bound
    assert p > 2 * (delta + 1e-4)
    with pytest.raises(NotDerivable):
        odometer.observe(ApproxDP(Fraction(1, 10), Fraction(1, 100)))
