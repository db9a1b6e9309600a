"""Gaussian counters: what they claim is derived, exact on small instances; error, bands and refusals.

The certificate: on a coarse lattice all noise paths of a few steps go through the very code; the Renyi moment of the
two laws of released lattice values, sum P^a Q^(1-a), stays within e^(a (a-1) rho). Values beyond 9 deviations are left
out. Twins: noise too small by its slack, drawn once for two steps, or calibrated as if
columns did not add up.
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from stream_dp.accounting.conversions import zcdp_budget, zcdp_epsilon
from stream_dp.accounting.derive import derive
from stream_dp.accounting.gaussian_curve import discrete_gaussian, gaussian_delta
from stream_dp.accounting.situations import Fixed
from stream_dp.core.guarantee import ZCDP, ApproxDP, GaussianDP
from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BrokenCondition, FailClosed, NotDerivable, RejectedMessage
from stream_dp.mechanisms.linear.counter import HybridCounter
from stream_dp.mechanisms.linear.gaussian_counter import (
    Decays,
    GaussianCounter,
    GaussianCounterState,
    LatticeNoise,
    LatticeState,
    decays_for,
)
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.serving import derived
from stream_dp.noise import NoiseStream
from stream_dp.testing.noise import ScriptedNoise, SeededNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
MILLIONTH = Fraction(1, 10**6)
TARGET = ApproxDP(Fraction(1), MILLIONTH)
SEED = bytes(range(32))


class Coarse(GaussianCounter):
    """The counter on a lattice of halves, with decays of two buffers."""

    bits = 1

    @cached_property
    def lattice(self) -> LatticeNoise:
        """As calibrated, but coarse."""
        unit = 2 * self.rho / self.neighbors.l0(self.width, self.ones)
        return LatticeNoise.calibrated(
            Decays((2, 1), (150, 11)), self.steps, unit, self.width, self.bits
        )


class NoSlack(Coarse):
    """A twin: calibrated for the norm of c alone, as on the reals."""

    bits = 0

    @cached_property
    def lattice(self) -> LatticeNoise:
        """Without eta sqrt(T)."""
        right = super().lattice
        exact = right.decays.squared_norm(self.steps) * 4**self.bits / (2 * self.rho)
        return replace(right, variance=exact)


class Repeated(LatticeNoise):
    """Noise that is drawn at every other step only."""

    def advance(self, state: LatticeState, noise: object) -> LatticeState:
        """The second step uses no z of its own."""
        silent = ScriptedNoise([0] * self.width)
        return LatticeNoise.advance(self, state, silent if state.steps % 2 else noise)  # type: ignore[arg-type]


class Spared(Coarse):
    """A twin: every second z is not drawn."""

    @cached_property
    def lattice(self) -> LatticeNoise:
        """The same variance, half of the draws."""
        right = super().lattice
        return Repeated(right.decays, right.bits, right.variance, right.width)


class Alone(Coarse):
    """A twin: each column calibrated as if an event touched no other."""

    @cached_property
    def lattice(self) -> LatticeNoise:
        """Without L0."""
        return Coarse(1, self.rho, ADD, self.horizon).lattice


def released(counter: GaussianCounter, rows: list[IntArray], z: tuple[int, ...]) -> list[int]:
    """What lies on the lattice after each step."""
    noise, state, found = ScriptedNoise(z), counter.init(ScriptedNoise([])), []
    for row in rows:
        state, _ = counter.step(state, Update(row), noise)
        values = (state.total << counter.lattice.bits) + state.noise.noise
        found += values.tolist()
    return found


def moment(
    counter: GaussianCounter, rows: tuple[list[IntArray], list[IntArray]], order: int
) -> float:
    """sum P^order Q^(1-order) over all released values, by every path of noise of the left run."""
    v = float(counter.lattice.variance)
    radius = math.ceil(9 * v**0.5)
    steps = len(rows[0]) * counter.width
    values = range(-radius, radius + 1)
    weights = {z: math.exp(-z * z / (2 * v)) for z in range(-8 * radius, 8 * radius + 1)}
    whole = sum(weights.values())
    right: dict[tuple[int, ...], float] = {}
    left: dict[tuple[int, ...], float] = {}
    for law, side in ((left, rows[0]), (right, rows[1])):
        for z in product(values, repeat=steps):
            answer = tuple(released(counter, side, z))
            law[answer] = law.get(answer, 0.0) + math.prod(weights[one] / whole for one in z)
    return sum(p**order / right[a] ** (order - 1) for a, p in left.items() if a in right)


def neighbours(
    width: int, at: int, steps: int, other: int | None = None
) -> tuple[list[IntArray], list[IntArray]]:
    """Two streams: the left has an event in column 0 at step `at`; the right has none, or one in column `other`."""
    empty = [np.zeros(width, dtype=np.int64) for _ in range(steps)]
    sides = []
    for column in (0, other):
        rows = [row.copy() for row in empty]
        if column is not None:
            rows[at][column] = 1
        sides.append(rows)
    return sides[0], sides[1]


@pytest.mark.parametrize("order", [2, 4])
def test_the_claim_holds_exactly_on_small_instances(order: int) -> None:
    for horizon, rho, at in ((1, 1, 0), (2, 1, 0), (2, 1, 1)):
        counter = Coarse(1, Fraction(rho), ADD, horizon)
        found = moment(counter, neighbours(1, at, horizon), order)
        assert 1 < found <= math.exp(order * (order - 1) * rho) * (1 + 1e-9)
    counter = Coarse(2, Fraction(1), REPLACE, 1)
    found = moment(counter, neighbours(2, 0, 1, other=1), order)
    assert 1 < found <= math.exp(order * (order - 1)) * (1 + 1e-9)


def of_a_user(*events: int) -> tuple[list[IntArray], list[IntArray]]:
    """Two streams: the left one has so many events of one user at each step."""
    empty = [np.zeros(1, dtype=np.int64) for _ in events]
    return [np.array([count], dtype=np.int64) for count in events], empty


def test_all_events_of_a_user_cost_the_square_of_their_number() -> None:
    """Twice as many events, four times rho; a counter at half of it, or at all, is more than a user may lose."""
    order, claim = 4, Fraction(1)
    allowed = math.exp(order * (order - 1) * claim)
    for rows in (of_a_user(2), of_a_user(1, 1)):
        counter = Coarse(1, claim / 4, ADD, len(rows[0]))
        assert 1 < moment(counter, rows, order) <= allowed * (1 + 1e-9)
    assert moment(Coarse(1, claim / 9, ADD, 1), of_a_user(3), order) <= allowed * (1 + 1e-9)
    for forgotten in (claim, claim / 2):
        assert moment(Coarse(1, forgotten, ADD, 1), of_a_user(2), order) > allowed


def shifts(
    counter: GaussianCounter, steps: int, at: int, seed: int
) -> tuple[int, set[Fraction], list[int]]:
    """Return the sum of squares of what an event at step `at` does to z, the variances drawn, and the draws a step.

    The right run, without the event, gets the noise with which it releases the same lattice values; how far that lies
    from the left run's is found by asking the code, with no noise, what it would release.
    """
    lattice, width = counter.lattice, counter.width
    total, squares, variances, sizes = 0, 0, set[Fraction](), list[int]()
    left, right = lattice.init(), lattice.init()
    rng = np.random.default_rng(seed)
    state = counter.init(ScriptedNoise([]))
    for step in range(steps):
        z = rng.integers(-(1 << lattice.bits), 1 << lattice.bits, width)
        row = np.zeros(width, dtype=np.int64)
        row[0] = step == at
        noise = ScriptedNoise(z.tolist())
        state, _ = counter.step(state, Update(row), noise)
        variances |= {call.scale for call in noise.calls}
        sizes += [call.size for call in noise.calls if call.kind == "gaussian"]
        total += int(row[0])
        left = lattice.advance(left, ScriptedNoise(z.tolist()))
        assert np.array_equal(left.noise, state.noise.noise)
        wanted = left.noise.copy()
        wanted[0] += total << lattice.bits
        silent = lattice.advance(right, ScriptedNoise([0] * width))
        other = wanted - silent.noise
        right = lattice.advance(right, ScriptedNoise(other.tolist()))
        assert np.array_equal(right.noise, wanted)
        squares += sum(int(shift) ** 2 for shift in (other - z).tolist())
    return squares, variances, sizes


@pytest.mark.parametrize("horizon", [1, 2, 60, None])
@pytest.mark.parametrize("gdp", [False, True])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_noise_that_is_drawn_pays_for_the_shift_of_an_event(
    horizon: int | None, gdp: bool, relation: Neighbors
) -> None:
    """On every path the squares of z's shifts are at most 2 rho / L0 of the variance drawn, and not of 0.9 of it.

    The shifts are the counter's own; the variance is what its noise is asked for, not what it says of itself.
    """
    rho, steps = Fraction(1, 40), horizon or 60
    counter = GaussianCounter(2, rho, relation, horizon, gdp=gdp)
    each = 2 * rho / relation.l0(2)
    for seed, at in enumerate({0, steps // 2, steps - 1}):
        squares, variances, sizes = shifts(counter, steps, at, seed)
        (variance,) = variances
        assert sizes == [2] * steps  # a fresh z for each column at every step
        assert 0 < squares <= each * variance
        if at == 0 and horizon:
            assert squares > each * variance * Fraction(9, 10)


def test_one_step_meets_its_claim() -> None:
    """Half steps and their slack of one square root of nothing: what is left unused is rounding up the variance."""
    counter = Coarse(1, Fraction(1, 4), ADD, 1)
    v = counter.lattice.variance
    assert moment(counter, neighbours(1, 0, 1), 2) == pytest.approx(
        math.exp(float(4 / v)), rel=1e-9
    )


def one_step_delta(shift: int, variance: float, epsilon: float) -> float:
    """The exact delta of one discrete Gaussian against itself, shifted: the sum of all P - e^epsilon Q above 0."""
    x = np.arange(-60 * shift, 61 * shift)
    masses = np.exp(-(x**2) / (2 * variance))
    other = np.exp(-((x - shift) ** 2) / (2 * variance))
    return float(np.maximum(other - math.exp(epsilon) * masses, 0).sum() / masses.sum())


@pytest.mark.parametrize("mu", [Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_one_step_is_gaussian_dp(mu: Fraction) -> None:
    """Its exact delta is at most that of mu-GDP, at every epsilon looked at; with 2 % less deviation it is not."""
    counter = Coarse(1, mu**2 / 2, ADD, 1)
    process, shift = counter.lattice.for_gdp, 1 << Coarse.bits
    least = float(shift**2 / mu**2)  # of a Gaussian on the reals
    assert least + 1 <= process.variance <= least + 2
    assert discrete_gaussian(process.variance, Fraction(shift**2)).mu <= mu
    exceeded = False
    for epsilon in (Fraction(0), Fraction(1, 4), Fraction(1), Fraction(3)):
        allowed = float(gaussian_delta(GaussianDP(mu), epsilon))
        found = one_step_delta(shift, float(process.variance), float(epsilon))
        assert found <= allowed * (1 + 1e-12)
        exceeded |= one_step_delta(64 * shift, 4096 * least * 0.96, float(epsilon)) > allowed
    assert exceeded


@pytest.mark.parametrize(
    ("twin", "width", "relation", "horizon"),
    [(NoSlack, 1, ADD, 2), (Alone, 2, REPLACE, 1)],
)
def test_broken_twins_exceed_their_claim(
    twin: type[GaussianCounter], width: int, relation: Neighbors, horizon: int
) -> None:
    rho = Fraction(1, 4)
    counter = twin(width, rho, relation, horizon)
    if twin is Alone:
        counter.__dict__["lattice"] = replace(counter.lattice, width=2)
    rows = neighbours(width, 0, horizon, other=1 if width == 2 else None)
    assert moment(counter, rows, 4) > math.exp(12 * rho)


def test_noise_that_is_not_drawn_is_caught() -> None:
    """An event at the second of two steps: every path of noise of the twin tells the streams apart."""
    disjoint = []
    for kind in (Coarse, Spared):
        counter = kind(1, Fraction(1, 4), ADD, 2)
        radius = range(-8, 9)
        laws = [
            {tuple(released(counter, side, z)) for z in product(radius, repeat=2)}
            for side in neighbours(1, 1, 2)
        ]
        disjoint.append(laws[0].isdisjoint(laws[1]))
    assert disjoint == [False, True]


def test_what_is_claimed_is_derived() -> None:
    for horizon in (1, 2, 1024, 100_000, 1 << 32, None):
        for relation, ones in ((ADD, 1), (REPLACE, 1), (ADD, 3), (REPLACE, 5)):
            for gdp in (False, True):
                counter = GaussianCounter(7, Fraction(1, 50), relation, horizon, ones, gdp)
                derivation = derived(counter, "here")
                assert derivation.guarantee == counter.guarantee
                assert derivation.conditions[0].name == "noise"


def test_columns_add_up_in_squares() -> None:
    """Four ones an event: twice the deviation, where a counter of its own for each would have four times."""
    one = GaussianCounter(9, Fraction(1, 50), ADD, 1000).lattice
    four = GaussianCounter(9, Fraction(1, 50), ADD, 1000, ones=4).lattice
    assert four.deviation(1000) / one.deviation(1000) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("gdp", [False, True])
def test_noise_too_small_is_not_derived(gdp: bool) -> None:
    counter = GaussianCounter(2, Fraction(1, 50), REPLACE, 100, gdp=gdp)
    less = counter.lattice.variance * Fraction(999, 1000)
    counter.__dict__["lattice"] = replace(counter.lattice, variance=less)
    with pytest.raises(BrokenCondition, match="noise"):
        counter.derivation()


def gaussian_mu() -> Fraction:
    """The largest mu, to 12 digits, that is (1, 1e-6)-DP."""
    low, high = 0, 10**12
    while high - low > 1:
        middle = (low + high) // 2
        enough = gaussian_delta(GaussianDP(Fraction(middle, 10**12)), Fraction(1)) <= MILLIONTH
        low, high = (middle, high) if enough else (low, middle)
    return Fraction(low, 10**12)


def rmse(counter: GaussianCounter, steps: int) -> float:
    """The root of the mean square error over all steps, with its roundings."""
    every = {max(1, round(steps * k / 256)) for k in range(1, 257)} | set(range(1, 65))
    points = sorted(point for point in every if point <= steps)
    squares = [counter.lattice.deviation(t) ** 2 + 1 / 12 for t in points]
    return float(np.interp(np.arange(1, steps + 1), points, squares).mean() ** 0.5)


@pytest.mark.parametrize(("bits", "by_gdp", "by_zcdp"), [(10, 13.2, 14.2), (16, 18.8, 20.2)])
def test_error_at_epsilon_1_and_delta_1e_6(bits: int, by_gdp: float, by_zcdp: float) -> None:
    """By GDP mu = 0.2367 (deviation 4.225 an event), by zCDP rho = 0.024356 (4.531)."""
    mu, rho = gaussian_mu(), zcdp_budget(TARGET)
    assert float(mu) == pytest.approx(1 / 4.2247, rel=1e-4)
    assert float(rho) == pytest.approx(0.024356, rel=1e-4)
    gdp = GaussianCounter(1, mu**2 / 2, ADD, 1 << bits, gdp=True)
    assert gdp.mu == mu
    assert rmse(gdp, 1 << bits) < by_gdp
    assert rmse(GaussianCounter(1, rho, ADD, 1 << bits), 1 << bits) < by_zcdp


def test_composition_finds_the_epsilon() -> None:
    """Two counters at once: zCDP and GDP parts through the rules, at a delta that the situation grants."""
    mu = gaussian_mu()
    parts = [GaussianCounter(1, mu**2 / 4, ADD, 1024, gdp=gdp) for gdp in (False, True)]
    for part in parts:
        two = (part.derivation(), part.derivation())
        whole = derive(two, Fixed("two", MILLIONTH))
        assert isinstance(whole.guarantee.measure, ApproxDP)
        expected = 1 if part.gdp else float(zcdp_epsilon(ZCDP(mu**2 / 2), MILLIONTH))
        assert float(whole.guarantee.measure.epsilon) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bits", [4, 10, 16, 24, 32])
def test_without_a_horizon_no_step_is_far_from_its_optimum(bits: int) -> None:
    """Within 1.8 in mean square error, with all slack, of a counter made for that very horizon."""
    rho = Fraction(1, 50)
    endless = GaussianCounter(1, rho, ADD, None)
    own = GaussianCounter(1, rho, ADD, 1 << bits)
    ratio = (endless.lattice.deviation(1 << bits) / own.lattice.deviation(1 << bits)) ** 2
    assert ratio < 1.8
    assert decays_for(None) == endless.lattice.decays


@pytest.mark.parametrize("horizon", [40, None])
def test_bands_cover_at_their_rate(horizon: int | None) -> None:
    """4,000 columns, four ticks: within 6 deviations of the rate, or above by what rounding to integers adds."""
    counter = GaussianCounter(4000, Fraction(1, 20), ADD, horizon)
    noise, row = NoiseStream(SEED, 20), np.ones(4000, dtype=np.int64)
    state = counter.init(noise)
    for tick in range(1, 41):
        state, _ = counter.step(state, Update(row), noise)
        if tick in (1, 5, 17, 40):
            _, answer = counter.step(state, Query(), noise)
            assert answer is not None
            for confidence in (0.5, 0.95, 0.999):
                band = counter.band(tick, confidence)
                covered = float((abs(answer - tick) <= band).mean())
                spread = 6 * (confidence * (1 - confidence) / 4000) ** 0.5
                density = (
                    2 * norm.pdf(norm.ppf(0.5 + confidence / 2)) / counter.lattice.deviation(tick)
                )
                assert confidence - spread < covered < confidence + spread + 1.2 * density


def test_terms_stand_for_the_gaussian() -> None:
    """What HSS makes bands of: no narrower than the counter's own band, and hardly wider."""
    counter = GaussianCounter(3, Fraction(1, 40), REPLACE, None)
    assert counter.noise_terms(0) == []
    assert counter.band(0, 0.95) == 0
    for updates in (1, 2, 100, 5000):
        terms = counter.noise_terms(updates)
        for confidence in (0.8, 0.95, 0.9999):
            found = laplace_quantile(tuple(terms), 1 - confidence)
            band = counter.band(updates, confidence)
            assert band <= found <= band + 2 + band // 20
        for before in range(1, updates, 37):
            assert counter.noise_terms(before)[0][0] <= counter.most_noise_terms(before)[0][0]
            assert counter.most_noise_terms(before)[0][0] <= counter.most_noise_terms(updates)[0][0]


def test_it_has_the_methods_of_the_pure_counter() -> None:
    names = {name for name in vars(HybridCounter) if not name.startswith("_")}
    theirs = {"unit_epsilon", "totals", "inner", "epsilon", "trees", "fine"}
    assert names - theirs <= set(dir(GaussianCounter(1, Fraction(1), ADD, None)))


@pytest.mark.parametrize(
    ("rho", "horizon", "said"),
    [
        (Fraction(0), 10, "needs a rho"),
        (Fraction(-1), None, "needs a rho"),
        (Fraction(1), 0, "1 to 2\\^40 updates"),
        (Fraction(1), (1 << 40) + 1, "1 to 2\\^40 updates"),
        (Fraction(1, 10**30), 1000, "more noise than 64 bits hold"),
    ],
)
def test_parameters_that_cannot_be_met_are_refused(
    rho: Fraction, horizon: int | None, said: str
) -> None:
    with pytest.raises(NotDerivable, match=said):
        GaussianCounter(1, rho, ADD, horizon).derivation()


def test_a_replacement_in_another_tick_is_refused() -> None:
    with pytest.raises(NotDerivable, match="make the mechanism for add_remove"):
        GaussianCounter(2, Fraction(1), Neighbors.REPLACE_ANY_TICK, 10).derivation()


def test_an_update_too_many_changes_nothing() -> None:
    counter, noise = GaussianCounter(1, Fraction(1), ADD, 2), SeededNoise(1)
    state = counter.init(noise)
    for _ in range(2):
        state, _ = counter.step(state, Update(np.array([1])), noise)
    drawn = noise.drawn
    with pytest.raises(RejectedMessage, match="made for 2 updates"):
        counter.step(state, Update(np.array([1])), noise)
    assert noise.drawn == drawn == 2
    assert isinstance(state, GaussianCounterState)
    with pytest.raises(FailClosed, match="too large"):
        counter.step(counter.init(noise), Update(np.array([1])), ScriptedNoise([1 << 60]))
