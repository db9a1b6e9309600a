"""Sliding quantiles: the values that may be hold the true ones at the stated rate.

200 runs of each, judged as in test_band_coverage; a trial is one window of a run at one tick, all of its quantiles at
once. Told buckets miss their ranks by less than the band in streams that are even, skewed and full of gaps. Margins are
exact in `unit/mechanisms/test_sliding_quantiles.py`. Twin: ranges that are narrower by a bucket do not hold.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from oracles import value_tree as oracle
from scipy.stats import binom
from statistical.band_runs import CONFIDENCE, noise_of
from statistical.test_band_coverage import ALPHA, BENTKUS

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.noisy_forest import FLAT, ForestShape
from stream_dp.mechanisms.linear.pairs import WindowsAndEver
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.mechanisms.quantiles.bucket_windows import RankWindow, best_rank_levels
from stream_dp.mechanisms.quantiles.value_tree import (
    EACH,
    PARTS,
    SlidingQuantiles,
    ValueLevels,
    ValueTree,
)
from stream_dp.mechanisms.serving import Answer, Bands

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
HALF, ONE = Fraction(1, 2), Fraction(1)
RUNS, TICKS, LOOKED_AT = 200, 30, (4, 11, 29)
AT = (HALF, Fraction(9, 10), Fraction(99, 100))
SURE = Fraction(19, 20)
DEEP = ForestShape((4,), (HALF, HALF))
WIDE, NARROW = ValueLevels(52, 12), ValueLevels(20, 20)
RANKS = best_rank_levels(52, AT)


def forest(
    levels: ValueLevels, windows: tuple[int, ...], epsilon: Fraction = ONE, **more: Any
) -> Any:
    """Counts of the nodes over windows."""
    made = {"neighbors": ADD, "shape": FLAT, **more}
    return WindowForest(
        levels.nodes, epsilon, made["neighbors"], windows, made["shape"], levels.height
    )


CASES: dict[str, tuple[SlidingQuantiles, str]] = {
    name: (SlidingQuantiles(ValueTree(levels, counts), at, SURE), stream)
    for name, levels, counts, at, stream in (
        ("skewed", WIDE, forest(WIDE, (6, 24)), AT, "skewed"),
        ("even", WIDE, forest(WIDE, (24,)), AT, "even"),
        ("gaps", WIDE, forest(WIDE, (24,)), AT, "gaps"),
        ("levels of time", WIDE, forest(WIDE, (20,), shape=DEEP), AT[:1], "skewed"),
        ("replace", NARROW, forest(NARROW, (24,), neighbors=REPLACE), AT[:2], "even"),
        ("so far", NARROW, Counter(20, HALF, ADD, TICKS), AT[:1], "skewed"),
        (
            "with ever",
            WIDE,
            WindowsAndEver(forest(WIDE, (6,), HALF), Counter(WIDE.nodes, HALF, ADD, TICKS, 2)),
            AT,
            "skewed",
        ),
        ("little noise", NARROW, forest(NARROW, (6,), Fraction(20)), AT, "even"),
        ("Gaussian, skewed", RANKS, RankWindow(52, HALF, ADD, 6, RANKS), AT, "skewed"),
        ("Gaussian, gaps", RANKS, RankWindow(52, HALF / 50, REPLACE, 24, RANKS), AT[:2], "gaps"),
    )
}


def rows(stream: str, run: int, leaves: int) -> IntArray:
    """The rows of a run, of some hundred events a tick, shape (TICKS, leaves)."""
    rng = np.random.default_rng(run)
    places = np.arange(leaves)
    weights = {
        "skewed": np.exp(-((np.log1p(places) - 2.2) ** 2)),
        "even": np.ones(leaves),
        "gaps": (places % 17 == 3) * (1.0 + places),
    }[stream]
    found: IntArray = rng.multinomial(rng.poisson(150, TICKS), weights / weights.sum())
    return found.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Looked:
    """One window of a run at one tick: of each quantile what was told, its true buckets, errors."""

    place: int
    tick: int
    told: IntArray
    true: list[list[int]]
    missed: list[float]


@lru_cache(maxsize=16)
def looked(name: str) -> list[list[Looked]]:
    """By run, what was told and what is true."""
    mechanism, stream = CASES[name]
    return [_run(name, mechanism, rows(stream, run, mechanism.width), run) for run in range(RUNS)]


def _windows(mechanism: SlidingQuantiles) -> list[int]:
    counts = mechanism.tree.counts
    if isinstance(counts, WindowForest | RankWindow):
        return list(counts.windows)
    return [*getattr(getattr(counts, "forest", None), "windows", ()), 10**6]


def _run(name: str, mechanism: SlidingQuantiles, every: IntArray, run: int) -> list[Looked]:
    noise, found, tree = noise_of(f"sliding {name}", run), [], mechanism.tree
    state = mechanism.init(noise)
    for tick, row in enumerate(every):
        state, _ = mechanism.step(state, Update(row), noise)
        if tick not in LOOKED_AT:
            continue
        _, answer = mechanism.step(state, Query(), noise)
        assert answer is not None
        told = answer.reshape(tree.views, len(mechanism.at), EACH)
        for place, window in enumerate(_windows(mechanism)):
            counts = every[max(0, tick + 1 - window) : tick + 1].sum(axis=0)
            found.append(_looked(mechanism, (place, tick), told[place], counts))
    return found


def _looked(
    mechanism: SlidingQuantiles, at: tuple[int, int], told: IntArray, counts: IntArray
) -> Looked:
    true = [list(oracle.true_buckets(counts.tolist(), q)) for q in mechanism.at]
    missed = [
        float(oracle.rank_error(counts.tolist(), q, int(row[0]) // PARTS))
        for q, row in zip(mechanism.at, told, strict=True)
    ]
    return Looked(*at, told, true, missed)


def covers(inside: list[list[bool]]) -> bool:
    """Whether runs whose trials went so are consistent with the confidence, at level ALPHA."""
    total = sum(sum(run) / len(run) for run in inside)
    return bool(BENTKUS * binom.cdf(int(total) + 1, len(inside), CONFIDENCE) > ALPHA)


def held(one: Looked, last: int, shrink: int = 0) -> bool:
    """Whether all true buckets are among those that are not ruled out, or among fewer of them on both sides."""
    return all(
        low + shrink <= true[0] and true[-1] <= last - high - shrink
        for (_, low, high), true in zip(one.told.tolist(), one.true, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_the_values_that_may_be_hold_the_true_ones(name: str) -> None:
    last = CASES[name][0].tree.levels.leaves - 1
    assert covers([[held(one, last) for one in run] for run in looked(name)])


@pytest.mark.parametrize("name", CASES)
def test_told_buckets_miss_their_ranks_by_less_than_the_band(name: str) -> None:
    mechanism, _ = CASES[name]
    bands = [Bands(Answer(mechanism, place), CONFIDENCE) for place in range(mechanism.tree.views)]
    runs = looked(name)
    assert covers([[max(o.missed) <= bands[o.place](o.tick, None) for o in run] for run in runs])


def test_ranges_that_are_narrower_by_a_bucket_do_not_cover() -> None:
    last = CASES["skewed"][0].tree.levels.leaves - 1
    assert not covers([[held(one, last, 1) for one in run] for run in looked("skewed")])
