"""How the noise of a Gaussian counter is correlated: buffers that decay by powers of two (a buffered linear
Toeplitz).

Theory (arXiv 2404.16706): the strategy has the coefficients c_0 = 1, c_k = sum_i omega_i theta_i^(k-1). Noise z is
made into w = C^-1 z; an answer is the count plus the sum of all w. One event shifts z by c, so the sensitivity is
the norm of c; the error is the norm of the coefficients of A C^-1.
Here theta_i = 1 - 2^-k_i and omega_i = p_i / 2^(k_i + GUARD), k_i and p_i integers: no parameter has to be rounded,
and a decay needs no multiplication. Poles at these places lose almost no accuracy (`decay_table`).

Rules: what privacy rests on (`squared_norm`, `rounding`) is exact or rounded up; `growth` is a float, for error
bands only. This file draws nothing.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.linear.decay_table import ENDLESS, TUNED

GUARD = 6  # bits of a buffer below the lattice's
PLACES = 160  # bits of the powers below
MOST_STEPS = 1 << 40  # the most steps of any counter

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Decays:
    """Decays with `halvings` k_i, in falling order, and `gains` p_i."""

    halvings: tuple[int, ...]
    gains: tuple[int, ...]

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The omega_i."""
        pairs = zip(self.gains, self.halvings, strict=True)
        return tuple(Fraction(p, 1 << (k + GUARD)) for p, k in pairs)

    @cached_property
    def columns(self) -> tuple[IntArray, IntArray]:
        """The halvings and the gains as columns, shape (buffers, 1)."""
        halvings = np.array(self.halvings, dtype=np.int64)
        return halvings[:, None], np.array(self.gains, dtype=np.int64)[:, None]

    @property
    def rounding(self) -> Fraction:
        """Bound, in lattice units, on shift of z minus c after the event's own step (`lattice_noise`)."""
        return 1 + Fraction(2 * len(self.halvings), 1 << GUARD)

    def squared_norm(self, steps: int | None) -> Fraction:
        """Return sum of c_k^2 over k < `steps`, rounded up; over all k for None."""
        total = Fraction(1)
        poles = list(zip(self.weights, self.halvings, strict=True))
        for a, j in poles:
            for b, k in poles:
                lost = Fraction((1 << j) + (1 << k) - 1, 1 << (j + k))  # 1 - theta_j theta_k
                left = 1 if steps is None else 1 - _power_below(1 - lost, steps - 1)
                total += a * b * left / lost
        return total

    def growth(self, steps: int) -> float:
        """Return sum of b_k^2 over k < `steps`, b the coefficients of A C^-1: error variance over the variance of z."""
        size = len(self.halvings)
        impulse = np.array([float(w) for w in self.weights] + [1.0])
        gram, shift = np.zeros((size + 1, size + 1)), np.eye(size + 1)
        for place, (power, part) in enumerate(self._doublings):
            if steps >> place == 0:
                break
            if steps >> place & 1:
                gram = gram + shift.T @ part @ shift
                shift = power @ shift
        return float(impulse @ gram @ impulse)

    @cached_property
    def _doublings(self) -> list[tuple[Matrix, Matrix]]:
        """(M^n, sum of (M^k)' e e' M^k over k < n) for n = 1, 2, 4, ..., M one step of (omega_i buffers, sum of w)."""
        size = len(self.halvings)
        weights = np.array([float(w) for w in self.weights])
        power = np.zeros((size + 1, size + 1))
        power[:size, :size] = np.diag([1 - 2.0**-k for k in self.halvings]) - weights[:, None]
        power[size, :size], power[size, size] = -1, 1
        gram = np.zeros_like(power)
        gram[size, size] = 1
        found = []
        for _ in range(MOST_STEPS.bit_length()):
            found.append((power, gram))
            gram = gram + power.T @ gram @ power
            power = power @ power
        return found


def _power_below(base: Fraction, exponent: int) -> Fraction:
    """Return a lower bound of base^exponent, 0 <= base <= 1: each product is rounded down."""
    square, found = base.numerator * (1 << PLACES) // base.denominator, 1 << PLACES
    while exponent:
        if exponent & 1:
            found = found * square >> PLACES
        square = square * square >> PLACES
        exponent >>= 1
    return Fraction(found, 1 << PLACES)


@lru_cache(maxsize=64)
def decays_for(horizon: int | None) -> Decays:
    """Return the tuned decays for `horizon` steps, rounded up to a power of two; None means any number of steps."""
    if horizon is None:
        return Decays(*ENDLESS)
    bits = max(1, (horizon - 1).bit_length())
    return Decays(*TUNED.get(bits, ENDLESS))
