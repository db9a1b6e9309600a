"""What a top list says: orders told wrongly and values outside of their band, at most as often as is stated.

200 runs of each series, told by the statistic itself; a run fails where any order that is told is wrong (the names that
are not listed as tied), or where the value of any rank lies outside. Runs are independent, so failures are at most as
many as a binomial's of 0.05; each test errs with probability below 1e-4. The worst data are equal counts: there each
order that is told is wrong. Bands are at most 1.3 times the observed quantile of the largest difference, and of the
largest error; of an HSS, 3 times. Twins: differences judged by the band of a single value, and values by that of one.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from statistical.band_runs import CONFIDENCE, noise_of

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter, HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.window_forest import GaussianForest, WindowForest
from stream_dp.mechanisms.serving import Answer, Bands, Differences, all_at_once
from stream_dp.statistics.top import ranks

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF = Fraction(1, 2)
RUNS, TICKS, WIDTH, K = 200, 60, 18, 5
ALPHA = 1e-4
NAMES = tuple(f"n{place}" for place in range(WIDTH))
DEEP = ForestShape((4, 4), (HALF, Fraction(1, 4), Fraction(1, 4)))
SERIES: dict[str, tuple[Any, int | None, float]] = {
    "counter": (Counter(WIDTH, HALF, ADD, TICKS), None, 1.3),
    "counter replace": (Counter(WIDTH, HALF, REPLACE, 1_000), None, 1.3),
    "hybrid counter": (HybridCounter(WIDTH, HALF, ADD), None, 1.3),
    "gaussian": (GaussianCounter(WIDTH, Fraction(1, 50), ADD, TICKS), None, 1.3),
    "gaussian window": (GaussianForest(WIDTH, Fraction(1, 50), ADD, (1, 24), FLAT), 1, 1.3),
    "flat window": (WindowForest(WIDTH, HALF, ADD, (1, 24), FLAT), 1, 1.3),
    "deep window": (WindowForest(WIDTH, HALF, ADD, (1, 40), DEEP), 1, 1.3),
    "single tick": (WindowForest(WIDTH, HALF, ADD, (1, 40), DEEP), 0, 1.3),
    "hss": (PerBinHSS(WIDTH, Fraction(3, 10), Fraction(7, 10), ADD, TICKS), None, 3.0),
}


@dataclass(frozen=True, slots=True)
class Ends:
    """The last tick of a run: what is answered of this view, what is true, and both bands."""

    answer: IntArray
    true: IntArray
    band: int
    apart: int

    def wrong(self, apart: int) -> bool:
        """Whether an order is told that is not so: of a rank and any name that is not listed with it."""
        told = ranks(NAMES, self.answer, K, apart)
        place = {name: at for at, name in enumerate(NAMES)}
        for rank, told_rank in enumerate(told):
            assert not told_rank.more
            above = {other.name for other in told[:rank]}
            for name in set(NAMES) - {told_rank.name, *told_rank.tied}:
                ahead = self.true[place[told_rank.name]] - self.true[place[name]]
                if (ahead >= 0) if name in above else (ahead <= 0):
                    return True
        return False

    def outside(self, band: int) -> bool:
        """Whether the value of a rank is off by more than the band."""
        told = ranks(NAMES, self.answer, K, self.apart)
        right = dict(zip(NAMES, self.true.tolist(), strict=True))
        return any(abs(rank.value - right[rank.name]) > band for rank in told)


def rows(name: str, run: int) -> IntArray:
    """So many events that nothing is clipped: equal counts, or for an HSS, which lags, nearly equal ones."""
    if name != "hss":
        return np.full((TICKS, WIDTH), 10_000, dtype=np.int64)
    return np.random.default_rng(run).poisson(30, (TICKS, WIDTH)).astype(np.int64)


@lru_cache(maxsize=16)
def ends(name: str) -> tuple[Ends, ...]:
    """The ends of all runs."""
    mechanism, place, _ = SERIES[name]
    each = all_at_once(CONFIDENCE, WIDTH)
    bands = Bands(Answer(mechanism, place), each)
    differences = Bands(Differences(mechanism, place), CONFIDENCE)
    found = []
    for run in range(RUNS):
        noise, all_rows = noise_of(f"top {name}", run), rows(name, run)
        state, answer = mechanism.init(noise), None
        for row in all_rows:
            state, _ = mechanism.step(state, Update(row), noise)
            if name == "hss":
                state, answer = mechanism.step(state, Query(), noise)
        if name != "hss":
            state, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        counted = all_rows if place is None else all_rows[-mechanism.windows[place] :]
        view = answer if place is None else np.split(answer, len(mechanism.windows))[place]
        at = TICKS - 1
        found.append(Ends(view, counted.sum(axis=0), bands(at, state), differences(at, state)))
    return tuple(found)


def consistent(failures: int) -> bool:
    """Whether so many failed runs go with 0.05, at level ALPHA."""
    return bool(binom.sf(failures - 1, RUNS, 1 - CONFIDENCE) > ALPHA)


@pytest.mark.parametrize("name", SERIES)
def test_orders_are_told_wrongly_as_rarely_as_stated(name: str) -> None:
    found = ends(name)
    assert consistent(sum(end.wrong(end.apart) for end in found))
    spans = [int(np.ptp(end.answer - end.true)) for end in found]
    ratio = np.mean([end.apart for end in found]) / np.quantile(spans, CONFIDENCE)
    assert ratio <= SERIES[name][2], f"{name}: {ratio:.2f} times the quantile"


@pytest.mark.parametrize("name", SERIES)
def test_all_values_are_within_their_band_as_often_as_stated(name: str) -> None:
    found = ends(name)
    assert consistent(sum(end.outside(end.band) for end in found))
    largest = [int(np.abs(end.answer - end.true).max()) for end in found]
    ratio = np.mean([end.band for end in found]) / np.quantile(largest, CONFIDENCE)
    assert ratio <= SERIES[name][2], f"{name}: {ratio:.2f} times the quantile"


@pytest.mark.parametrize("name", [name for name in SERIES if name != "hss"])
def test_a_band_for_a_single_value_tells_wrong_orders_and_misses_values(name: str) -> None:
    """Where all are equal, the greatest of many values is one of the largest errors."""
    mechanism, place, _ = SERIES[name]
    bands = Bands(Answer(mechanism, place), CONFIDENCE)
    single = bands(TICKS - 1, None)
    assert not consistent(sum(end.wrong(single) for end in ends(name)))
    assert not consistent(sum(end.outside(single) for end in ends(name)))
