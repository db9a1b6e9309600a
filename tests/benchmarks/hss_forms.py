"""The forms of a histogram that are compared, all of them the product's own mechanisms, and their errors.

`tree` is a tree counter; `joint` and `bins` are the two forms of HSS, self-tuned; `gauss` is the Gaussian counter of
the same epsilon at DELTA. Rules: what is published is never below 0; an error is that of one released value at one
tick, the largest is over all categories and ticks of a run. Errors are those of whole runs in blocks (`hss_blocks`),
with exact integer noise; the time of a step is that of the mechanism, step by step.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from benchmarks.hss_blocks import (
    Errors,
    Truth,
    bins_errors,
    bins_run,
    counter_path,
    joint_errors,
    joint_run,
    path_errors,
)
from benchmarks.hss_streams import Stream

from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.core.guarantee import ApproxDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import HSS
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS
from stream_dp.mechanisms.linear.counter import Counter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import Demand, bins_hss, joint_hss

BLOCK = 1 << 15  # samples


class BlockNoise:
    """Exact noise (`stream_dp.core.mechanism.Noise`) from blocks of a fresh stream."""

    def __init__(self) -> None:
        self._stream = NoiseStream(fresh_seed(), 0)
        self._left: dict[tuple[str, Fraction], IntArray] = {}

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._taken("laplace", self._stream.laplace, scale, size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._taken("geometric", self._stream.geometric, scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self._taken("gaussian", self._stream.gaussian, variance, size)

    def _taken(
        self, law: str, draw: Callable[[Fraction, int], IntArray], parameter: Fraction, size: int
    ) -> IntArray:
        """The next samples of a law, from its block; a new one is drawn where it is used up."""
        left = self._left.get((law, parameter), np.zeros(0, dtype=np.int64))
        if len(left) < size:
            left = np.concatenate((left, draw(parameter, max(BLOCK, size))))
        self._left[law, parameter] = left[size:]
        return left[:size]


ADD = Neighbors.ADD_REMOVE
DELTA = Fraction(1, 10**6)
FORMS = ("tree", "joint", "bins", "gauss")
WIDEST = 1000  # columns of a counter that stands for many runs
MOST_NOISE = 1 << 24  # values of a path


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of several runs: the RMSE over all of them, the mean largest, and the spread of one run's about each."""

    runs: int
    rmse: float
    spread: float
    largest: float
    largest_spread: float

    @classmethod
    def of(cls, found: list[Errors]) -> "Summary":
        rmses, largest = [one.rmse for one in found], [one.largest for one in found]
        spreads = [
            float(np.std(each, ddof=1)) if len(found) > 1 else 0.0 for each in (rmses, largest)
        ]
        rmse = math.sqrt(float(np.mean(np.square(rmses))))
        return cls(len(found), rmse, spreads[0], float(np.mean(largest)), spreads[1])


def setting(stream: Stream) -> Setting:
    """What a pipeline would give such a series."""
    ticks, width = stream.rows.shape
    return Setting(width, ADD, ticks, 0.95, ones=stream.ones)


def mechanism(form: str, stream: Stream, epsilon: Fraction, runs: int = 1) -> Any:
    """The mechanism of this form; a counter for several runs has the columns of all of them."""
    ticks, width = stream.rows.shape[0], stream.rows.shape[1] * runs
    if form == "tree":
        return Counter(width, epsilon, ADD, ticks, stream.ones)
    if form == "gauss":
        rho = gaussian_budget(ApproxDP(epsilon, DELTA)) ** 2 / 2
        return GaussianCounter(width, rho, ADD, ticks, stream.ones, gdp=True)
    demand = Demand(setting(stream), None, epsilon)
    return bins_hss(demand) if form == "bins" else joint_hss(demand)


def errors(form: str, stream: Stream, truth: Truth, epsilon: Fraction, runs: int) -> Summary:
    if form in ("joint", "bins"):
        one = mechanism(form, stream, epsilon)
        return Summary.of([_hss_errors(one, truth) for _ in range(runs)])
    width = stream.rows.shape[1]
    together = min(runs, max(1, min(WIDEST, MOST_NOISE // truth.ticks) // width))
    found: list[Errors] = []
    while len(found) < runs:
        path = _path(mechanism(form, stream, epsilon, together), len(found))
        found += [path_errors(part, truth) for part in np.split(path, together, axis=1)]
    return Summary.of(found[:runs])


def step_time(one: Any, rows: IntArray) -> float:
    """Microseconds per step of a mechanism over these rows: a row taken, an answer given."""
    noise = NoiseStream(fresh_seed(), 0)
    state, start = one.init(noise), time.process_time()
    for row in rows:
        state, _ = one.step(state, Update(row), noise)
        state, _ = one.step(state, Query(), noise)
    return (time.process_time() - start) / len(rows) * 1e6


def _hss_errors(one: HSS | PerBinHSS, truth: Truth) -> Errors:
    noise = BlockNoise()
    if isinstance(one, HSS):
        return joint_errors(joint_run(one, truth, noise), truth)
    return bins_errors(bins_run(one, truth, noise), truth)


@lru_cache(maxsize=6)
def _path(counter: Counter | GaussianCounter, number: int) -> IntArray:
    """The noise of a counter; the same for streams of one size, which are compared on the same noise."""
    return counter_path(counter, BlockNoise())
