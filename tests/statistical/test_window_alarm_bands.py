"""The bands of watches over windows, of counts and sums, at the rate that they state and against errors of real runs.

120 runs of 17 keys. An alert's error is by how many events the window's count lay on the wrong side of the threshold:
when the watch fired, or while it did not fire though it should have. Judged as in test_band_coverage.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from statistical.band_runs import CONFIDENCE, Errors, noise_of
from statistical.test_band_coverage import covers

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.serving import Bands
from stream_dp.mechanisms.watches.block import WatchTerms
from stream_dp.mechanisms.watches.kinds import Monitor, SumMonitor

KEYS, TICKS, RUNS, WINDOW = 17, 80, 120, 6
WATCHES = {
    "above": (WatchTerms(60, KEYS, window=WINDOW), 9),
    "below": (WatchTerms(60, KEYS, window=WINDOW, below=True), 12),
    "sums": (WatchTerms(600, KEYS, window=WINDOW), 9),  # of amounts that average 10
}
LOWEST, HIGHEST = -4, 24


def monitor_of(name: str, watch: WatchTerms) -> Monitor | SumMonitor:
    if name != "sums":
        return Monitor(KEYS, Fraction(1, 2), Neighbors.ADD_REMOVE, (watch,))
    return SumMonitor(KEYS, Fraction(1, 2), Neighbors.ADD_REMOVE, (watch,), LOWEST, HIGHEST)


def rows_of(name: str, rate: int, run: int) -> IntArray:
    rng = np.random.default_rng(run)
    events = rng.poisson(rate, (TICKS, KEYS)).astype(np.int64)
    if name != "sums":
        return events
    amounts = rng.integers(LOWEST, HIGHEST + 1, int(events.sum()))
    ends = events.ravel().cumsum()
    added = np.concatenate([[0], amounts.cumsum()])
    return np.asarray(np.diff(added[np.concatenate([[0], ends])]).reshape(TICKS, KEYS))


def of_a_run(name: str, run: int) -> list[tuple[IntArray, int]]:
    """The errors of one run's alerts, with the band that was released with each."""
    watch, rate = WATCHES[name]
    monitor = monitor_of(name, watch)
    bands, noise = Bands(monitor, CONFIDENCE), noise_of(name, run)
    rows = rows_of(name, rate, run)
    total = np.vstack([np.zeros((1, KEYS), dtype=np.int64), rows.cumsum(axis=0)])
    state, found, keys = monitor.init(noise), list[tuple[IntArray, int]](), np.arange(KEYS)
    begun, missed = np.zeros((2, KEYS), dtype=np.int64)
    for tick, row in enumerate(rows):
        state, _ = monitor.step(state, Update(row), noise)
        state, answer = monitor.step(state, Query(), noise)
        count = total[tick + 1] - total[np.maximum(begun, tick + 1 - WINDOW), keys]
        over = watch.threshold - 1 - count if watch.below else count - watch.threshold
        looked = (tick + 1 - begun >= WINDOW) | (not watch.below)
        assert answer is not None
        fired = np.asarray(answer == 1)
        missed = np.where(looked & ~fired & (over >= 0), np.maximum(missed, over + 1), missed)
        if fired.any():
            found.append((np.maximum(missed, -over)[fired], bands(tick, state)))
        missed, begun = np.where(fired, 0, missed), np.where(fired, tick + 1, begun)
    return found


@lru_cache(maxsize=4)
def measured(name: str) -> Errors:
    found = [(*each, run) for run in range(RUNS) for each in of_a_run(name, run)]
    sizes = [len(errors) for errors, _, _ in found]
    return Errors(
        np.concatenate([errors for errors, _, _ in found]),
        np.repeat([band for _, band, _ in found], sizes),
        np.repeat([run for _, _, run in found], sizes),
    )


@pytest.mark.parametrize("name", WATCHES)
def test_bands_cover_and_are_at_most_three_times_too_wide(name: str) -> None:
    found = measured(name)
    assert len(found.run_fractions) >= 0.95 * RUNS
    assert covers(found)
    assert found.ratio <= 3


@pytest.mark.parametrize("name", WATCHES)
def test_a_quarter_of_a_band_does_not_cover(name: str) -> None:
    found = measured(name)
    assert not covers(Errors(found.errors, found.bands // 4, found.runs))
