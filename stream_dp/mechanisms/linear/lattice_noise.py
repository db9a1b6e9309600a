"""Correlated Gaussian noise in integers: a lattice 2^-s Z, on which all steps but three roundings are exact.

The process, per column: z is a discrete Gaussian, carried_i are the buffers (GUARD bits finer than the lattice) and
rest_i what their division left over:
    w = z - round(sum of carried / 2^GUARD)
    q_i = rest_i + p_i w - carried_i;  carried_i += q_i >> k_i;  rest_i = q_i mod 2^k_i
An answer is the count plus the sum of all w, rounded to an integer: post-processing of the lattice values.

Privacy (`covered`): fix the released lattice values, so w differs between two neighbouring runs at the event's own
step alone, by D = 2^s. Y_i = 2^k_i carried_i + rest_i obeys Y <- theta_i Y + p_i w + rest_i / 2^k_i exactly; so Y_i
differs by -D p_i theta_i^m plus less than 2^k_i - 1, carried_i by that over 2^k_i up to less than 2, and z by D c_m
up to less than eta = 1 + 2 d / 2^GUARD (`Decays.rounding`), m steps after the event; not at all before it. By
Minkowski the squares of z's shifts add up to at most (D |c| + eta sqrt(T))^2 on every path, whatever the adversary
does, in each of the L0 columns that an event touches, and to 0 in the others. A shift by an integer has the Renyi
divergence alpha shift^2 / (2 variance) at most (Canonne, Kamath, Steinke 2020, Prop. 5), z is drawn afresh at every
step, so these add up adaptively: zCDP.
Gaussian DP: the same shifts, priced by `accounting.discrete_gaussian`, which takes adaptively chosen shifts by the
sum of their squares; one more unit of variance makes up for the lattice.
(A noise beyond 18 deviations, less likely than 1e-70, stops the engine as a broken noise source does.)
This file knows no counts.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import FailClosed, NotDerivable
from stream_dp.mechanisms.linear.decays import GUARD, Decays

FINEST = 30  # most bits of the lattice, beyond the integers
LARGEST = 1 << 66  # variance on the lattice for which the number of bits is chosen
FINE = 1 << 32  # a square root is rounded up to a multiple of 1 / FINE
LIMIT = 1 << 38  # of |w|: products with gains (below 2^23) stay inside 64 bits


@wire("lattice-noise-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class LatticeState:
    """Integers after `steps` steps: `noise` of shape (width,), `carried` and `rests` of shape (buffers, width)."""

    steps: int
    noise: IntArray
    carried: IntArray
    rests: IntArray


@wire("lattice-noise", 1)
@dataclass(frozen=True, slots=True)
class LatticeNoise:
    """Noise of `width` columns on the lattice 2^-bits Z, where z has this `variance`."""

    decays: Decays
    bits: int
    variance: Fraction
    width: int

    @classmethod
    def calibrated(
        cls, decays: Decays, steps: int, unit: Fraction, width: int, finest: int = FINEST
    ) -> "LatticeNoise":
        """Return noise for which a column's squared shifts in `steps` steps sum to at most `unit` * variance of z.

        The lattice is as fine as 64 bits allow.

        Raises:
            NotDerivable: `unit` is so small that no lattice is fine enough.
        """
        norm, bits = decays.squared_norm(steps), finest
        while bits > 0 and norm * 4**bits > LARGEST * unit:
            bits -= 1
        variance = _up(covered(decays, bits, steps) / unit)
        if variance > 2 * LARGEST:
            raise NotDerivable(
                "a Gaussian counter with so little privacy loss needs more noise than 64 bits hold: give it more"
            )
        return cls(decays, bits, Fraction(variance), width)

    @property
    def for_gdp(self) -> "LatticeNoise":
        """This noise with one more unit of variance: sqrt(squares / old variance) is then a mu of Gaussian DP."""
        return replace(self, variance=self.variance + 1)

    def init(self) -> LatticeState:
        """Return the first state: no step, no noise."""
        shape = (len(self.decays.halvings), self.width)
        zeros, none = np.zeros(shape, dtype=np.int64), np.zeros(self.width, dtype=np.int64)
        return LatticeState(0, none, zeros, zeros)

    def advance(self, state: LatticeState, noise: Noise) -> LatticeState:
        """Return the state after one more step, with one z drawn for each column.

        Raises:
            FailClosed: a noise sample beyond 18 deviations (see above).
        """
        drawn = noise.gaussian(self.variance, self.width)
        fed = state.carried.sum(axis=0) + (1 << GUARD - 1) >> GUARD
        step = drawn - fed
        if self.width and max(int(step.max()), -int(step.min())) >= LIMIT:
            raise FailClosed(
                "a noise sample is too large for its lattice: the noise source is broken"
            )
        halvings, gains = self.decays.columns
        moved = state.rests + gains * step - state.carried
        carried = state.carried + (moved >> halvings)
        rests = moved & ((1 << halvings) - 1)
        return LatticeState(state.steps + 1, state.noise + step, carried, rests)

    def value(self, state: LatticeState) -> IntArray:
        """Return the noise in counts, rounded to integers, shape (width,)."""
        half = (1 << self.bits) >> 1
        rounded: IntArray = (state.noise + half) >> self.bits
        return rounded

    def deviation(self, steps: int) -> float:
        """Return the standard deviation of the noise in counts after `steps` steps, before rounding."""
        return math.sqrt(float(self.variance) * self.decays.growth(steps)) / (1 << self.bits)

    def drift(self, steps: int) -> float:
        """Return a bound, in counts, on what the inner roundings add to the noise."""
        each = float(self.decays.rounding) / (1 << self.bits)
        return each * math.sqrt(steps * self.decays.growth(steps))


def covered(decays: Decays, bits: int, steps: int) -> int:
    """Return (D |c| + eta sqrt(T))^2, rounded up: a bound on the sum of squared shifts of z in one column."""
    exact = decays.squared_norm(steps) * 4**bits
    rounded = decays.rounding**2 * max(0, steps - 1)
    mixed = math.isqrt(max(0, _up(4 * exact * rounded * FINE**2) - 1)) + 1 if rounded else 0
    return _up(exact + Fraction(mixed, FINE) + rounded)


def _up(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)
