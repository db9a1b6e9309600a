"""Correlated Gaussian noise on a lattice: what a neighbour's noise must be, step by step, and what that costs.

The coupling: two neighbouring runs with the same released lattice values. `coupled` runs the very code that makes the
noise, finds the z of the second run, and the squares of the differences must stay within `covered`, wherever the event
is and whatever the noise. Twins: a bound without its slack, buffers that drop what their division leaves over, noise
that is used again, other decays than those that were paid for: each must be caught.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
from oracles.blt import coefficients, inverse_sums

from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.mechanisms.linear.gaussian_counter import (
    ENDLESS,
    LIMIT,
    TUNED,
    Decays,
    LatticeNoise,
    LatticeState,
    covered,
)
from stream_dp.noise import NoiseStream
from stream_dp.testing.noise import ScriptedNoise

SEED = bytes(range(32))
SHAPES = [Decays((2, 1), (150, 11)), Decays(*TUNED[6]), Decays(*TUNED[16]), Decays(*ENDLESS)]
Made = Callable[[Decays, int, Fraction], LatticeNoise]


def made(decays: Decays, bits: int, variance: Fraction) -> LatticeNoise:
    return LatticeNoise(decays, bits, variance, 1)


def steps_of(process: LatticeNoise, drawn: list[int]) -> Iterator[int]:
    """w, step by step."""
    state, before = process.init(), 0
    for z in drawn:
        state = process.advance(state, ScriptedNoise([z]))
        yield int(state.noise[0]) - before
        before = int(state.noise[0])


def coupled(process: LatticeNoise, drawn: list[int], at: int) -> list[int]:
    """The shifts of z with which a run without the event of step `at` releases the same lattice values."""
    shifts, state = [], process.init()
    for step, w in enumerate(steps_of(process, drawn)):
        wanted = w + ((1 << process.bits) if step == at else 0)
        fed = -int(process.advance(state, ScriptedNoise([0])).noise[0] - state.noise[0])
        z = wanted + fed
        shifts.append(z - drawn[step])
        state = process.advance(state, ScriptedNoise([z]))
    return shifts


def check_coupling(make: Made, decays: Decays, bits: int, steps: int, slack: bool = True) -> float:
    """The squares of all shifts stay within `covered`; returns how much of it they use at most."""
    worst = 0.0
    for seed in range(2):
        deviation = 1 << bits + 6 * seed
        drawn = NoiseStream(SEED, seed).gaussian(Fraction(deviation**2), steps).tolist()
        for at in (0, steps // 3):
            process = make(decays, bits, Fraction(deviation**2))
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


@pytest.mark.parametrize("decays", SHAPES, ids=str)
@pytest.mark.parametrize("bits", [0, 1, 5, 20])
def test_the_shifts_stay_within_what_is_paid_for(decays: Decays, bits: int) -> None:
    check_coupling(made, decays, bits, 200)


def test_on_a_fine_lattice_the_bound_is_met() -> None:
    assert check_coupling(made, SHAPES[2], 25, 200) > 0.99


class Dropping(LatticeNoise):
    """A twin: what the division of a buffer leaves over is thrown away."""

    def advance(self, state: LatticeState, noise: object) -> LatticeState:
        after = LatticeNoise.advance(self, state, noise)  # type: ignore[arg-type]
        return LatticeState(after.steps, after.noise, after.carried, 0 * after.rests)


class Reusing(LatticeNoise):
    """A twin: every second step rests on the noise of the step before and draws none."""

    def advance(self, state: LatticeState, noise: object) -> LatticeState:
        if state.steps % 2:
            noise = ScriptedNoise([0] * self.width)
        return LatticeNoise.advance(self, state, noise)  # type: ignore[arg-type]


def undecayed(decays: Decays, bits: int, variance: Fraction) -> LatticeNoise:
    """A twin: the decays that it runs are not those that it was calibrated for."""
    gains = tuple(gain + gain // 8 + 1 for gain in decays.gains)
    return LatticeNoise(Decays(decays.halvings, gains), bits, variance, 1)


def test_other_decays_than_those_paid_for_break_the_bound() -> None:
    with pytest.raises(AssertionError):
        check_coupling(undecayed, SHAPES[3], 5, 200)


def check_buffers(make: Made, decays: Decays) -> None:
    """A buffer is within one unit of theta_i times itself plus omega_i times w, for ever: roundings do not pile up."""
    process = make(decays, 4, Fraction(4**9))
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
    check_buffers(made, decays)


def test_buffers_that_drop_their_rests_drift_away() -> None:
    with pytest.raises(AssertionError):
        check_buffers(lambda d, b, v: Dropping(d, b, v, 1), SHAPES[3])


def test_a_bound_without_its_slack_is_exceeded() -> None:
    with pytest.raises(AssertionError):
        check_coupling(made, SHAPES[1], 0, 300, slack=False)


def test_the_noise_is_a_c_inverse_z() -> None:
    """On a fine lattice the process is the definition's, up to what `drift` says."""
    for decays in SHAPES[:3]:
        process = LatticeNoise(decays, 24, Fraction(4**26), 1)
        drawn = NoiseStream(SEED, 9).gaussian(process.variance, 60).tolist()
        sums = inverse_sums(coefficients(decays, 60))
        noise, state = [], process.init()
        for z in drawn:
            state = process.advance(state, ScriptedNoise([z]))
            noise.append(int(state.noise[0]))
        for t in range(60):
            exact = sum(sums[k] * drawn[t - k] for k in range(t + 1))
            assert abs(noise[t] - exact) <= Fraction(process.drift(t + 1)) * (1 << 24) + 1


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
    check_variance(LatticeNoise(SHAPES[2], 20, Fraction(4**23), 2000))


def test_noise_used_again_is_seen_in_the_variance() -> None:
    """The answer after 60 steps has half of what was paid for; passing has probability below 1e-9."""
    with pytest.raises(AssertionError):
        check_variance(Reusing(SHAPES[2], 20, Fraction(4**23), 2000))


@pytest.mark.parametrize("steps", [1, 2, 1000, 1 << 20, 1 << 40])
@pytest.mark.parametrize("unit", [Fraction(1, 3), Fraction(1, 20), Fraction(1, 10**7), Fraction(8)])
def test_calibration_pays_for_every_shift(steps: int, unit: Fraction) -> None:
    for decays in SHAPES:
        process = LatticeNoise.calibrated(decays, steps, unit, 3)
        assert covered(decays, process.bits, steps) <= unit * process.variance
        least = decays.squared_norm(steps) / unit  # of a mechanism on the reals
        if unit > Fraction(1, 100) or steps <= 1 << 20:
            assert process.variance <= 1.02 * float(least) * 4**process.bits + 1


def test_too_little_loss_for_64_bits_is_refused() -> None:
    with pytest.raises(NotDerivable, match="more noise than 64 bits hold"):
        LatticeNoise.calibrated(SHAPES[3], 1 << 40, Fraction(1, 10**16), 1)


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
        assert 2 * (LIMIT - 1) * gains[0] + (1 << halvings[0]) < 1 << 63
        assert (LIMIT - 1) * sum(gains) + len(gains) < 1 << 63
