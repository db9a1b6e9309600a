"""Bands of HSS on data made to break them: silence and one burst. Leaders that take turns: `test_name_bands`.

Silence lets thresholds with large noise live on, a burst of the right size then hides below one. The states of the
sparse vectors are simulated in bulk with numpy, with the mechanism's own scales and gamma. 4,000 runs per burst;
a coverage of 0.95 is refuted below 0.9353 (binomial, one-sided 1e-5 per look, 3e-3 in all). Each check has a twin.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from statistical.band_runs import CONFIDENCE

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss import hss
from stream_dp.mechanisms.hss.hss import HSS

Ints = NDArray[np.int64]
RUNS = 4_000
REFUTED = 0.9353
ADD = Neighbors.ADD_REMOVE


def eager() -> HSS:
    """The histogram of a year of hours, with parameters that close intervals often."""
    shares = (Fraction(1, 20), Fraction(1, 20), Fraction(9, 10))
    return HSS(1, None, *shares, ADD, 8_760, Fraction(1, 50))


def geometric(rng: np.random.Generator, scale: Fraction, size: int) -> Ints:
    """One-sided geometric noise, for simulations only."""
    return rng.geometric(-math.expm1(-1 / float(scale)), size).astype(np.int64) - 1


@lru_cache(maxsize=1)
def after_silence() -> tuple[Ints, Ints, Ints]:
    """(intervals, threshold noise, counter noise) of each run after 8,759 silent queries."""
    mechanism, rng = eager(), np.random.default_rng(7)
    instance = mechanism.instance()
    gamma = np.array([mechanism.gamma(1, j) for j in range(2_000)])
    closed = np.zeros(RUNS, dtype=np.int64)
    lift = geometric(rng, instance.lift_scale, RUNS)
    for _ in range(8_759):
        crossed = geometric(rng, instance.query_scale, RUNS) > gamma[closed] + lift
        lift[crossed] = geometric(rng, instance.lift_scale, int(crossed.sum()))
        closed += crossed
    noise = np.zeros(RUNS, dtype=np.int64)
    for j in np.unique(closed):
        here = closed == j
        size, drawn = int(here.sum()), np.zeros(int(here.sum()))
        for scale, number, weight in mechanism.counter.noise_terms(int(j)):
            for _ in range(number):
                drawn += weight * (geometric(rng, scale, size) - geometric(rng, scale, size))
        noise[here] = np.rint(drawn)
    return closed, lift, noise


def least_coverage(mechanism: HSS) -> float:
    """The least coverage at the last query over bursts of 0, 5, ..., 400 events at its tick."""
    closed, lift, noise = after_silence()
    known = {int(j): mechanism.lag(8_760, int(j), CONFIDENCE) for j in np.unique(closed)}
    band = np.array([known[int(j)] for j in closed])
    gamma = np.array([mechanism.gamma(8_760, int(j)) for j in closed])
    rng, found = np.random.default_rng(8), []
    for burst in range(0, 401, 5):
        query = geometric(rng, mechanism.instance().query_scale, RUNS)
        unseen = burst + query <= gamma + lift
        wrong = unseen & (np.abs(burst - np.maximum(noise, 0)) > band)
        found.append(1 - float(wrong.mean()))
    return min(found)


def test_a_burst_after_long_silence_is_covered() -> None:
    assert least_coverage(eager()) >= REFUTED


def test_without_the_long_lived_thresholds_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hss, "moved_up", lambda *_: 0)
    assert least_coverage(eager()) < REFUTED
