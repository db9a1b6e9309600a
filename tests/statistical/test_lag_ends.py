"""Ends beside the band of what lags behind: the law of unseen growth, the search for the worst data, coverage.

The oracle is the exact law of one column bin by bin, by dynamic programming over (closed intervals, last crossing,
noise of the threshold), from the text of the mechanism alone: an instance crosses where its count plus a fresh
geometric reaches gamma plus the geometric that it drew. Data are a function of time; a search changes them where that
makes the failure likelier. Long streams run in bulk with numpy, 2,000 runs each, at the mechanism's own scales.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from statistical.band_runs import CONFIDENCE, Shape, noise_of

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.hss.hss import FAILURE, error_bound
from stream_dp.mechanisms.hss.per_bin_hss import PerBinHSS, _up_to
from stream_dp.mechanisms.hss.sparse_vector import MAXIMUM, ErrorLaw, Quantity, unseen
from stream_dp.mechanisms.noise_law import geometric_tail, index_probability, laplace_sum_tail
from stream_dp.mechanisms.noise_quantiles import lagging_quantile, laplace_quantile
from stream_dp.mechanisms.papers import PaperHSS
from stream_dp.mechanisms.serving import Lags
from stream_dp.statistics.parts.choice import Setting
from stream_dp.statistics.parts.choose_hss import Demand, Split, bins_hss, hss_for

Floats = NDArray[np.float64]
Sides = Callable[[int, int], tuple[int, int]]  # of closed intervals, and queries since
ADD = Neighbors.ADD_REMOVE
RUNS, DRAWS = 2_000, 40_000
FEWEST = int(binom.ppf(1e-5, RUNS, CONFIDENCE))  # of so many runs, where each is covered with 0.95
SHORT, FEW = 20, 12  # ticks of the exact law, and bursts around which the search begins


def bins(epsilon: Fraction, ticks: int, width: int = 1) -> PerBinHSS:
    return bins_hss(Demand(Setting(width, ADD, ticks, CONFIDENCE), None, epsilon))


class Exact:
    """P(j intervals have closed, the last one at u) after given data, and what has grown since each u."""

    def __init__(self, mechanism: PerBinHSS, ticks: int) -> None:
        self.mechanism, self.ticks = mechanism, ticks
        self.scale = float(mechanism.watchers.scale)
        self.decay = math.exp(-1 / self.scale)
        lifts = np.arange(math.ceil(26 * self.scale))
        self.fresh = (1 - self.decay) * self.decay**lifts
        gamma = np.array([mechanism.gamma(ticks, j) for j in range(ticks + 1)])
        self.room = gamma[:, None, None] + lifts[None, None, :]

    def law(self, data: IntArray) -> tuple[Floats, IntArray]:
        alive = np.zeros((self.ticks + 1, self.ticks + 1, len(self.fresh)))
        alive[0, 0] = self.fresh
        so_far = np.concatenate([[0], np.cumsum(data)])
        for at in range(1, self.ticks + 1):
            left = np.maximum(0, self.room - (so_far[at] - so_far[:at])[None, :, None])
            stays = alive[:, :at] * (1 - self.decay**left)
            crossed = (alive[:, :at] - stays).sum(axis=(1, 2))
            alive[:, :at] = stays
            alive[1:, at] += crossed[:-1, None] * self.fresh
        return alive.sum(axis=2), so_far[-1] - so_far

    def unseen_over_law(self, data: IntArray, lows: IntArray) -> float:
        """The largest P(grown beyond lows[j] + z) over P(geometric > z), for any z: at most 1 by the theorem."""
        chance, grown = self.law(data)
        beyond = [
            float(chance[grown[None, :] > lows[:, None] + z].sum()) / self.decay ** (z + 1)
            for z in range(int(5 * self.scale))
        ]
        return max(beyond)

    def failure(self, data: IntArray, sides: Sides, noises: list[IntArray]) -> float:
        """P(the true value lies beyond a side), the counter's noise included."""
        chance, grown = self.law(data)
        found = 0.0
        for j, noise in enumerate(noises):
            below, above = np.array([sides(j, self.ticks - u) for u in range(self.ticks + 1)]).T
            too_low = np.searchsorted(noise, grown - above, "left")
            too_high = len(noise) - np.searchsorted(noise, grown + below, "right")
            found += float(chance[j] @ (too_low + too_high)) / len(noise)
        return found

    def worst(self, measure: Callable[[IntArray], float], steps: int, seed: int) -> float:
        """The largest `measure` that bursts after silence, after steady events and hill climbing from these find."""
        rng, most = np.random.default_rng(seed), int(self.room[0, 0, 0])
        found: list[tuple[float, int, IntArray]] = []
        for rate in (0, 1, 4):
            for quiet in (0, self.ticks // 2):
                for burst in np.linspace(most, most + 5 * self.scale, FEW).astype(int):
                    data = np.full(self.ticks, rate)
                    data[self.ticks - 1 - quiet :] = 0
                    data[-1] = burst
                    found.append((measure(data), len(found), data))
        best, _, data = max(found)
        for _ in range(steps):
            other, here = data.copy(), rng.integers(self.ticks, size=2)
            moved = int(rng.integers(0, other[here[0]] + 1))
            match rng.integers(3):
                case 0:
                    other[here[0]] = max(0, other[here[0]] + rng.integers(-5, 6))
                case 1:
                    other[here] += [-moved, moved] if here[0] != here[1] else 0
                case _:
                    other[here[0]] += rng.integers(0, 2 * most)
            if (chance := measure(other)) >= best:
                best, data = chance, other
        return best


def geometric(rng: np.random.Generator, scale: Fraction, size: int) -> IntArray:
    """One-sided geometric noise, for simulations only."""
    return rng.geometric(-math.expm1(-1 / float(scale)), size).astype(np.int64) - 1


def noises(mechanism: PerBinHSS, intervals: IntArray, rng: np.random.Generator) -> IntArray:
    """A counter's noise after each of these numbers of updates."""
    found = np.zeros(len(intervals))
    for j in np.unique(intervals):
        here = intervals == j
        for scale, number, weight in mechanism.counters.noise_terms(int(j)):
            for _ in range(number):
                drawn = [geometric(rng, scale, int(here.sum())) for _ in range(2)]
                found[here] += weight * (drawn[0] - drawn[1])
    return np.rint(found).astype(np.int64)


CELLS = [(SHORT, Fraction(1)), (2 * SHORT, Fraction(3))]


@lru_cache(maxsize=4)
def exact(cell: int) -> Exact:
    ticks, epsilon = CELLS[cell]
    return Exact(bins(epsilon, ticks), ticks)


def lows(one: Exact, least: Callable[[PerBinHSS, int], int]) -> IntArray:
    return np.array([least(one.mechanism, j) for j in range(one.ticks + 1)])


def proven(mechanism: PerBinHSS, intervals: int) -> int:
    query = mechanism.horizon or 0
    highest, thresholds = mechanism._highest(query, intervals), mechanism._thresholds(query, query)
    return unseen(mechanism.watchers.scale, highest, thresholds)


def forgets_survival(mechanism: PerBinHSS, intervals: int) -> int:
    """A twin: the instance alive now is taken for a fresh one."""
    return max(0, mechanism.gamma(mechanism.horizon or 0, intervals) - 2)


def test_the_exact_law_is_the_mechanisms() -> None:
    mechanism, closed = bins(Fraction(1), SHORT, width=400), []
    data = np.arange(SHORT) % 7
    for run in range(5):
        noise = noise_of("lag", run)
        state = mechanism.init(noise)
        for row in data:
            state, _ = mechanism.step(state, Update(np.full(400, row)), noise)
            state, _ = mechanism.step(state, Query(), noise)
        closed += state.intervals.tolist()
    chance, _ = Exact(bins(Fraction(1), SHORT), SHORT).law(data)
    seen = np.bincount(closed, minlength=SHORT + 1) / len(closed)
    assert np.abs(seen - chance.sum(axis=1)).max() < 5 * math.sqrt(0.25 / len(closed))


@pytest.mark.parametrize("cell", range(len(CELLS)))
def test_no_data_make_unseen_growth_likelier_than_its_law(cell: int) -> None:
    one = exact(cell)
    worst = one.worst(lambda data: one.unseen_over_law(data, lows(one, proven)), 150, cell)
    assert 0.4 < worst <= 1
    twin = one.worst(lambda data: one.unseen_over_law(data, lows(one, forgets_survival)), 0, cell)
    assert twin > 1.2


@pytest.mark.parametrize("cell", range(len(CELLS)))
def test_the_largest_gamma_never_falls(cell: int) -> None:
    mechanism = exact(cell).mechanism
    highest = [mechanism._highest(mechanism.horizon or 0, j) for j in range(200)]
    gammas = [mechanism.gamma(mechanism.horizon or 0, j) for j in range(200)]
    assert highest == [max(gammas[: j + 1]) for j in range(200)]


def sides_of(mechanism: PerBinHSS, part: float = 1) -> Sides:
    query = mechanism.horizon or 0

    @cache
    def sides(j: int, age: int) -> tuple[int, int]:
        below, above = mechanism._column_sides(query, j, _up_to(age), CONFIDENCE)
        return int(part * below), int(part * above)

    return sides


EARLY = [  # ticks so far, horizon, epsilon: right at the beginning next to no threshold has crossed by its noise
    (1, 20, Fraction(1, 4)),
    (1, 1_000, Fraction(1, 8)),
    (3, 100, Fraction(1, 8)),
    (8, 8_760, Fraction(1, 4)),
    (6, 20, Fraction(1)),
]


def hostile(ticks: int, most: int, rng: np.random.Generator) -> IntArray:
    """A ramp, an oscillation, a crossing and then silence, or a few events anywhere, before the last tick."""
    data = np.zeros(ticks, dtype=np.int64)
    match rng.integers(5):
        case 0:
            data[-2:] = rng.integers(0, most, len(data[-2:]))
        case 1:
            data[:] = np.sort(rng.integers(0, most, ticks))
        case 2:
            data[::2] = rng.integers(0, 2 * most)
        case 3:
            data[rng.integers(ticks)] = rng.integers(0, 10 * most)
        case _:
            data[:] = rng.integers(0, 2 + most // 4, ticks)
    return data


@pytest.mark.parametrize(("ticks", "horizon", "epsilon"), EARLY)
def test_early_in_a_long_horizon_no_data_make_the_ends_fail(
    ticks: int, horizon: int, epsilon: Fraction
) -> None:
    """The twin spends all of the failure probability before the first crossing; the tick of that then adds its own."""
    one, rng = Exact(bins(epsilon, horizon), ticks), np.random.default_rng(horizon)
    mechanism, most = one.mechanism, int(one.room[0, 0, 0])
    noise = [np.sort(noises(mechanism, np.full(DRAWS, j), rng)) for j in range(ticks + 1)]
    sides = sides_of(mechanism)

    @cache
    def twin(j: int, age: int) -> tuple[int, int]:
        grown = mechanism._grown(horizon, mechanism.gamma(horizon, 0), _up_to(age))
        whole = lagging_quantile(grown, (), mechanism.watchers.scale, 0, 1 - CONFIDENCE, 1.0)
        return sides(j, age) if j else (0, whole)

    failing = {
        ends: [one.worst(partial(one.failure, sides=ends, noises=noise), 60, horizon)]
        for ends in (sides, twin)
    }
    for _ in range(12):
        before = hostile(ticks, most, rng)
        for burst in np.linspace(0, most + 5 * one.scale, 2 * FEW).astype(int):
            before[-1] = burst
            failing[sides].append(one.failure(before, sides, noise))
    assert max(failing[sides]) <= 1 - CONFIDENCE
    assert max(failing[twin]) > 1 - CONFIDENCE + 0.003


@pytest.mark.slow
@pytest.mark.parametrize("cell", range(len(CELLS)))
def test_no_data_are_found_for_which_the_ends_fail(cell: int) -> None:
    one, rng = exact(cell), np.random.default_rng(cell)
    noise = [np.sort(noises(one.mechanism, np.full(DRAWS, j), rng)) for j in range(one.ticks + 1)]

    def failure(part: float) -> Callable[[IntArray], float]:
        return lambda data: one.failure(data, sides_of(one.mechanism, part), noise)

    assert one.worst(failure(1), 600, cell) <= 1 - CONFIDENCE
    assert one.worst(failure(0.7), 0, cell) > 1 - CONFIDENCE


def test_after_a_crossing_the_ends_may_not_be_those_of_the_noise_alone() -> None:
    """Right after a crossing nothing is unseen; but elsewhere the ends already fail as often as they may."""
    ticks, horizon, epsilon = EARLY[2]
    one, rng = Exact(bins(epsilon, horizon), ticks), np.random.default_rng(0)
    noise = [np.sort(noises(one.mechanism, np.full(DRAWS, j), rng)) for j in range(ticks + 1)]
    sides = sides_of(one.mechanism)

    def twin(j: int, age: int) -> tuple[int, int]:
        below, above = sides(j, age)
        terms = tuple(one.mechanism.counters.noise_terms(j))
        return below, above if age else laplace_quantile(terms, 1 - CONFIDENCE)

    assert one.worst(lambda data: one.failure(data, twin, noise), 60, 0) > 1 - CONFIDENCE


def test_each_column_has_its_own_age_and_at_a_crossing_the_ends_of_the_noise_alone() -> None:
    mechanism, noise = bins(Fraction(2), 200, width=3), noise_of("ages", 0)
    state, crossed, seen = (
        mechanism.init(noise),
        np.zeros(3, dtype=np.int64),
        set[tuple[bool, ...]](),
    )
    for query in range(1, 201):
        before = state.intervals
        state, _ = mechanism.step(state, Update(np.array([4, 1, 0])), noise)
        state, _ = mechanism.step(state, Query(), noise)
        now = state.intervals > before
        crossed[now] = query
        assert state.armed.tolist() == crossed.tolist()
        seen.add(tuple(now.tolist()))
        ends = np.array(mechanism.sides(state, CONFIDENCE))
        for column in now.nonzero()[0]:
            terms = tuple(mechanism.counters.noise_terms(int(state.intervals[column])))
            alone = laplace_quantile(terms, (1 - CONFIDENCE) / 2)
            assert ends[:, column].tolist() == [alone, alone]
    assert {(True, False, False), (False, True, False)} <= seen


def test_where_nothing_can_be_unseen_yet_the_ends_are_still_not_those_of_a_crossing() -> None:
    mechanism, again = bins(Fraction(3), 4), bins(Fraction(3), 4)
    assert mechanism._grown(4, mechanism.gamma(4, 1), 1) == 0
    later = mechanism._column_sides(4, 1, 1, CONFIDENCE)
    assert mechanism._column_sides(4, 1, 0, CONFIDENCE) == again._column_sides(4, 1, 0, CONFIDENCE)
    assert mechanism._column_sides(4, 1, 0, CONFIDENCE) != later


@pytest.mark.parametrize("query", [4, 64, 4_096])
def test_without_a_horizon_no_query_of_the_last_counts_at_too_high_a_threshold(query: int) -> None:
    """The bound is for every number of queries that is rounded up to `query`; each counts at most `age` an octave."""
    mechanism = bins_hss(Demand(Setting(1, ADD, None, CONFIDENCE), None, Fraction(1)))
    lower = mechanism.gamma(query, 0) - np.array([mechanism.gamma(q, 0) for q in range(1, query)])
    for age in (1, 2, query // 4, query // 2, query):
        listed = mechanism._thresholds(query, age)
        assert all(number <= age for number, _ in listed)
        for now in range(query // 2, query):
            last = lower[max(0, now - age) : now]
            for below in np.unique(last):
                counted = sum(number for number, far in listed if far >= below)
                assert (last >= below).sum() <= counted


class Runs(NamedTuple):
    """Many runs of one column: closed intervals, the query of the last, what has grown since, the live noises."""

    closed: IntArray
    armed: IntArray
    grown: IntArray
    lift: IntArray


def in_bulk(
    mechanism: PerBinHSS, data: IntArray, rng: np.random.Generator, number: int = RUNS
) -> Runs:
    ticks, scale = mechanism.horizon or 0, mechanism.watchers.scale
    gamma = np.array([mechanism.gamma(ticks, j) for j in range(ticks + 1)])
    closed, armed, grown = np.zeros((3, number), dtype=np.int64)
    lift = geometric(rng, scale, number)
    for tick, row in enumerate(data):
        grown += row
        crossed = grown + geometric(rng, scale, number) >= gamma[closed] + lift
        closed, grown = closed + crossed, np.where(crossed, 0, grown)
        armed = np.where(crossed, tick + 1, armed)
        lift = np.where(crossed, geometric(rng, scale, number), lift)
    return Runs(closed, armed, grown, lift)


def ended(mechanism: PerBinHSS, data: IntArray, seed: int) -> tuple[Runs, IntArray, IntArray]:
    """Runs over all ticks, how far the true value lies above the released one, and both sides, shape (2, RUNS)."""
    rng, true = np.random.default_rng(seed), int(data.sum())
    runs, sides = in_bulk(mechanism, data, rng), sides_of(mechanism)
    released = np.maximum(0, true - runs.grown + noises(mechanism, runs.closed, rng))
    each = zip(runs.closed.tolist(), (len(data) - runs.armed).tolist(), strict=True)
    return runs, true - released, np.array([sides(*one) for one in each]).T


TICKS = 1_000


def zipf(column: int) -> IntArray:
    return Shape(20, TICKS, 4_000, 1).rows(7)[:, column]


def steady(rate: float) -> IntArray:
    return np.random.default_rng(3).poisson(rate, TICKS).astype(np.int64)


# the data, and the half-width that its ends may have, in observed 95 % errors
STREAMS: dict[str, tuple[IntArray, float]] = {
    **{f"zipf {column}": (zipf(column), 1.5) for column in (0, 3, 19)},
    "steady 0.1": (steady(0.1), 1.5),
    **{f"steady {rate}": (steady(rate), 1.25) for rate in (0.2, 1)},
    **{f"dense {rate}": (steady(rate), 1.15) for rate in (10, 20)},
}


@pytest.mark.parametrize("name", STREAMS)
def test_ends_cover_and_are_narrow(name: str) -> None:
    mechanism, (data, widest) = bins(Fraction(1, 2), TICKS), STREAMS[name]
    runs, off, (below, above) = ended(mechanism, data, 5)
    assert ((off <= above) & (-off <= below)).sum() >= FEWEST
    largest = float(np.quantile(np.abs(off), CONFIDENCE))
    assert (below + above).mean() / 2 <= widest * largest
    band = np.array([mechanism.lag(TICKS, int(j), CONFIDENCE) for j in runs.closed])
    assert (below + above).mean() / 2 < 0.7 * band.mean()
    only_lag = np.array([proven(mechanism, int(j)) for j in runs.closed])
    if name.startswith("dense"):
        assert (off <= only_lag).sum() < FEWEST > (-off <= 0).sum(), "the counter's noise counts"


def then(before: IntArray, after: IntArray) -> IntArray:
    return np.concatenate([before[: TICKS - 1 - len(after)], after])


QUIET = np.zeros(300, dtype=np.int64)
OCTAVES = np.isin(np.arange(256), [256 - 2**bits for bits in range(1, 8)]) * 10
BEFORE = {
    "silence": np.zeros(TICKS - 1, dtype=np.int64),
    "steady": steady(1)[:-1],
    "dense": steady(20)[:-1],
    "dense, then silence": then(steady(20), QUIET),
    "dense, then quiet": then(steady(20), QUIET[:10]),
    "dense, then a little in each octave": then(steady(10), OCTAVES),
}


def worst_burst(mechanism: PerBinHSS, before: IntArray, sides: Sides, draws: int = 4) -> float:
    """The largest chance to fail at the last tick over all bursts there, in simulated runs before it."""
    rng = np.random.default_rng(4)
    runs, scale = in_bulk(mechanism, before, rng, 4 * RUNS), float(mechanism.watchers.scale)
    gamma = np.array([mechanism.gamma(TICKS, int(j)) for j in runs.closed])
    each = zip(runs.closed.tolist(), (TICKS - runs.armed).tolist(), strict=True)
    pairs = [(*sides(j, age), *sides(j + 1, 0)) for j, age in each]
    below, above, below_then, above_then = np.array(pairs).T
    open_now = [noises(mechanism, runs.closed, rng) for _ in range(draws)]
    closing = [noises(mechanism, runs.closed + 1, rng) for _ in range(draws)]
    wrong = np.mean([(noise > below_then) | (-noise > above_then) for noise in closing], axis=0)
    worst = 0.0
    for burst in range(int(mechanism.gamma(TICKS, 0) + 5 * scale)):
        grown = runs.grown + burst
        stays = -np.expm1(-np.maximum(0, gamma + runs.lift - grown) / scale)
        off = [grown - noise for noise in open_now]
        unseen_wrong = np.mean([(one > above) | (-one > below) for one in off], axis=0)
        worst = max(worst, float((stays * unseen_wrong + (1 - stays) * wrong).mean()))
    return worst


@pytest.mark.parametrize("name", BEFORE)
def test_no_burst_at_the_end_makes_the_ends_fail(name: str) -> None:
    mechanism = bins(Fraction(1, 2), TICKS)
    assert worst_burst(mechanism, BEFORE[name], sides_of(mechanism)) <= 1 - CONFIDENCE


def test_a_burst_after_silence_is_not_covered_as_if_the_threshold_were_fresh() -> None:
    mechanism = bins(Fraction(1, 2), TICKS)
    sides = sides_of(mechanism)
    fresh = worst_burst(mechanism, BEFORE["silence"], lambda j, age: sides(j, 1))
    assert fresh > 0.045 > worst_burst(mechanism, BEFORE["silence"], sides)


def lists(quantity: Quantity | None, split: Split = "error") -> Lags:
    setting = Setting(5, ADD, 100, CONFIDENCE, ones=3)
    return hss_for(Demand(setting, quantity, Fraction(1), split=split))


SHAPE = Shape(5, 100, 1_500, 150, ones=3)
JOINT: dict[str, Callable[[], Lags]] = {
    "lists": lambda: lists(None),
    "maximum": lambda: lists(MAXIMUM),
    "maximum split by the band": lambda: lists(MAXIMUM, "band"),
    "paper": lambda: PaperHSS(5, MAXIMUM, Fraction(2), 100),
}


@pytest.mark.parametrize("name", JOINT)
def test_ends_of_the_joint_forms_cover_and_one_bound_holds_for_all_releases(name: str) -> None:
    mechanism: Any = JOINT[name]()
    inside, far, whole = [], [], 0
    quantity = getattr(mechanism, "quantity", None)
    for run in range(SHAPE.runs):
        noise, rows = noise_of(f"ends {name}", run), np.minimum(SHAPE.rows(run), 1)
        state, true, largest = mechanism.init(noise), rows.cumsum(axis=0), 0
        for tick, row in enumerate(rows):
            state, _ = mechanism.step(state, Update(row), noise)
            state, answer = mechanism.step(state, Query(), noise)
            right = true[tick] if quantity is None else np.array([quantity.of(true[tick])])
            off = right - np.maximum(answer, 0)
            largest = max(largest, int(np.abs(off).max()))
            if (tick + 1) % 25 == 0:
                below, above = mechanism.sides(state, CONFIDENCE)
                inside.append(float(((off <= above) & (-off <= below)).mean()))
                far.append(float(((off <= above // 5) & (-off <= below // 5)).mean()))
        whole += largest <= mechanism.at_once(100, state.intervals)
    assert np.mean(inside) >= CONFIDENCE - 0.02 > np.mean(far)
    assert whole >= (1 - FAILURE) * SHAPE.runs - 6


def test_one_bound_holds_against_who_sees_the_releases() -> None:
    """Every tick brings as many events as the bound allows unseen; without the union over thresholds it is passed."""
    ticks, runs = 100, 400
    mechanism = bins(Fraction(1), ticks, width=runs)
    one = bins(Fraction(1), ticks)
    highest = one._highest(ticks, ticks)
    single = highest + geometric_tail(one.watchers.scale, FAILURE / 2)
    noise, largest = noise_of("adaptive", 0), np.zeros(runs, dtype=np.int64)
    state, true = mechanism.init(noise), np.zeros(runs, dtype=np.int64)
    for _ in range(ticks):
        open_now = true - state.released  # who sees the releases knows what is not in them
        row = np.maximum(0, single + 1 - np.maximum(0, open_now))
        true = true + row
        state, _ = mechanism.step(state, Update(row), noise)
        state, answer = mechanism.step(state, Query(), noise)
        released = np.maximum(state.released if answer is None else answer, 0)
        largest = np.maximum(largest, np.abs(released - true))
    bounds = np.array([one.at_once(ticks, int(j)) for j in state.intervals])
    assert (largest <= bounds).mean() >= 1 - FAILURE - 0.03
    assert (largest <= single).mean() < 1 - FAILURE - 0.03


def test_the_largest_variance_bounds_the_noise_after_any_number_of_updates() -> None:
    """`error_bound` looks at the answer of the largest variance of an epoch; here at each."""
    mechanism = bins(Fraction(1), 1_000)
    law = ErrorLaw(added=1, high=1, low=1)
    for updates in range(1, 300):
        share = index_probability(FAILURE / 2, updates, None)
        each = laplace_sum_tail(mechanism.counters.noise_terms(updates), share)
        assert each <= error_bound(mechanism.counters, updates.bit_length(), law, FAILURE / 2)
