"""HSS beside trees and Gaussian counters on six kinds of streams and the flights: errors and time per step.

The forms are those of `hss_forms`, at epsilon 1 under add_remove (the Gaussian one at (1, 1e-6)): RMSE over all runs,
ticks and categories, and the mean of a run's largest error, each +- the spread (standard deviation) of one run's. The
time of a step is that of one run of the mechanism itself.

Run: PYTHONPATH=.:tests python tests/benchmarks/bench_hss.py [name of a stream ...]. Fails where HSS misses what it must
reach (`MUST`), within 10 % and what chance explains. `ends`, for a name, prints band and ends of one column bin by bin
over the observed 0.95 quantile of its error at the last tick, in 2,000 runs; `joint` the band of the joint form over
lists of 3, and the narrowest one that can hold, by the counter's share and by the growth that closes an interval.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from benchmarks.hss_blocks import Truth, joint_run
from benchmarks.hss_forms import FORMS, Summary, errors, mechanism, step_time
from benchmarks.hss_streams import (
    Stream,
    bursty,
    even,
    flights,
    lists,
    nearly_empty,
    skewed,
    whole_rows,
)
from statistical.band_runs import CONFIDENCE, Shape, noise_of
from statistical.test_lag_ends import bins, ended

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss import sparse_vector
from stream_dp.mechanisms.hss.hss import FAILURE, HSS
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.statistics.parts.choice import Setting, by_tree
from stream_dp.statistics.parts.choose_hss import Demand, joint_hss

ONE = Fraction(1)
SHORT, LONG = 1 << 12, 1 << 16
RUNS, DRAWS = 20, 20_000
SLACK = 1.1
CHANCE = 3  # standard errors: one that just reaches its figure is called a miss once in 700 runs
"""stream, form: (largest RMSE, largest ratio to the tree), either None."""
MUST = {("flights", "bins"): (12.8, None), ("bursty", "joint"): (None, 0.23)}


@dataclass(frozen=True, slots=True)
class Case:
    made: Callable[[], Stream]
    runs: int = RUNS


CASES: dict[str, Case] = {
    "flights": Case(flights),
    "even": Case(lambda: even(SHORT, 100, 10_000)),
    "zipf": Case(lambda: skewed(SHORT, 100, 10_000)),
    "nearly empty": Case(lambda: nearly_empty(SHORT, 100, 100)),
    "lists of 5": Case(lambda: lists(SHORT, 100, 5_000)),
    "whole rows": Case(lambda: whole_rows(SHORT, 20, 2_000)),
    "bursty": Case(lambda: bursty(LONG, 100, 40_000), runs=10),
}


def missed(name: str, form: str, found: Summary, tree: Summary) -> bool:
    """Whether it is worse than it must be, by more than chance explains: so many standard errors of the mean."""
    most, ratio = MUST.get((name, form), (None, None))
    at_least = found.rmse - CHANCE * found.spread / math.sqrt(found.runs)
    too_large = most is not None and at_least > SLACK * most
    return too_large or (ratio is not None and at_least > SLACK * ratio * tree.rmse)


def line(name: str, form: str, found: Summary, tree: Summary, step: float) -> str:
    rmse = f"{found.rmse:8.1f} +-{found.spread:5.1f}{found.rmse / tree.rmse:9.2f}"
    largest = f"{found.largest:9.0f} +-{found.largest_spread:4.0f}"
    bad = "   MISSED" if missed(name, form, found, tree) else ""
    return f"{name:14}{form:8}{rmse}{largest}{step:9.0f}{found.runs:6}{bad}"


YEAR = 8_760


def flown() -> dict[str, list[Any]]:
    """Flights by hour to destinations of all sizes, from the most to the least frequent but two."""
    columns = sorted(flights().rows.T, key=lambda column: -int(column.sum()))[:-1]
    chosen = (columns[place] for place in (0, 5, 15, 30, 60, 80, -3))
    return {f"{column.sum():,} flights": [column] for column in chosen}


def ends() -> Iterator[str]:
    real = flown()
    for ticks, epsilon in ((1_000, Fraction(1, 2)), (YEAR, ONE)):
        one, rng = bins(epsilon, ticks), np.random.default_rng(11)
        streams: dict[str, list[Any]] = {
            f"{rate:g} a tick": [rng.poisson(rate, ticks)] for rate in (0.05, 0.2, 1, 10)
        }
        harmonic = sum(1 / rank for rank in range(1, 21))
        zipf = [rng.poisson(4 / rank / harmonic, ticks) for rank in range(1, 21, 3)]
        burst = one._highest(ticks, 0) + 3 * math.ceil(one.watchers.scale)
        quiet = np.array([0] * (ticks - 1) + [burst])
        streams |= {"zipf": zipf, "quiet, burst": [quiet]} | (real if ticks == YEAR else {})
        for name, columns in streams.items():
            each = [ended(one, data, seed) for seed, data in enumerate(columns)]
            closed = np.concatenate([runs.closed for runs, _, _ in each])
            off = np.concatenate([part for _, part, _ in each])
            below, above = np.concatenate([sides for _, _, sides in each], axis=1)
            band = np.array([one.lag(ticks, j, CONFIDENCE) for j in closed.tolist()])
            observed = float(np.quantile(np.abs(off), CONFIDENCE))
            covered = ((off <= above) & (-off <= below)).mean()
            yield (
                f"{ticks:6} ticks, epsilon {float(epsilon)}, {name:14}: observed {observed:3.0f}, "
                f"band {band.mean():4.0f} ({band.mean() / observed:.2f}), ends -{below.mean():.0f} +{above.mean():.0f}"
                f" ({(below + above).mean() / 2 / observed:.2f}), covered {covered:.3f}"
            )  # fmt: skip


def limits() -> Iterator[str]:
    """Bands at the last of 200 ticks of 30 lists of 3 each among 20 columns, at epsilon 1, on average over 20 runs.

    Where gamma + z events come in the last tick behind a crossing, a fresh instance does not cross with the chance that
    the noise of its threshold is z more than that of its query. Then the release is gamma + z behind, less the noise.
    So a band B holds for all data only if for each z this chance times P(noise < gamma + z - B) is at most 0.05.
    """
    shape = Shape(20, 200, 6_000, 20, ones=3)
    setting = Setting(shape.width, Neighbors.ADD_REMOVE, shape.ticks, CONFIDENCE, ones=shape.ones)
    demand, last = Demand(setting, None, ONE), setting.last
    tree = by_tree(setting, ONE, "")
    yield f"tree: {tree.expected(last)}"
    runs = [Truth(shape.rows(run)) for run in range(shape.runs)]
    usual = sparse_vector.NODES, sparse_vector.LEAST
    for share in (Fraction(part, 20) for part in (18, 17, 16, 14, 12, 10)):
        for part in (ONE, Fraction(1, 2), Fraction(1, 10)):
            sparse_vector.NODES, sparse_vector.LEAST = usual[0] * part, usual[1] * part
            made = joint_hss(demand, share)
            closed = [
                len(joint_run(made, truth, noise_of("limits", at))) - 1
                for at, truth in enumerate(runs)
            ]
            bands = [made.lag(shape.ticks, number, CONFIDENCE) for number in closed]
            least = [
                _least_band(made, made.gamma(shape.ticks, number), number) for number in closed
            ]
            yield (
                f"share {float(share):.2f}, growth times {float(part):.1f}: {np.mean(closed):4.0f} intervals, "
                f"band {np.mean(bands):4.0f}, no band that holds is below {np.mean(least):4.0f}"
            )
    sparse_vector.NODES, sparse_vector.LEAST = usual


@lru_cache
def _least_band(made: HSS, gamma: int, closed: int) -> int:
    """Return the least B that passes, from DRAWS draws of the noise with a fixed seed."""
    terms, rng = tuple(made.counter.noise_terms(closed)), np.random.default_rng(closed)
    noise = np.zeros(DRAWS)
    for scale, number, weight in terms:
        passes = -math.expm1(-1 / scale)
        draws = rng.negative_binomial(number, passes, (2, DRAWS))
        noise += weight * (draws[0] - draws[1])
    noise.sort()
    stays = math.exp(-1 / made.instance().lift_scale)
    more = np.arange(math.ceil(math.log(FAILURE) / math.log(stays)))
    chances, reached = stays**more / (1 + stays), gamma + more

    def fails(band: int) -> bool:
        return bool((chances * np.searchsorted(noise, reached - band) / DRAWS > FAILURE).any())

    first = laplace_quantile(terms, FAILURE)
    return next(band for band in count(first) if not fails(band))


def main(names: list[str]) -> int:
    failed = False
    if names in (["ends"], ["joint"]):
        for shown in ends() if names == ["ends"] else limits():
            print(shown, flush=True)
        return 0
    print(
        f"{'stream':14}{'form':8}{'RMSE':>8}{'of tree':>17}{'largest':>9}{'us/step':>16}{'runs':>6}"
    )
    for name in names or list(CASES):
        case = CASES[name]
        stream = case.made()
        truth = Truth(stream.rows)
        tree = None
        for form in FORMS:
            found = errors(form, stream, truth, ONE, case.runs)
            tree = tree or found
            step = step_time(mechanism(form, stream, ONE), stream.rows)
            failed = failed or missed(name, form, found, tree)
            print(line(name, form, found, tree, step), flush=True)
    return int(failed)


def test_hss_reaches_its_figures() -> None:
    assert main([]) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
