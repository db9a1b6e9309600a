"""Intervals of means cover at their stated rate, and are not much wider than they must be.

As in test_band_coverage: 120 runs of each, each test errs with probability below 1e-4; told by the statistic itself.
Twins: ends that forget the counts, and a quarter's confidence.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statistical.band_runs import CONFIDENCE, Errors, noise_of
from statistical.test_band_coverage import covers

from stream_dp.core.mechanism import Query, Update
from stream_dp.pipeline.builder import build
from stream_dp.pipeline.yaml import load

RUNS, TICKS, KEYS = 120, 40, 12
LOOKED_AT = (11, 19, 29, 39)
SPAN = 12  # ticks of a window
WIDEST = 1.15
FILE = """\
version: 1
name: shop
source: {{kind: file, path: shop.jsonl}}
schema:
  time: {{type: time}}
  country: {{type: category, domain: [a, b, c, d, e, f, g, h, i, j, k]}}
  amount: {{type: integer}}
privacy: {{epsilon: 1}}
clock: {{kind: replay, field: time, start: "2026-01-01T00:00:00Z", step: 1h, horizon: 40}}
series:
  - {{name: it, statistic: mean, of: amount, clamp: [-2, 10], by: country{windows}, epsilon: 1}}
"""


@dataclass(frozen=True)
class Case:
    """Amounts from `low` to `high`, so many `events` of each key in a tick, and windows that slide or end."""

    low: int
    high: int
    events: int
    windows: str = ""

    def ticks(self, tick: int) -> slice:
        """The ticks of the longest window that a release tells."""
        if not self.windows:
            return slice(tick + 1)
        end = (tick + 1) // SPAN * SPAN if "every" in self.windows else tick + 1
        return slice(max(0, end - SPAN), end)


CASES = {
    "all over the clamp": Case(-2, 10, 50),
    "at its end": Case(9, 10, 50),
    "in its middle": Case(4, 4, 50),
    "hardly any": Case(-2, 10, 2),
    "over windows": Case(0, 10, 50, ", windows: [12h]"),
    "in each window": Case(0, 10, 50, ", every: 12h"),
}


@lru_cache(maxsize=8)
def answers(name: str, folder: Path) -> tuple[Any, list[tuple[int, int, Any, list[float]]]]:
    """The series, and (run, tick, answer of the longest window, true mean by key)."""
    case, found, path = CASES[name], [], folder / "shop.yaml"
    path.write_text(FILE.format(windows=case.windows))
    (chosen,) = build(load(path)).chosen
    mechanism = chosen.mechanism
    for run in range(RUNS):
        rng, noise = np.random.default_rng(run), noise_of(name, run)
        state, rows = mechanism.init(noise), []
        for tick in range(TICKS):
            events = 1 + rng.poisson(case.events, KEYS).astype(np.int64)
            sums = [int(rng.integers(case.low - 4, case.high - 3, each).sum()) for each in events]
            rows.append(np.array([*sums, *events.tolist()], dtype=np.int64))
            state, _ = mechanism.step(state, Update(rows[-1]), noise)
            if tick in LOOKED_AT:
                _, answer = mechanism.step(state, Query(), noise)
                assert answer is not None
                added, counted = np.split(np.sum(rows[case.ticks(tick)], axis=0), 2)
                found.append((run, tick, answer[-2 * KEYS :], (4 + added / counted).tolist()))
    return chosen, found


def errors(
    name: str, folder: Path, confidence: float, *, counted: bool = True
) -> tuple[Errors, float]:
    """Whether each true mean lies in its interval, as errors of 0 or 1; half the mean width over the quantile."""
    chosen, found = answers(name, folder)
    place = len(chosen.spec.views) - 1 if chosen.spec.views else None
    tell = chosen.spec.teller(chosen.mechanism, place, confidence)
    missed, run_of, off, half = [], [], [], []
    for run, tick, answer, right in found:
        shown = answer.copy()
        if not counted:
            shown[:KEYS] = np.rint(shown[:KEYS] / np.maximum(shown[KEYS:], 1) * 10**9)
            shown[KEYS:] = 10**9
        told = tell([str(key) for key in range(KEYS)], shown, tick, None)
        ends = zip(map(float, told["lows"]), map(float, told["highs"]), strict=True)
        for value, both, true in zip(told["values"].values(), ends, right, strict=True):
            missed.append(not both[0] <= true <= both[1])
            run_of.append(run)
            if value is not None:
                off.append(abs(float(value) - true))
                half.append((both[1] - both[0]) / 2)
    errors = np.array(missed, dtype=np.int64)
    covered = Errors(errors, np.zeros_like(errors), np.array(run_of))
    return covered, float(np.mean(half) / np.quantile(off, CONFIDENCE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("means")


@pytest.mark.parametrize("name", CASES)
def test_intervals_of_means_cover_and_are_not_much_too_wide(name: str, folder: Path) -> None:
    found, wide = errors(name, folder, 0.95)
    assert covers(found), f"{name}: covered {found.coverage:.3f}"
    assert wide <= WIDEST, f"{name}: {wide:.2f} times the quantile"


@pytest.mark.parametrize(
    "name", ["all over the clamp", "at its end", "over windows", "in each window"]
)
def test_bands_of_a_quarters_confidence_do_not_cover(name: str, folder: Path) -> None:
    found, _ = errors(name, folder, 0.25)
    assert not covers(found), f"covered {found.coverage:.3f}"


def test_an_interval_for_more_records_than_there_are_does_not_cover(folder: Path) -> None:
    """The twin divides first, and takes the noise of the sums as one over 10^9 records."""
    found, _ = errors("all over the clamp", folder, 0.95, counted=False)
    assert not covers(found), f"covered {found.coverage:.3f}"
