"""Many short runs of a series, and how its published bands did in them.

Rules: seeds are fixed, so a result never changes; noise is the product's own (`NoiseStream`), data come from a
generator of their own and do not look at the noise. A trial is one run: entries of one run share noise, so
coverage is judged by the mean of run-wise fractions, at fixed ticks.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray, Mechanism, Query, Update
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.papers import PaperHSS
from stream_dp.mechanisms.watches.kinds import Alerts
from stream_dp.noise import NoiseStream

Band: TypeAlias = Callable[[int, Any], int]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Shape:
    """Zipf-like columns, so many ticks, so many events on average, so many runs; an event sets `ones` entries."""

    width: int
    ticks: int
    events: int
    runs: int
    ones: int = 1

    def rows(self, run: int) -> IntArray:
        rng = np.random.default_rng(run)
        weights = 1 / np.arange(1, self.width + 1)
        sizes = rng.poisson(self.events / self.ticks, self.ticks)
        if self.ones == 1:
            return rng.multinomial(sizes, weights / weights.sum()).astype(np.int64)
        keys = rng.exponential(size=(int(sizes.sum()), self.width)) / weights
        chosen = np.argpartition(keys, self.ones, axis=1)[:, : self.ones]
        rows = np.zeros((self.ticks, self.width), dtype=np.int64)
        np.add.at(rows, (np.repeat(np.arange(self.ticks), sizes)[:, None], chosen), 1)
        return rows

    @property
    def looked_at(self) -> tuple[int, ...]:
        return tuple(self.ticks * quarter // 4 - 1 for quarter in (1, 2, 3, 4))


@dataclass(frozen=True, slots=True)
class Errors:
    """Entries are one released value each: its error, its band, the run it came from."""

    errors: IntArray
    bands: IntArray
    runs: IntArray

    @property
    def coverage(self) -> float:
        """Fraction of the errors within their bands."""
        return float((self.errors <= self.bands).mean())

    @property
    def run_fractions(self) -> NDArray[np.float64]:
        """Per run, the fraction of its errors within their bands: independent trials."""
        inside = np.bincount(self.runs, self.errors <= self.bands)
        number = np.bincount(self.runs)
        return inside[number > 0] / number[number > 0]

    @property
    def ratio(self) -> float:
        """Mean band over the observed quantile of the error."""
        return float(self.bands.mean() / np.quantile(self.errors, CONFIDENCE))


def noise_of(name: str, run: int) -> NoiseStream:
    return NoiseStream(hashlib.sha256(f"{name} {run}".encode()).digest(), 0)


def errors(make: Mechanism[Any], shape: Shape, name: str, bands: Band) -> Errors:
    """|released - true| of all values at the ticks looked at."""
    found: list[tuple[IntArray, int, int]] = []
    for run in range(shape.runs):
        noise, rows = noise_of(name, run), shape.rows(run)
        true, state = rows.cumsum(axis=0), make.init(noise)
        for tick, row in enumerate(rows):
            state, _ = make.step(state, Update(row), noise)
            watches = isinstance(make, PaperHSS) or hasattr(make, "lag")
            if tick not in shape.looked_at and not watches:
                continue  # a counter's queries change nothing
            state, answer = make.step(state, Query(), noise)
            if tick in shape.looked_at and answer is not None:
                quantity = make.quantity if isinstance(make, HSS | PaperHSS) else None
                right = true[tick] if quantity is None else np.array([quantity.of(true[tick])])
                found.append((np.abs(answer - right), bands(tick, state), run))
    return _joined(found)


def alert_errors(make: Alerts, shape: Shape, name: str, bands: Band) -> Errors:
    """|events since the last alert - threshold| at each alert."""
    found: list[tuple[IntArray, int, int]] = []
    for run in range(shape.runs):
        noise, count = noise_of(name, run), np.zeros(make.width, dtype=np.int64)
        state = make.init(noise)
        for tick, row in enumerate(shape.rows(run)):
            count += row
            state, _ = make.step(state, Update(row), noise)
            state, answer = make.step(state, Query(), noise)
            if answer is None or not answer.any():
                continue
            alarmed = answer == 1
            off = np.abs(count[alarmed] - make.threshold)
            found.append((off, bands(tick, state), run))
            count[alarmed] = 0
    return _joined(found)


def _joined(found: list[tuple[IntArray, int, int]]) -> Errors:
    sizes = [len(part) for part, _, _ in found]
    return Errors(
        np.concatenate([part for part, _, _ in found]),
        np.repeat([b for _, b, _ in found], sizes),
        np.repeat([run for _, _, run in found], sizes),
    )
