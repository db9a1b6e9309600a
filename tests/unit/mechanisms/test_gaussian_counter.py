"""Gaussian counters and their correlated noise on a lattice: claims exact on small instances; errors, bands, refusals.

The certificate: on a coarse lattice all noise paths of a few steps go through the very code; the Renyi moment of the
two laws of released lattice values, sum P^a Q^(1-a), stays within e^(a (a-1) rho). Values beyond 9 deviations are left
out. The coupling, for long runs: two neighbouring runs with the same released lattice values; the squares of the
differences of their noises z must stay within `covered`, wherever the event is and whatever the noise. Twins: noise too
small by its slack, drawn once for two steps, calibrated as if columns did not add up, buffers that drop what their
division leaves over, other decays than those that were paid for.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest
from oracles.blt import coefficients, inverse_sums
from scipy.stats import norm

from stream_dp.accounting.gaussian_curve import discrete_gaussian, gaussian_delta
from stream_dp.core.guarantee import GaussianDP
from stream_dp.core.mechanism import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import BrokenCondition, FailClosed, NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import (
    ENDLESS,
    LIMIT,
    TUNED,
    Decays,
    GaussianCounter,
    LatticeNoise,
    LatticeState,
    covered,
)
from stream_dp.mechanisms.noise_quantiles import laplace_quantile
from stream_dp.mechanisms.serving import derived
from stream_dp.noise import NoiseStream
from stream_dp.testing.noise import ScriptedNoise, SeededNoise

ADD, REPLACE = Neighbors.ADD_REMOVE, Neighbors.REPLACE
SEED = bytes(range(32))


class Coarse(GaussianCounter):
    """The counter on a lattice of halves, with decays of two buffers."""

    bits = 1

    @cached_property
    def lattice(self) -> LatticeNoise:
        unit = 2 * self.rho / self.neighbors.l0(self.width, self.ones)
        return LatticeNoise.calibrated(
            Decays((2, 1), (150, 11)), self.steps, unit, self.width, self.bits
        )


class NoSlack(Coarse):
    """A twin: calibrated for the norm of c alone, as on the reals."""

    bits = 0

    @cached_property
    def lattice(self) -> LatticeNoise:
        right = super().lattice
        exact = right.decays.squared_norm(self.steps) * 4**self.bits / (2 * self.rho)
        return replace(right, variance=exact)


class Repeated(LatticeNoise):
    """Noise that is drawn at every other step only."""

    def advance(self, state: LatticeState, noise: object) -> LatticeState:
        silent = ScriptedNoise([0] * self.width)
        return LatticeNoise.advance(self, state, silent if state.steps % 2 else noise)  # type: ignore[arg-type]


class Spared(Coarse):
    """A twin: every second z is not drawn."""

    @cached_property
    def lattice(self) -> LatticeNoise:
        right = super().lattice
        return Repeated(right.decays, right.bits, right.variance, right.width)


class Alone(Coarse):
    """A twin: each column calibrated as if an event touched no other."""

    @cached_property
    def lattice(self) -> LatticeNoise:
        return Coarse(1, self.rho, ADD, self.horizon).lattice


Rows: TypeAlias = Sequence[Sequence[int]]


def released(counter: GaussianCounter, rows: Rows, z: tuple[int, ...]) -> tuple[int, ...]:
    noise, state, values = ScriptedNoise(z), counter.init(ScriptedNoise([])), list[int]()
    for row in rows:
        state, _ = counter.step(state, Update(np.array(row)), noise)
        values += ((state.total << counter.lattice.bits) + state.noise.noise).tolist()
    return tuple(values)


Law: TypeAlias = dict[tuple[int, ...], float]


def laws(counter: GaussianCounter, left: Rows, right: Rows) -> tuple[Law, Law]:
    """The laws of all released values, by every path of noise."""
    v = float(counter.lattice.variance)
    radius = math.ceil(9 * v**0.5)
    weights = {z: math.exp(-z * z / (2 * v)) for z in range(-8 * radius, 8 * radius + 1)}
    whole = sum(weights.values())
    both: tuple[Law, Law] = {}, {}
    for law, rows in zip(both, (left, right), strict=True):
        for z in product(range(-radius, radius + 1), repeat=len(rows) * counter.width):
            answer = released(counter, rows, z)
            law[answer] = law.get(answer, 0.0) + math.prod(weights[draw] / whole for draw in z)
    return both


def moment(counter: GaussianCounter, left: Rows, right: Rows, order: int) -> float:
    """sum P^order Q^(1-order) over all released values."""
    p, q = laws(counter, left, right)
    return sum(p[a] ** order / q[a] ** (order - 1) for a in p if a in q)


def worst_rest(p: Law, q: Law, order: int) -> float:
    """The largest moment of what follows the first value, over all that this is with a probability of 1e-6."""
    mass, rest = dict.fromkeys((a[0] for a in p), 0.0), dict.fromkeys((a[0] for a in p), 0.0)
    for a in p:
        mass[a[0]] += p[a]
        rest[a[0]] += p[a] ** order / q[a] ** (order - 1) if a in q else 0.0
    return max(rest[first] / mass[first] for first in rest if mass[first] > 1e-6)


FIRST, SECOND, NONE = [[1], [0]], [[0], [1]], [[0], [0]]


@pytest.mark.parametrize("order", [2, 4])
def test_the_rest_is_as_private_after_any_first_answer(order: int) -> None:
    """Fresh: an adversary who waits for the worst history gains nothing. A twin that says its variance gains."""
    claim = math.exp(order * (order - 1)) * (1 + 1e-6)
    counter = Coarse(1, Fraction(1), ADD, 2)
    assert counter.guarantee.fresh
    p, q = laws(counter, SECOND, NONE)
    assert 1 < worst_rest(p, q, order) <= claim
    loud, quiet = ((mass, (a[0], *a)) for mass, a in ((0.001, (0,)), (0.999, (1,))))
    told: tuple[Law, Law] = {}, {}
    for (mass, first), rho in ((loud, Fraction(3)), (quiet, Fraction(1, 3))):
        for law, rest in zip(told, laws(Coarse(1, rho, ADD, 1), [[1]], [[0]]), strict=True):
            law |= {(first[0], *a): mass * chance for a, chance in rest.items()}
    whole = sum(told[0][a] ** order / told[1][a] ** (order - 1) for a in told[0] if a in told[1])
    assert (whole <= claim) == (order == 2)
    assert worst_rest(*told, order) > claim


MOVED = [[1, 0]], [[0, 1]]


@pytest.mark.parametrize("order", [2, 4])
def test_the_claim_holds_exactly_on_small_instances(order: int) -> None:
    for counter, left, right in (
        (Coarse(1, Fraction(1), ADD, 1), [[1]], [[0]]),
        (Coarse(1, Fraction(1), ADD, 2), FIRST, NONE),
        (Coarse(1, Fraction(1), ADD, 2), SECOND, NONE),
        (Coarse(2, Fraction(1), REPLACE, 1), *MOVED),
    ):
        loss = moment(counter, left, right, order)
        assert 1 < loss <= math.exp(order * (order - 1)) * (1 + 1e-9)


def test_all_events_of_a_user_cost_the_square_of_their_number() -> None:
    """Twice as many events, four times rho; a counter at half of it, or at all, is more than a user may lose."""
    allowed, claim = math.exp(4 * 3), Fraction(1)
    for rho, theirs in ((claim / 4, [[2]]), (claim / 4, [[1], [1]]), (claim / 9, [[3]])):
        counter = Coarse(1, rho, ADD, len(theirs))
        assert 1 < moment(counter, theirs, NONE[: len(theirs)], 4) <= allowed * (1 + 1e-9)
    for forgotten in (claim, claim / 2):
        assert moment(Coarse(1, forgotten, ADD, 1), [[2]], [[0]], 4) > allowed


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


@pytest.mark.parametrize(
    ("horizon", "gdp", "relation"),
    [(1, False, ADD), (2, True, REPLACE), (60, False, REPLACE), (None, False, REPLACE)],
)
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


@pytest.mark.parametrize("horizon", [60, 4096, None])
@pytest.mark.parametrize("gdp", [False, True])
def test_every_step_draws_the_variance_that_pays_for_all_of_them(
    horizon: int | None, gdp: bool
) -> None:
    """By the bound on the shifts of all steps, of which no run of an endless counter sees more than the first."""
    rho = Fraction(1, 40)
    counter = GaussianCounter(3, rho, REPLACE, horizon, gdp=gdp)
    lattice, steps = counter.lattice, counter.steps
    least = covered(lattice.decays, lattice.bits, steps) / (2 * rho / REPLACE.l0(3))
    for before in sorted({0, 1, 59, min(60, steps - 1), steps // 2, steps - 1}):
        noise = ScriptedNoise([0] * 3)
        lattice.advance(replace(lattice.init(), steps=before), noise)
        (call,) = noise.calls
        assert call.scale * Fraction(9, 10) < least <= call.scale


def test_one_step_meets_its_claim() -> None:
    """Half steps and their slack of one square root of nothing: what is left unused is rounding up the variance."""
    counter = Coarse(1, Fraction(1, 4), ADD, 1)
    loss = moment(counter, [[1]], [[0]], 2)
    assert loss == pytest.approx(math.exp(float(4 / counter.lattice.variance)), rel=1e-9)


def one_step_delta(shift: int, variance: float, epsilon: float) -> float:
    """The exact delta of one discrete Gaussian against itself, shifted: the sum of all P - e^epsilon Q above 0."""
    x = np.arange(-60 * shift, 61 * shift)
    masses = np.exp(-(x**2) / (2 * variance))
    other = np.exp(-((x - shift) ** 2) / (2 * variance))
    return float(np.maximum(other - math.exp(epsilon) * masses, 0).sum() / masses.sum())


@pytest.mark.parametrize("mu", [Fraction(1, 3), Fraction(5, 2)])
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


def test_broken_twins_exceed_their_claim() -> None:
    rho = Fraction(1, 4)
    assert moment(NoSlack(1, rho, ADD, 2), FIRST, NONE, 4) > math.exp(12 * rho)
    alone = Alone(2, rho, REPLACE, 1)
    alone.__dict__["lattice"] = replace(alone.lattice, width=2)
    assert moment(alone, *MOVED, 4) > math.exp(12 * rho)


def test_noise_that_is_not_drawn_is_caught() -> None:
    """An event at the second of two steps: every path of noise of the twin tells the streams apart."""
    for kind, disjoint in ((Coarse, False), (Spared, True)):
        counter, paths = kind(1, Fraction(1, 4), ADD, 2), [*product(range(-8, 9), repeat=2)]
        left, right = ({released(counter, rows, z) for z in paths} for rows in (SECOND, NONE))
        assert left.isdisjoint(right) == disjoint


def test_what_is_claimed_is_derived() -> None:
    for horizon in (1, 2, 1024, 100_000, 1 << 32, None):
        for relation, ones in ((ADD, 1), (REPLACE, 1), (ADD, 3), (REPLACE, 5)):
            for gdp in (False, True):
                counter = GaussianCounter(7, Fraction(1, 50), relation, horizon, ones, gdp)
                derivation = derived(counter, "here")
                assert derivation.guarantee == counter.guarantee
                assert derivation.conditions[0].name == "noise"


@pytest.mark.parametrize("gdp", [False, True])
def test_noise_too_small_is_not_derived(gdp: bool) -> None:
    counter = GaussianCounter(2, Fraction(1, 50), REPLACE, 100, gdp=gdp)
    less = counter.lattice.variance * Fraction(999, 1000)
    counter.__dict__["lattice"] = replace(counter.lattice, variance=less)
    with pytest.raises(BrokenCondition, match="noise"):
        counter.derivation()


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


def test_parameters_that_cannot_be_met_are_refused() -> None:
    for rho, horizon, said in (
        (Fraction(0), 10, "needs a rho"),
        (Fraction(1), 0, "1 to 2\\^40 updates"),
        (Fraction(1), (1 << 40) + 1, "1 to 2\\^40 updates"),
        (Fraction(1, 10**30), 1000, "more noise than 64 bits hold"),
    ):
        with pytest.raises(NotDerivable, match=said):
            GaussianCounter(1, rho, ADD, horizon).derivation()
    with pytest.raises(NotDerivable, match="Create the mechanism for add_remove"):
        GaussianCounter(2, Fraction(1), Neighbors.REPLACE_ANY_TICK, 10).derivation()


def test_noise_too_large_for_64_bits_stops() -> None:
    counter = GaussianCounter(1, Fraction(1), ADD, 2)
    noise = SeededNoise(1)
    with pytest.raises(FailClosed, match="too large"):
        counter.step(counter.init(noise), Update(np.array([1])), ScriptedNoise([1 << 60]))


SHAPES = [Decays((2, 1), (150, 11)), Decays(*TUNED[6]), Decays(*TUNED[16]), Decays(*ENDLESS)]


def noise_of(process: LatticeNoise, drawn: list[int]) -> list[int]:
    state, noise = process.init(), []
    for z in drawn:
        state = process.advance(state, ScriptedNoise([z]))
        noise.append(int(state.noise[0]))
    return noise


def coupled(process: LatticeNoise, drawn: list[int], at: int) -> list[int]:
    """The shifts of z with which a run without the event of step `at` releases the same lattice values."""
    shifts, state, released = [], process.init(), 0
    for step, value in enumerate(noise_of(process, drawn)):
        wanted = value - released + ((1 << process.bits) if step == at else 0)
        fed = int(process.advance(state, ScriptedNoise([0])).noise[0] - state.noise[0])
        z, released = wanted - fed, value
        shifts.append(z - drawn[step])
        state = process.advance(state, ScriptedNoise([z]))
    return shifts


def check_coupling(make: Any, decays: Decays, bits: int, steps: int, slack: bool = True) -> float:
    """The squares of all shifts stay within `covered`; returns how much of it they use at most."""
    worst = 0.0
    for seed in range(2):
        deviation = 1 << bits + 6 * seed
        drawn = NoiseStream(SEED, seed).gaussian(Fraction(deviation**2), steps).tolist()
        for at in (0, steps // 3):
            process = make(decays, bits, Fraction(deviation**2), 1)
            shifts = coupled(process, drawn, at)
            assert not any(shifts[:at])
            assert shifts[at] == 1 << bits
            bound = covered(decays, bits, steps)
            if not slack:
                bound = int(decays.squared_norm(steps) * 4**bits)
            squares = sum(shift * shift for shift in shifts)
            assert squares <= bound, (seed, at, squares / bound)
            worst = max(worst, squares / bound)
            eta = decays.rounding
            for m, c in enumerate(coefficients(decays, min(40, steps - at))):
                assert abs(shifts[at + m] - c * (1 << bits)) < (eta if m else 1)
    return worst


@pytest.mark.parametrize(("decays", "bits"), [*zip(SHAPES, (0, 1, 5, 20), strict=True)])
def test_the_shifts_stay_within_what_is_paid_for(decays: Decays, bits: int) -> None:
    check_coupling(LatticeNoise, decays, bits, 200)


def test_on_a_fine_lattice_the_bound_is_met() -> None:
    assert check_coupling(LatticeNoise, SHAPES[2], 25, 200) > 0.99


class Dropping(LatticeNoise):
    """A twin: what the division of a buffer leaves over is thrown away."""

    def advance(self, state: LatticeState, noise: object) -> LatticeState:
        after = LatticeNoise.advance(self, state, noise)  # type: ignore[arg-type]
        return LatticeState(after.steps, after.noise, after.carried, 0 * after.rests)


def undecayed(decays: Decays, bits: int, variance: Fraction, width: int) -> LatticeNoise:
    """A twin: the decays that it runs are not those that it was calibrated for."""
    gains = tuple(gain + gain // 8 + 1 for gain in decays.gains)
    return LatticeNoise(Decays(decays.halvings, gains), bits, variance, width)


def test_other_decays_and_a_bound_without_its_slack_are_caught() -> None:
    with pytest.raises(AssertionError):
        check_coupling(undecayed, SHAPES[3], 5, 200)
    with pytest.raises(AssertionError):
        check_coupling(LatticeNoise, SHAPES[1], 0, 300, slack=False)


def check_buffers(kind: type[LatticeNoise], decays: Decays) -> None:
    """A buffer is within one unit of theta_i times itself plus omega_i times w, for ever: roundings do not pile up."""
    process = kind(decays, 4, Fraction(4**9), 1)
    exact, state, before = [Fraction(0)] * len(decays.halvings), process.init(), 0
    for z in NoiseStream(SEED, 3).gaussian(process.variance, 400).tolist():
        state = process.advance(state, ScriptedNoise([z]))
        step, before = int(state.noise[0]) - before, int(state.noise[0])
        for i, (k, p) in enumerate(zip(decays.halvings, decays.gains, strict=True)):
            exact[i] += (p * step - exact[i]) / 2**k
            exact[i] = Fraction(round(exact[i] * 2**90), 2**90)
            assert abs(int(state.carried[i, 0]) - exact[i]) < 1 + Fraction(1, 2**40)


@pytest.mark.parametrize("decays", SHAPES, ids=str)
def test_buffers_follow_their_definition(decays: Decays) -> None:
    check_buffers(LatticeNoise, decays)


def test_buffers_that_drop_their_rests_drift_away() -> None:
    with pytest.raises(AssertionError):
        check_buffers(Dropping, SHAPES[3])


def test_the_noise_is_a_c_inverse_z() -> None:
    """On a fine lattice the process is the definition's, up to what `drift` says."""
    for decays in SHAPES[:3]:
        process = LatticeNoise(decays, 24, Fraction(4**26), 1)
        drawn = NoiseStream(SEED, 9).gaussian(process.variance, 60).tolist()
        sums = inverse_sums(coefficients(decays, 60))
        for t, noise in enumerate(noise_of(process, drawn)):
            exact = sum(sums[k] * drawn[t - k] for k in range(t + 1))
            assert abs(noise - exact) <= Fraction(process.drift(t + 1)) * (1 << 24) + 1


@pytest.mark.parametrize("steps", [1, 1000, 1 << 40])
@pytest.mark.parametrize("unit", [Fraction(1, 3), Fraction(1, 10**7), Fraction(8)])
def test_calibration_pays_for_every_shift(steps: int, unit: Fraction) -> None:
    for decays in SHAPES:
        process = LatticeNoise.calibrated(decays, steps, unit, 3)
        assert covered(decays, process.bits, steps) <= unit * process.variance
        least = decays.squared_norm(steps) / unit  # of a mechanism on the reals
        if unit > Fraction(1, 100) or steps <= 1 << 20:
            assert process.variance <= 1.02 * float(least) * 4**process.bits + 1


def test_a_sample_too_large_for_its_lattice_stops() -> None:
    process = LatticeNoise(SHAPES[1], 3, Fraction(64), 2)
    for z in ([0, LIMIT], [-LIMIT, 0]):
        with pytest.raises(FailClosed, match="too large for its lattice"):
            process.advance(process.init(), ScriptedNoise(z))
    for z in ([LIMIT - 1, 1 - LIMIT], [1 - LIMIT] * 2):
        assert process.advance(process.init(), ScriptedNoise(z)).noise.tolist() == z


def test_largest_products_stay_inside_64_bits() -> None:
    """The worst input: |w| at its limit for ever. A buffer is at most its gain times that, a product no more."""
    for halvings, gains in (*TUNED.values(), ENDLESS):
        assert list(halvings) == sorted(set(halvings), reverse=True)
        assert min(*halvings, *gains) >= 1
        assert 2 * (LIMIT - 1) * gains[0] + (1 << halvings[0]) < 1 << 63
        assert (LIMIT - 1) * sum(gains) + len(gains) < 1 << 63


def check_variance(process: LatticeNoise) -> None:
    """2,000 columns, 500 steps: within 6 deviations of a chi-square (2e-9 a look, 3 looks)."""
    noise, state = NoiseStream(SEED, 10), process.init()
    for step in range(1, 501):
        state = process.advance(state, noise)
        if step in (1, 60, 500):
            found = float((process.value(state).astype(float) ** 2).mean())
            expected = process.deviation(step) ** 2 + 1 / 12
            assert abs(found / expected - 1) < 6 * (2 / 2000) ** 0.5


def test_a_long_run_has_the_variance_that_the_bands_use() -> None:
    """Noise used again has half of what was paid for after 60 steps; to pass it has probability below 1e-9."""
    process = SHAPES[2], 20, Fraction(4**23), 2000
    check_variance(LatticeNoise(*process))
    with pytest.raises(AssertionError):
        check_variance(Repeated(*process))


def test_too_little_loss_for_64_bits_is_refused() -> None:
    with pytest.raises(NotDerivable, match="more noise than 64 bits hold"):
        LatticeNoise.calibrated(SHAPES[3], 1 << 40, Fraction(1, 10**16), 1)
