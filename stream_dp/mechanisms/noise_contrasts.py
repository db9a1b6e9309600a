"""How far A - r B may be from 0, where two independent answers A and B count what has the quotient r.

It is noise less r times noise, and its quantile q(r) is computed on a few r and joined by chords. That chords are never
too low follows for the law that is computed, which is wider than that of the noise:

1. A discrete Laplace of scale s with uniform noise on [-1/2, 1/2] is at most as spread (Birnbaum 1948) as a Laplace of
   scale 1 / (2 tanh(1 / (2 s))): for k = 0, 1, ... and |x| <= 1/2 it exceeds k + x with the probability a^k (1 - c x),
   a = e^(-1/s) and c = 2 tanh(1 / (2 s)) <= 1/s (of k = 0: for x >= 0), and the Laplace with e^(-c (k + x)). Sums and
   multiples of such symmetric unimodal laws keep that order.
2. An integer sum of discrete Laplaces is unimodal (log-concave), so more uniform noises than one only spread it: |A|
   exceeds q + 1/2 at most as often as the sum of Laplaces exceeds q. With weights a sum is rounded, by 1/2 at most, and
   taken as smooth, as a Gaussian on its lattice is; `rest` holds the roundings.
3. Laplaces and normal laws are log-concave, and so is their joint law. The quantile of |u A + v B| is then a convex
   function of (u, v) (Meyer and Reisner 1991; Bobkov 2010), so between two directions it is below its chord.

Rules: every width is a function of public parameters and is rounded up to so few bits that machines which compute
floats differently say the same. Independent: no draw goes into both answers. This file knows no release and no state.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import LAWS_KEPT, NEGLIGIBLE, Term
from stream_dp.mechanisms.quotients import Widths

CELLS = 8  # a chord spans an eighth of a right angle: at most half a per cent above the quantile
BITS = 11  # a quantile is rounded up to a 2^BITS-th of the deviation, or less
FINE = Fraction(1, 1024)  # a rest is rounded up to whole ones
SMOOTH = 1 / 32  # deviation of normal noise that is added, as a part of the law's own
SLOPES = tuple(
    Fraction(round(math.tan(math.pi / 2 * cell / CELLS) * 1024), 1024) for cell in range(CELLS)
)

Floats = NDArray[np.float64]


@lru_cache(maxsize=LAWS_KEPT)
def contrast_widths(
    of: NoiseLaw, over: NoiseLaw, failure: float, farthest: Fraction | None = None
) -> Widths:
    """Return widths that |noise of `of` - r times noise of `over`| exceeds with at most `failure`, whatever r is.

    `farthest`: |r| is at most this; both noises, and r, are in units of answers.
    """
    sums = _Sum.of(of), _Sum.of(over)
    if not sums[0].variance or not sums[1].variance:
        lines = [(sums[0].quantile(failure), sums[1].quantile(failure))]
    else:
        lines = _chords(*sums, failure, farthest)
    rests = _up(Fraction(of.rest), FINE), _up(Fraction(over.rest), FINE)
    return Widths(tuple((a + rests[0], b + rests[1]) for a, b in lines))


def _chords(
    of: "_Sum", over: "_Sum", failure: float, farthest: Fraction | None
) -> list[tuple[Fraction, Fraction]]:
    """The lines a + b r through neighbouring quantiles; the last one goes on as that of `over` alone does."""
    alike = _coarse(math.sqrt(of.variance / over.variance))
    at = [slope * alike for slope in SLOPES]
    if farthest is not None:
        at = [each for each in at if each < farthest] + [farthest]
    found = [of.plus(over, each).quantile(failure) for each in at]
    steps = zip(at, at[1:], found, found[1:], strict=False)
    slopes = [_up((last - first) / (to - start), over.unit) for start, to, first, last in steps]
    if farthest is None:
        slopes.append(over.quantile(failure))
    lines = zip(at, found, slopes or [Fraction(0)], strict=False)
    return [(_up(quantile - slope * start, of.unit), slope) for start, quantile, slope in lines]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of continuous Laplaces and a normal law: `numbers` of each scale, times their weights."""

    scales: Floats
    numbers: Floats
    normal: float

    @classmethod
    def of(cls, law: NoiseLaw) -> "_Sum":
        """What is at least as spread as the noise."""
        terms = [term for term in (Term(*each) for each in law.terms) if term.number]
        scales = [term.weight / (2 * math.tanh(1 / (2 * float(term.scale)))) for term in terms]
        numbers = np.array([term.number for term in terms], dtype=np.float64)
        return cls(np.array(scales, dtype=np.float64), numbers, law.variance)

    @property
    def variance(self) -> float:
        """Of the sum."""
        return float(2 * (self.numbers @ self.scales**2)) + self.normal

    @property
    def unit(self) -> Fraction:
        """A power of 2 that quantiles are multiples of."""
        return Fraction(2) ** (math.floor(math.log2(self.variance) / 2) - BITS)

    def plus(self, other: "_Sum", times: Fraction) -> "_Sum":
        """The sum with so many times another."""
        factor = float(times)
        scales = np.concatenate([self.scales, other.scales * factor])
        numbers = np.concatenate([self.numbers, other.numbers])
        return _Sum(scales, numbers, self.normal + other.normal * factor**2)

    def quantile(self, failure: float) -> Fraction:
        """What its absolute value exceeds with at most `failure`; by Gil-Pelaez, with a little normal noise."""
        if not self.variance:
            return Fraction(0)
        deviation = math.sqrt(self.variance)
        unlikely = math.log(2 / (failure * NEGLIGIBLE))
        widest = float(self.scales.max(initial=0.0)) / deviation
        bound = math.sqrt(2 * unlikely) + unlikely * widest + 1  # Bernstein
        spacing = math.pi / bound
        points = math.ceil(math.sqrt(2 * unlikely) / SMOOTH / spacing)
        theta = spacing * np.arange(1, points + 1, dtype=np.float64)
        waves = np.log1p(np.multiply.outer(self.scales / deviation, theta) ** 2)
        rest = (self.normal / self.variance + SMOOTH**2) / 2 * theta**2
        mass = 2 / math.pi * spacing * np.exp(-(self.numbers @ waves) - rest) / theta
        step = float(self.unit) / deviation
        low, high = 0, math.ceil(bound / step)
        while high - low > 1:
            middle = (low + high) // 2
            edge = middle * step
            inside = edge * spacing / math.pi + float(mass @ np.sin(theta * edge))
            low, high = (low, middle) if 1 - inside <= failure else (middle, high)
        return high * self.unit


def _coarse(number: float) -> Fraction:
    """The number with ten bits."""
    unit = Fraction(2) ** (math.floor(math.log2(number)) - 10)
    return round(number / float(unit)) * unit


def _up(number: Fraction, unit: Fraction) -> Fraction:
    """The number rounded up to whole units; what is below 0, to 0."""
    return max(0, math.ceil(number / unit)) * unit
