"""The law of the noise in one answer, where it follows from public values, and the error bands it gives.

Rules: floats are allowed, because no result is added to a count. This file knows no mechanism and no state.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain, pairwise, takewhile
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.mechanisms.noise_quantiles import (
    LAWS_KEPT,
    LEFT_OUT,
    NEGLIGIBLE,
    NearTheEdge,
    Term,
    Terms,
    by_chords,
    in_floats,
    laplace_quantile,
)
from stream_dp.mechanisms.quotients import Widths

_GRID = np.linspace(0.02, 0.98, 97)


def index_probability(beta: float, index: int, horizon: int | None) -> float:
    """Return a share of the failure probability `beta` for the index-th of `horizon` (None: endlessly many) events.

    The shares add up to at most `beta`: uniform where the number is known, else beta / (2.10975 (t+1) ln^2(t+1)).
    """
    if horizon is not None:
        return beta / horizon
    return beta / (2.10975 * (index + 1) * math.log(index + 1) ** 2)


def geometric_tail(scale: Fraction, probability: float) -> int:
    """Return the least integer that a geometric sample of this scale exceeds with at most this probability."""
    return max(0, math.ceil(-float(scale) * math.log(probability)))


def laplace_sum_tail(terms: Sequence[Term | tuple[Fraction, int]], probability: float) -> int:
    """Return an integer that |sum of independent DLap terms|, rounded, exceeds with at most this probability.

    The Chernoff bound is a minimum over a grid of s, so it always holds: E exp(s w X) = (1-a)^2 / ((1 - a e^sw)(1 - a
    e^-sw)) for noise of weight w, a = exp(-1/scale), 0 < s < 1/(w scale).
    """
    present = [Term(*term) for term in terms if term[1]]
    if not present:
        return 0
    s = _GRID / max(float(term.scale) * term.weight for term in present)
    exponent = np.full_like(s, math.log(2 / probability))
    for scale, number, weight in present:
        a, turned = math.exp(-1 / float(scale)), weight * s
        exponent += number * (
            2 * math.log1p(-a) - np.log1p(-a * np.exp(turned)) - np.log1p(-a * np.exp(-turned))
        )
    return math.ceil(float((exponent / s).min()))


class NoiseLaw(NamedTuple):
    """The noise in one answer: DLap `terms`, a normal part of this `variance`, and a remainder of at most `rest`, which
    includes the rounding of the answer. `between`: the remainder in the difference of two answers, where it is less
    than twice `rest`.
    """

    terms: Terms = ()
    variance: float = 0.0
    rest: float = 0.5
    between: float | None = None

    @property
    def spread(self) -> float:
        """The variance of the noise, without lattice effects and the remainder."""
        terms = in_floats(self.terms)
        return (
            sum(2 * scale**2 * number * weight**2 for scale, number, weight in terms)
            + self.variance
        )

    def band(self, confidence: float) -> int:
        failure = 1 - confidence
        if not self.variance:
            return laplace_quantile(self.terms, failure)
        return max(0, math.ceil(self._quantile(failure) + self.rest - 1))

    def difference(self, failure: float) -> int:
        """Return the bound that the difference of two such noises exceeds with probability at most `failure`.

        Every term counts twice, because all terms are symmetric. Where sums are rounded, two roundings may add 1.
        """
        if not self.variance:
            twice = [Term(*term)._replace(number=2 * term[1]) for term in self.terms]
            rounded = any(term.weight != 1 for term in twice)
            return laplace_quantile(tuple(twice), failure) + rounded
        rest = 2 * self.rest if self.between is None else self.between
        return math.ceil(2**0.5 * self._quantile(failure) + rest)

    def _quantile(self, failure: float) -> float:
        return -NormalDist().inv_cdf(failure / 2) * math.sqrt(self.variance)


NOTHING = NoiseLaw(rest=0.0)

CELLS = 8  # a chord spans an eighth of a right angle: at most half a per cent above the quantile
BITS = 11  # a quantile is rounded up to a multiple of at most the deviation / 2^BITS
FINE = 10  # a rest is rounded up to a multiple of 2^-FINE
SMOOTH = 1 / 32  # standard deviation of the added normal noise, as a part of the law's own
FEW = 48  # number of angles in the first look
ROUNDING = 1e-12  # bound on the change of a probability by all float roundings
SLOPES = tuple(
    Fraction(round(math.tan(math.pi / 2 * cell / CELLS) * 1024), 1024) for cell in range(CELLS)
)

Floats = NDArray[np.float64]


@lru_cache(maxsize=LAWS_KEPT)
def contrast_widths(
    of: NoiseLaw, over: NoiseLaw, failure: float, farthest: Fraction | None = None
) -> Widths:
    """Return widths that |noise of `of` - r * noise of `over`| exceeds with probability at most `failure`, for every r.

    `of` and `over` are independent: no draw goes into both. `farthest` is a bound on |r|; both noises, and r, are in
    units of answers. The quantile q(r) is computed at a few r, and chords join these points. Chords are never too low
    for the law that is computed here, which is wider than the law of the noise:

    1. A discrete Laplace of scale s with uniform noise on [-1/2, 1/2] is at most as spread (Birnbaum 1948) as a Laplace
       of scale 1 / (2 tanh(1 / (2 s))): for k = 0, 1, ... and |x| <= 1/2 it exceeds k + x with the probability
       a^k (1 - c x), a = e^(-1/s) and c = 2 tanh(1 / (2 s)) <= 1/s (of k = 0: for x >= 0), and the Laplace with
       e^(-c (k + x)). Sums and multiples of such symmetric unimodal laws keep that order.
    2. An integer sum of discrete Laplaces is unimodal (log-concave), so more uniform noises than one only spread it:
       |A| exceeds q + 1/2 at most as often as the sum of Laplaces exceeds q. With weights a sum is rounded, by 1/2 at
       most, and taken as smooth, as a Gaussian on its lattice is; `rest` holds the roundings.
    3. Laplaces and normal laws are log-concave, and so is their joint law. The quantile of |u A + v B| is then a convex
       function of (u, v) (Meyer and Reisner 1991; Bobkov 2010), so between two directions it is below its chord.

    Every width is rounded up to so few bits that machines with different float arithmetic get the same width.
    """
    sums = _Sum.of(of), _Sum.of(over)
    if not sums[0].variance or not sums[1].variance:
        lines = [(sums[0].quantile(failure), sums[1].quantile(failure))]
    else:
        lines = _chords(*sums, failure, farthest)
    rests = [_up(*law.rest.as_integer_ratio(), -FINE) for law in (of, over)]
    return Widths(tuple((a + rests[0], b + rests[1]) for a, b in lines))


def _chords(
    of: "_Sum", over: "_Sum", failure: float, farthest: Fraction | None
) -> list[tuple[Fraction, Fraction]]:
    """Return the lines a + b r through neighbouring quantiles; the last one has the slope of `over` alone."""
    at = _quotients_at(_coarse(math.sqrt(of.variance / over.variance)), farthest)
    starts, part = _over_one(at)
    sums = [of.plus(over, each) for each in at]
    angles = _angles(sums, failure, FEW)
    quantiles, unit = _over_one(
        [each.quantile(failure, first) for each, first in zip(sums, angles, strict=True)]
    )
    slopes = [
        _up((last - first) * part, (to - start) * unit, over.bits)
        for (start, to), (first, last) in zip(pairwise(starts), pairwise(quantiles), strict=True)
    ]
    if farthest is None:
        slopes.append(over.quantile(failure))
    lines = []
    for start, quantile, slope in zip(starts, quantiles, slopes or [Fraction(0)], strict=False):
        rise, run = slope.as_integer_ratio()
        above = quantile * part * run - rise * start * unit
        lines.append((_up(above, unit * part * run, of.bits), slope))
    return lines


@lru_cache(maxsize=64)  # from tick to tick the two laws stay nearly as they are to one another
def _quotients_at(alike: Fraction, farthest: Fraction | None) -> tuple[Fraction, ...]:
    """Return the quotients at which quantiles are computed; `alike`: where both noises weigh the same."""
    at = [slope * alike for slope in SLOPES]
    return tuple(at if farthest is None else [*takewhile(farthest.__gt__, at), farthest])


def _over_one(numbers: Sequence[Fraction]) -> tuple[list[int], int]:
    """Return the numerators over a common denominator, and the denominator: integer sums take a tenth of the time."""
    unit = math.lcm(*(number.denominator for number in numbers))
    return [number.numerator * (unit // number.denominator) for number in numbers], unit


class _Sum(NamedTuple):
    """A sum of weighted continuous Laplace noises, `numbers` of each scale, the `widest` of them, and a normal law."""

    scales: Floats
    numbers: Floats
    normal: float
    variance: float
    widest: float

    @classmethod
    def of(cls, law: NoiseLaw) -> "_Sum":
        """Return a sum that is at least as spread as the noise of `law`."""
        pairs = [
            (weight / (2 * math.tanh(1 / (2 * scale))), number)
            for scale, number, weight in in_floats(law.terms)
        ]
        scales, numbers = np.array([*chain(*pairs)], np.float64).reshape(-1, 2).T.copy()
        variance = float(2 * (numbers @ scales**2)) + law.variance
        widest = max([scale for scale, _ in pairs], default=0.0)
        return cls(scales, numbers, law.variance, variance, widest)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @property
    def bits(self) -> int:
        """Exponent of the grid: quantiles are multiples of 2^bits."""
        return math.floor(math.log2(self.variance) / 2) - BITS

    def plus(self, other: "_Sum", times: Fraction) -> "_Sum":
        factor = float(times)
        square = factor**2
        return _Sum(
            np.concatenate([self.scales, other.scales * factor]),
            np.concatenate([self.numbers, other.numbers]),
            self.normal + other.normal * square,
            self.variance + other.variance * square,
            max(self.widest, other.widest * factor),
        )

    def spacing(self, failure: float) -> float:
        """Return the angle between two points at which the transform is taken: pi over a bound on |sum| (Bernstein)."""
        unlikely = math.log(2 / (failure * NEGLIGIBLE))
        reach = math.sqrt(2 * unlikely) + unlikely * self.widest / self.deviation + 1
        return math.pi / reach

    def quantile(self, failure: float, first: "_Angles | None" = None) -> Fraction:
        """Return a bound that |sum| exceeds with probability at most `failure` (Gil-Pelaez, smoothed).

        `first` are the first angles, where they are known.
        """
        if not self.variance:
            return Fraction(0)
        low = _angles((self,), failure, FEW)[0] if first is None else first
        steepest = math.sqrt(2 * math.log(2 / (failure * NEGLIGIBLE))) / SMOOTH
        points, step = math.ceil(steepest / low.spacing), 2.0**self.bits / self.deviation
        most = math.ceil(math.pi / low.spacing / step)
        low, left_out = self._enough(low, points, failure)
        try:
            steps = low.quantile(failure, step, most, left_out + ROUNDING)
        except NearTheEdge:
            steps = _angles((self,), failure, points)[0].quantile(failure, step, most, 0.0)
        return _times_power(steps, self.bits)

    def _enough(self, low: "_Angles", points: int, failure: float) -> "tuple[_Angles, float]":
        """Return at least the angles `low` of `points` angles, and a bound, up to `LEFT_OUT`, on what the others add to
        a probability: the transform falls, and angle number k adds at most 2 / (pi k) times its value.
        """
        while (few := len(low.theta)) < points:
            left_out = few * float(low.mass[-1]) * math.log(points / few)
            if left_out <= failure * LEFT_OUT:
                return low, left_out
            low = _angles((self,), failure, min(2 * few, points))[0]
        return low, 0.0


def _angles(sums: Sequence[_Sum], failure: float, number: int) -> "list[_Angles]":
    """Return the first `number` angles of each sum; the sums have the same `numbers`, and are computed together."""
    spacings = np.array([each.spacing(failure) for each in sums])
    theta = np.multiply.outer(spacings, np.arange(1, number + 1, dtype=np.float64))
    scales = np.array([each.scales / each.deviation for each in sums])
    waves = scales[:, :, None] * theta[:, None, :]
    waves *= waves
    rest = np.array([each.normal / each.variance + SMOOTH**2 for each in sums]) / 2
    exponents = sums[0].numbers @ np.log1p(waves, out=waves) + rest[:, None] * theta**2
    mass = 2 / math.pi * spacings[:, None] * np.exp(-exponents) / theta
    return [_Angles(*each) for each in zip(spacings.tolist(), theta, mass, strict=True)]


class _Angles(NamedTuple):
    """Multiples `theta` of `spacing`, and `mass`, a bound on what each adds to a probability."""

    spacing: float
    theta: Floats
    mass: Floats

    def quantile(self, failure: float, step: float, most: int, room: float) -> int:
        """Return the least number of steps, up to `most`, that is exceeded with probability at most `failure`.

        Raises:
            NearTheEdge: a probability on the way is within `room` of `failure`.
        """

        def beyond(steps: int) -> float:
            edge = steps * step
            inside = edge * self.spacing / math.pi + float(self.mass @ np.sin(self.theta * edge))
            return 1 - inside - failure

        return by_chords(beyond, 0, most, failure, 1 / step, room)


def _coarse(number: float) -> Fraction:
    bits = math.floor(math.log2(number)) - 10
    return _times_power(round(number / 2.0**bits), bits)


def _up(of: int, over: int, bits: int) -> Fraction:
    """Return the quotient rounded up to a multiple of 2^bits; a negative quotient gives 0."""
    units = -((-of << max(0, -bits)) // (over << max(0, bits)))
    return _times_power(max(0, units), bits)


def _times_power(units: int, bits: int) -> Fraction:
    return Fraction(units << max(0, bits), 1 << max(0, -bits))
