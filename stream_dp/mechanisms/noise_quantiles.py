"""Quantiles of the noise in a release: what error bands are made of.

Distributions are inverted numerically from their exact characteristic functions. Rules: everything here is a function
of public parameters; floats are fine, for nothing of this is ever added to a count. This file knows no mechanism and
no state.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LARGEST_SCALE = 1 << 11  # scales beyond are counted in steps of several
ALIASES = 8  # turns of the ring on which the law of a rounded sum is added up
SMOOTH = 1 / 32  # standard deviation of the normal noise that makes a sum's law smooth
ROUNDED = (
    0.5 - 1 / 8 - 5 * SMOOTH
)  # a rounded sum exceeds B only where the smooth one exceeds B + this
NEGLIGIBLE = 1e-6  # errors of the numbers here, as a part of the failure probability
POINTS = 64

Floats: TypeAlias = NDArray[np.float64]


class Term(NamedTuple):
    """`number` independent DLap noises of one `scale`, each times `weight`."""

    scale: Fraction
    number: int
    weight: float = 1.0


Terms: TypeAlias = tuple[Term | tuple[Fraction, int], ...]
"""A sum of independent noises, which is rounded where a weight is none; a pair has weight 1."""


@lru_cache(maxsize=1 << 16)
def lagging_quantile(
    behind: int, terms: Terms, lift: Fraction, columns: int, failure: float, late: float
) -> int:
    """Return the least B with columns * P(N > B) + late * P(behind + G - N > B) <= failure, in steps.

    N is the sum of independent DLap `terms`, rounded where they have weights, G a geometric of scale `lift`.
    """
    named = _named(terms)
    step = _step(*(float(t.scale) * t.weight for t in named), float(lift))
    small, rest = lift / step, 2 * (step - 1)
    behind = -(-behind // step)
    size = _ring(named, step, small) + 2 * _power_above(behind)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = _rounded_transform(named, theta, step)
    failing = columns * _upper_tail(noise, size)
    failing[:behind] = np.inf
    too_low = _upper_tail(noise * _geometric_transform(small, theta), size)
    failing[behind:] += late * too_low[: len(failing) - behind]
    enough = failing <= failure
    if not enough.any():
        raise ArithmeticError("the ring is too short for this confidence")
    return step * int(np.argmax(enough)) + rest


@lru_cache(maxsize=1 << 16)
def laplace_quantile(terms: Terms, failure: float) -> int:
    """The least B with P(|sum of independent DLap terms| > B) <= failure.

    Whole weights: in steps where the scales are large. Else of the rounded sum, and at most one more than the least: by
    Gil-Pelaez, for the sum with a little normal noise, whose law is smooth.
    """
    named = _named(terms)
    if any(term.weight != 1 for term in named):
        return _weighted_quantile(named, failure)
    step = _step(*(float(t.scale) for t in named))
    size = _ring(named, step)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    tail = _upper_tail(_rounded_transform(named, theta, step), size)
    return step * int(np.argmax(2 * tail <= failure)) + step - 1


def sum_variance(terms: Terms) -> float:
    """The variance of the sum of `terms`, before it is rounded."""
    return sum(t.number * t.weight**2 * 2 / _bend(t.scale) for t in _named(terms))


def _named(terms: Terms) -> tuple[Term, ...]:
    """The terms that are there."""
    return tuple(Term(*term) for term in terms if term[1])


def _bend(scale: Fraction) -> float:
    """(1 - a)^2 / a of DLap(scale), a = e^(-1 / scale): 2 over its variance."""
    return 4 * math.sinh(0.5 / float(scale)) ** 2


def _weighted_quantile(terms: tuple[Term, ...], failure: float) -> int:
    """The least B at which the smooth law says so, by bisection."""
    unlikely = math.log(2 / (failure * NEGLIGIBLE))
    widest = max(float(t.scale) * t.weight for t in terms)
    spread = math.sqrt(sum_variance(terms) + SMOOTH**2)
    bound = math.sqrt(2 * unlikely) * spread + unlikely * widest + 1  # Bernstein
    spacing = math.pi / bound
    theta, transform = _until_negligible(terms, spacing, failure)
    mass = 2 / math.pi * spacing * transform / theta
    low, high = -1, math.ceil(bound)
    while high - low > 1:
        middle = (low + high) // 2
        edge = middle + ROUNDED
        inside = edge * spacing / math.pi + float(mass @ np.sin(theta * edge))
        low, high = (low, middle) if 1 - inside <= failure else (middle, high)
    return high


def _until_negligible(
    terms: tuple[Term, ...], spacing: float, failure: float
) -> tuple[Floats, Floats]:
    """Angles from `spacing` on, and the smooth law's transform there, as far as it matters."""
    points = POINTS
    while True:
        theta = np.arange(1, points + 1, dtype=np.float64) * spacing
        transform = laplace_transform(terms, theta) * np.exp(-((theta * SMOOTH) ** 2) / 2)
        if transform[points // 2 :].max() < failure * NEGLIGIBLE:
            return theta, transform
        points *= 2


def _step(*scales: float) -> int:
    """How many integers are counted as one, so that work is bounded at any scale."""
    return max(1, math.ceil(max(scales, default=1.0) / LARGEST_SCALE))


def laplace_transform(terms: Terms, theta: Floats) -> Floats:
    """Characteristic function of the sum of independent DLap terms at angles `theta` (real)."""
    exponent = np.zeros_like(theta)
    for scale, number, weight in _named(terms):
        exponent -= number * np.log1p(4 / _bend(scale) * np.sin(weight / 2 * theta) ** 2)
    return np.exp(exponent)


def _rounded_transform(terms: tuple[Term, ...], theta: Floats, step: int) -> Floats:
    """Characteristic function at `theta` of the sum rounded to multiples of `step`, in steps.

    The law of a rounded sum is that of the sum with uniform noise, on the integers: its transform there is added up
    over the turns of the ring. An integer sum is its own.
    """
    if step == 1 and all(term.weight == 1 for term in terms):
        return laplace_transform(terms, theta)
    turns = [theta + 2 * np.pi * turn for turn in range(-ALIASES, ALIASES + 1)]
    parts = [laplace_transform(terms, turn / step) * np.sinc(turn / (2 * np.pi)) for turn in turns]
    return np.asarray(sum(parts), dtype=np.float64)


def _geometric_transform(scale: Fraction, theta: Floats) -> NDArray[np.complex128]:
    a = math.exp(-1 / float(scale))
    return np.asarray((1 - a) / (1 - a * np.exp(1j * theta)), dtype=np.complex128)


def _upper_tail(transform: NDArray[Any], size: int) -> Floats:
    """P(X > x) for x = 0..size/2 - 1."""
    mass = np.fft.irfft(np.conj(transform), size)[: size // 2]
    negative_side = 1 - float(mass.sum())
    return np.clip(1 - negative_side - np.cumsum(mass), 0.0, 1.0)


def _ring(terms: tuple[Term, ...], step: int, *scales: Fraction) -> int:
    """A power of two beyond which the sums have no mass worth speaking of: less than 1e-12."""
    widest = max([1.0, *(float(t.scale) * t.weight / step for t in terms), *map(float, scales)])
    return _power_above(int(2 * (9 * math.sqrt(sum_variance(terms)) / step + 40 * widest)))


def _power_above(number: int) -> int:
    return 1 << max(4, int(number).bit_length())
