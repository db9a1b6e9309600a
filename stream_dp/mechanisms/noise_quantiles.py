"""Quantiles of the noise in a release: what error bands are made of.

Distributions are inverted numerically from their exact characteristic functions on a ring so long that the mass beyond
it is below 1e-12. Rules: everything here is a function of public parameters; floats are fine, for nothing of this is
ever added to a count. This file knows no mechanism and no state.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Terms = tuple[tuple[Fraction, int], ...]
LARGEST_SCALE = 1 << 11  # scales beyond are counted in steps of several


@lru_cache(maxsize=1 << 16)
def lagging_quantile(
    behind: int, terms: Terms, lift: Fraction, columns: int, failure: float, late: float
) -> int:
    """Return the least B with columns * P(N > B) + late * P(behind + G - N > B) <= failure, in steps.

    N is the sum of independent DLap `terms` (scale, number), G a geometric of scale `lift`.
    """
    terms, (lift,), step, rest = _in_steps(terms, lift)
    behind = -(-behind // step)
    size = _ring(terms, (lift,)) + 2 * _power_above(behind)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = laplace_transform(terms, theta)
    failing = columns * _upper_tail(noise, size)
    failing[:behind] = np.inf
    too_low = _upper_tail(noise * _geometric_transform(lift, theta), size)
    failing[behind:] += late * too_low[: len(failing) - behind]
    enough = failing <= failure
    if not enough.any():
        raise ArithmeticError("the ring is too short for this confidence")
    return step * int(np.argmax(enough)) + rest


@lru_cache(maxsize=1 << 16)
def laplace_quantile(terms: Terms, failure: float) -> int:
    """The least B with P(|sum of independent DLap terms| > B) <= failure, in steps; `terms` are (scale, number)."""
    terms, _, step, rest = _in_steps(terms)
    size = _ring(terms, ())
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    tail = _upper_tail(laplace_transform(terms, theta), size)
    return step * int(np.argmax(2 * tail <= failure)) + rest


def _in_steps(terms: Terms, *scales: Fraction) -> tuple[Terms, tuple[Fraction, ...], int, int]:
    """Return the noise counted in steps, so that work is bounded at any scale: (terms, scales, step, rest).

    A geometric of scale b is step times a geometric of scale b / step, plus less than a step; a DLap is the difference
    of two. So the sum is within `rest` of step times the sum in steps, and a bound on that one bounds it.
    """
    widest = max([*(s for s, n in terms if n), *scales], default=Fraction(1))
    step = max(1, math.ceil(widest / LARGEST_SCALE))
    draws = sum(n for _, n in terms) + len(scales)
    small = tuple((s / step, n) for s, n in terms)
    return small, tuple(s / step for s in scales), step, (step - 1) * draws


def laplace_transform(terms: Terms, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Characteristic function of the sum of independent DLap terms at angles `theta` (real)."""
    product = np.ones_like(theta)
    for scale, number in terms:
        a = math.exp(-1 / float(scale))
        product *= ((1 - a) ** 2 / (1 - 2 * a * np.cos(theta) + a * a)) ** number
    return product


def _geometric_transform(scale: Fraction, theta: NDArray[np.float64]) -> NDArray[np.complex128]:
    a = math.exp(-1 / float(scale))
    return np.asarray((1 - a) / (1 - a * np.exp(1j * theta)), dtype=np.complex128)


def _upper_tail(transform: NDArray[Any], size: int) -> NDArray[np.float64]:
    """P(X > x) for x = 0..size/2 - 1."""
    mass = np.fft.irfft(np.conj(transform), size)[: size // 2]
    negative_side = 1 - float(mass.sum())
    return np.clip(1 - negative_side - np.cumsum(mass), 0.0, 1.0)


def _ring(terms: Terms, scales: tuple[Fraction, ...]) -> int:
    """A power of two beyond which the sums have no mass worth speaking of."""
    variance = sum(2 * number * float(scale) ** 2 for scale, number in terms)
    widest = max([1.0, *(float(s) for s, n in terms if n), *(float(s) for s in scales)])
    return _power_above(int(2 * (9 * math.sqrt(variance) + 40 * widest)))


def _power_above(number: int) -> int:
    return 1 << max(4, int(number).bit_length())
