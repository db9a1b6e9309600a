"""The band of a maximum holds for the named column's own count too, at once, in 200 runs of each form.

The error of a release is the larger of |value - largest count| and |value - count of the named column|; coverage is
judged as in `test_band_coverage` (each test errs with probability below 1e-4), and on usual data the band is at most 3
times the observed quantile of this error. Of equal columns the named one is that with the largest noise, so there
values are too high most; where leaders take turns the true one is another. Twins: a part of the band, and a name that
is one rank lower.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from statistical.band_runs import CONFIDENCE, Errors, Shape, noise_of
from statistical.test_band_coverage import covers

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM
from stream_dp.mechanisms.papers import PaperHSS
from stream_dp.mechanisms.serving import Bands
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import CounterKind, Demand, hss_for

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
RUNS, TICKS = 200, 100
ZIPF = Shape(20, TICKS, 5_000, RUNS)


def chosen(width: int, relation: Neighbors, counter: CounterKind = "tree", epsilon: int = 1) -> Any:
    setting = Setting(width, relation, TICKS, CONFIDENCE, Fraction(1, 10**6))
    return hss_for(Demand(setting, MAXIMUM, Fraction(epsilon, 2), 5_000, counter=counter))


def equal(run: int) -> IntArray:
    """Forty columns of nearly equal counts."""
    return np.random.default_rng(run).poisson(30, (TICKS, 40)).astype(np.int64)


def turning(run: int) -> IntArray:
    """Three columns that lead by turns."""
    rows = np.random.default_rng(run).poisson(2, (TICKS, 3)).astype(np.int64)
    rows[np.arange(TICKS), np.arange(TICKS) // 10 % 3] += 30
    return rows


@dataclass(frozen=True, slots=True)
class Case:
    """A mechanism, its rows in a run, and how wide its band may be in observed quantiles; no part of it covers."""

    make: Callable[[], Any]
    rows: Callable[[int], IntArray]
    widest: float = 3.0
    part: int = 4


CASES = {
    "zipf": Case(lambda: chosen(20, ADD), ZIPF.rows, part=5),
    "equal": Case(lambda: chosen(40, ADD), equal, 4.0, part=6),
    "turning": Case(lambda: chosen(3, ADD), turning, 4.0, part=6),
    "gaussian turning": Case(lambda: chosen(3, ADD, "gaussian"), turning, 4.0, part=6),
    "gaussian replace": Case(lambda: chosen(20, REPLACE, "gaussian", 2), ZIPF.rows),
    "paper": Case(lambda: PaperHSS(20, MAXIMUM, Fraction(10), TICKS), ZIPF.rows),
}


@lru_cache(maxsize=16)
def taken(name: str, rank: int = 0) -> Errors:
    """The larger of the two errors of each release that names somebody; `rank` 1 names the one behind the leader."""
    mechanism, found = CASES[name].make(), []
    bands = Bands(mechanism, CONFIDENCE)
    for run in range(RUNS):
        noise, rows = noise_of(f"name {name}", run), CASES[name].rows(run)
        true, state = rows.cumsum(axis=0), mechanism.init(noise)
        for tick, row in enumerate(rows):
            state, _ = mechanism.step(state, Update(row), noise)
            state, answer = mechanism.step(state, Query(), noise)
            place = mechanism.leader(state)
            if (tick + 1) % (TICKS // 4) or place is None:
                continue
            assert answer[0] == state.released[place]
            if rank:
                place = int(np.argsort(-state.released, kind="stable")[rank])
            off = max(abs(answer[0] - true[tick].max()), abs(answer[0] - true[tick][place]))
            found.append((off, bands(tick, state), run))
    errors, widths, runs = np.array(found, dtype=np.int64).T
    return Errors(errors, widths, runs)


@pytest.mark.parametrize("name", CASES)
def test_the_band_covers_the_named_columns_own_count_and_the_largest_at_once(name: str) -> None:
    found = taken(name)
    assert len(found.run_fractions) >= 0.95 * RUNS
    assert covers(found), f"{name}: covered {found.coverage:.3f}"
    assert found.ratio <= CASES[name].widest, f"{name}: {found.ratio:.2f} times the quantile"


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_the_band_does_not_cover(name: str) -> None:
    found = taken(name)
    assert not covers(Errors(found.errors, found.bands // CASES[name].part, found.runs))


def test_a_name_one_rank_lower_is_not_covered() -> None:
    assert not covers(taken("zipf", 1))
