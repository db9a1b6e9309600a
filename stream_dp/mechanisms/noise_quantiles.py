"""Quantiles of the noise in a release: what error bands are made of.

Distributions are inverted numerically from their exact characteristic functions. Rules: everything here is a function
of public parameters; floats are fine, for nothing of this is ever added to a count. This file knows no mechanism and
no state.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LARGEST_SCALE = 1 << 11  # scales beyond are counted in steps of several
ALIASES = 8  # turns of the ring on which the law of a rounded sum is added up
SMOOTH = 1 / 32  # standard deviation of the normal noise that makes a sum's law smooth
ROUNDED = 0.5 - 1 / 8 - 7 * SMOOTH  # a rounded sum exceeds B where the smooth one exceeds B + this
NEGLIGIBLE = 1e-6  # errors of the numbers here, as a part of the failure probability
NOTHING = 1e-30  # a transform below it is left out: all of a ring together is far below the rounding of one float
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
    noise_sum = _Sum.of(terms)
    step = _step(noise_sum.widest, float(lift))
    small, rest = lift / step, 2 * (step - 1)
    behind = -(-behind // step)
    size = _ring(noise_sum, step, float(small)) + 2 * _power_above(behind)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = noise_sum.rounded_transform(theta, step)
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
    summed = _Sum.of(terms)
    if not summed.whole:
        return _weighted_quantile(summed, failure)
    step = _step(summed.widest)
    size = _ring(summed, step)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    tail = _upper_tail(summed.rounded_transform(theta, step), size)
    return step * int(np.argmax(2 * tail <= failure)) + step - 1


def sum_variance(terms: Terms) -> float:
    """The variance of the sum of `terms`, before it is rounded."""
    return _Sum.of(terms).variance


@dataclass(frozen=True, slots=True)
class _Sum:
    """The terms that are there, as arrays; `bends` are (1 - a)^2 / a, a = e^(-1 / scale): 2 over a noise's variance."""

    scales: Floats
    numbers: Floats
    weights: Floats
    bends: Floats

    @classmethod
    def of(cls, terms: Terms) -> "_Sum":
        """From what a mechanism says."""
        rows = [
            (scale.numerator / scale.denominator, number, *(weight or (1.0,)))
            for scale, number, *weight in terms
            if number
        ]
        scales, numbers, weights = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return cls(scales, numbers, weights, 4 * np.sinh(0.5 / scales) ** 2)

    @property
    def whole(self) -> bool:
        """Whether it is an integer, so that nothing is rounded."""
        return bool((self.weights == 1).all())

    @property
    def widest(self) -> float:
        """The largest scale times its weight."""
        return float((self.scales * self.weights).max(initial=0.0))

    @property
    def variance(self) -> float:
        """Of the sum, before it is rounded."""
        return float((self.numbers * self.weights**2 * 2 / self.bends).sum())

    def transform(self, theta: Floats) -> Floats:
        """Characteristic function at angles `theta` (real)."""
        waves = np.sin(np.multiply.outer(self.weights / 2, theta)) ** 2
        logs = np.log1p((4 / self.bends)[:, None] * waves)
        return np.asarray(np.exp(-self.numbers @ logs), dtype=np.float64)

    def rounded_transform(self, theta: Floats, step: int) -> Floats:
        """Characteristic function at `theta` of the sum rounded to multiples of `step`, in steps.

        The law of a rounded sum is that of the sum with uniform noise, on the integers: its transform there is added up
        over the turns of the ring. An integer sum is its own.
        """
        if step == 1 and self.whole:
            return self.transform(theta)
        added = np.zeros_like(theta)
        far = step * self._far((2 * ALIASES + 1) * np.pi / step)
        for turn in range(-ALIASES, ALIASES + 1):
            turned = theta + 2 * np.pi * turn
            near = np.abs(turned) <= far
            turned = turned[near]
            added[near] += self.transform(turned / step) * np.sinc(turned / (2 * np.pi))
        return added

    def _far(self, last: float) -> float:
        """Return an angle between which and `last` the transform is `NOTHING`, or `last` where none is known.

        Up to a turn of half a circle of the heaviest weight it falls. A sum of many wide noises has hardly any angles.
        """
        if last * self.weights.max(initial=0.0) > np.pi:
            return last
        angles = last / 2 ** (np.arange(POINTS) / 4)
        return float(angles[self.transform(angles) < NOTHING].min(initial=last))


def _weighted_quantile(summed: _Sum, failure: float) -> int:
    """The least B at which the smooth law says so, by bisection."""
    unlikely = math.log(2 / (failure * NEGLIGIBLE))
    spread = math.sqrt(summed.variance + SMOOTH**2)
    bound = math.sqrt(2 * unlikely) * spread + unlikely * summed.widest + 1  # Bernstein
    spacing = math.pi / bound
    theta, transform = _until_negligible(summed, spacing, failure)
    mass = 2 / math.pi * spacing * transform / theta

    def enough(candidate: int) -> bool:
        edge = candidate + ROUNDED
        inside = edge * spacing / math.pi + float(mass @ np.sin(theta * edge))
        return 1 - inside <= failure

    normal = NormalDist(0, spread).inv_cdf(1 - failure / 2)
    low, high = int(normal * 0.8) - 1, math.ceil(normal * 1.2)
    if low >= 0 and enough(low):
        low = -1
    if not enough(high):
        high = math.ceil(bound)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _until_negligible(summed: _Sum, spacing: float, failure: float) -> tuple[Floats, Floats]:
    """Angles from `spacing` on, and the smooth law's transform there, as far as it matters."""
    points = POINTS
    while True:
        theta = np.arange(1, points + 1, dtype=np.float64) * spacing
        transform = summed.transform(theta) * np.exp(-((theta * SMOOTH) ** 2) / 2)
        if transform[points // 2 :].max() < failure * NEGLIGIBLE:
            return theta, transform
        points *= 2


def _step(*scales: float) -> int:
    """How many integers are counted as one, so that work is bounded at any scale."""
    return max(1, math.ceil(max(scales) / LARGEST_SCALE))


def _geometric_transform(scale: Fraction, theta: Floats) -> NDArray[np.complex128]:
    a = math.exp(-1 / float(scale))
    return np.asarray((1 - a) / (1 - a * np.exp(1j * theta)), dtype=np.complex128)


def _upper_tail(transform: NDArray[Any], size: int) -> Floats:
    """P(X > x) for x = 0..size/2 - 1."""
    mass = np.fft.irfft(np.conj(transform), size)[: size // 2]
    negative_side = 1 - float(mass.sum())
    return np.clip(1 - negative_side - np.cumsum(mass), 0.0, 1.0)


def _ring(summed: _Sum, step: int, *scales: float) -> int:
    """A power of two beyond which the sums have no mass worth speaking of: less than 1e-12."""
    widest = max(1.0, summed.widest / step, *scales)
    return _power_above(int(2 * (9 * math.sqrt(summed.variance) / step + 40 * widest)))


def _power_above(number: int) -> int:
    return 1 << max(4, int(number).bit_length())
