"""Quantiles of the noise in a release, from which error bands are computed.

Distributions are inverted numerically from their exact characteristic functions. Rules: everything here is a
function of public parameters; floats are allowed, because no result is added to a count. This file knows no
mechanism and no state.
"""

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import chain, takewhile
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

LAWS_KEPT = 256  # cached quantiles, about 5 kB each; mechanisms with equal noises share them
LARGEST_SCALE = 1 << 11  # larger scales are counted in steps of several integers
ALIASES = 8  # turns of the ring over which the law of a rounded sum is added up
SMOOTH = 1 / 32  # standard deviation of the normal noise that makes a sum's law smooth
ROUNDED = 0.5 - 1 / 8 - 7 * SMOOTH  # a rounded sum exceeds B where the smooth one exceeds B + this
NEGLIGIBLE = 1e-6  # numerical errors here, as a part of the failure probability
NOTHING = 1e-30  # smaller transform values are left out: all of a ring together are far below one float rounding
POINTS = 64
_FIRST = np.arange(1, POINTS + 1, dtype=np.float64)
_PLACES = sorted({int(2 ** (quarter / 4)) for quarter in range(4 * 64)})
LEFT_OUT = 1e-9  # what a quick look leaves out, as a part of the failure probability
CHORDS = 8  # so many steps of a search follow a chord; later steps halve the interval
NORMAL = NormalDist()

Floats: TypeAlias = NDArray[np.float64]
_Tails: TypeAlias = tuple[Callable[[int], float], Callable[[int], float]]


class Term(NamedTuple):
    """`number` independent DLap noises of one `scale`, each times `weight`."""

    scale: Fraction
    number: int
    weight: float = 1.0


Terms: TypeAlias = tuple[Term | tuple[Fraction, int], ...]
"""A sum of independent noises; it is rounded where a weight is not whole. A pair (scale, number) has weight 1."""


@lru_cache(maxsize=LAWS_KEPT)
def lagging_quantile(
    behind: int, terms: Terms, lift: Fraction, columns: int, failure: float, late: float
) -> int:
    """Return the least B with columns * P(N > B) + late * P(behind + G - N > B) <= failure, in steps.

    N is the sum of independent DLap `terms`, rounded where they have weights, G a geometric of scale `lift`.
    """
    noise_sum = _Sum.of(terms)
    step = _step(noise_sum.widest, float(lift))
    asked = _Lagging(-(-behind // step), float(lift / step), columns, failure, late)
    cells = _lagging_quickly(noise_sum, step, asked)
    if cells is None:
        cells = _lagging_cells(noise_sum, step, asked)
    return step * cells + 2 * (step - 1)


class _Lagging(NamedTuple):
    """Parameters of a lagging quantile, in steps; `small` is the scale of the geometric."""

    behind: int
    small: float
    columns: int
    failure: float
    late: float


def _lagging_cells(noise_sum: "_Sum", step: int, asked: _Lagging) -> int:
    """Return the least B in steps, from both laws on the whole ring."""
    behind = asked.behind
    size = _ring(noise_sum, step, asked.small) + 2 * _power_above(behind)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = noise_sum.rounded_transform(theta, step)
    failing = asked.columns * _upper_tail(noise, size)
    failing[:behind] = np.inf
    too_low = _upper_tail(noise * _geometric_transform(asked.small, theta), size)
    failing[behind:] += asked.late * too_low[: len(failing) - behind]
    enough = failing <= asked.failure
    if not enough.any():
        raise ArithmeticError("the ring of samples is too short for this confidence")
    return int(np.argmax(enough))


def _lagging_quickly(noise_sum: "_Sum", step: int, asked: _Lagging) -> int | None:
    """Return `_lagging_cells` from the low angles or in closed form; None where these do not decide it."""
    behind, laws = asked.behind, asked.columns + asked.late
    left_out = max(asked.failure * LEFT_OUT / laws, 1e-11)
    if noise_sum.numbers.sum() <= 1 and noise_sum.whole:
        noise, lagging = _single_tails(noise_sum, step, asked.small)
    else:
        noise, lagging = _low_tails(noise_sum, step, asked.small, left_out)

    def failing(cells: int) -> float:
        return asked.columns * noise(cells) + asked.late * lagging(cells - behind)

    most = behind + math.ceil(_tail_reach(noise_sum, step, asked.small, asked.failure / laws))
    return _surely(failing, asked.failure, behind - 1, most, 4 * left_out * laws)


def _tail_reach(noise_sum: "_Sum", step: int, small: float, failure: float) -> float:
    """Return a bound, in steps, that noise plus geometric exceed with probability at most `failure`."""
    return noise_sum.reach(failure / 2) / step + math.log(2 / failure) * small


def _low_tails(noise_sum: "_Sum", step: int, small: float, left_out: float) -> _Tails:
    """Return both tails from the low angles of a ring, each within `left_out`."""
    under = math.ceil(noise_sum.reach(left_out) / step)
    over = math.ceil(_tail_reach(noise_sum, step, small, left_out))
    size = 2 * ((under + over) // 2) + 3
    theta = 2 * np.pi * np.arange(1, _low_angles(noise_sum, step, size, left_out) + 1) / size
    mass = noise_sum.rounded_transform(theta, step) * 2 / size / (1 - np.exp(-1j * theta))
    begin = np.exp(1j * theta * under)

    def tail(masses: NDArray[np.complex128]) -> Callable[[int], float]:
        fixed = float((masses @ begin).real)

        def beyond(cells: int) -> float:
            if cells > over:
                return 0.0
            up_to = fixed - float((masses @ np.exp(-1j * theta * (cells + 1))).real)
            return 1 - (under + cells + 1) / size - up_to

        return beyond

    return tail(mass), tail(mass * _geometric_transform(small, theta))


def _single_tails(noise_sum: "_Sum", step: int, small: float) -> _Tails:
    """Return both tails of a single noise, half of which falls by one factor per step; without noise the geometric's
    alone.
    """
    if not noise_sum.numbers.size:
        return lambda _: 0.0, lambda cells: math.exp(-(cells + 1) / small)
    beyond = _single_law(noise_sum, step)
    first, falls = beyond(0) / 2, math.exp(-step / float(noise_sum.scales[0]))
    stays = math.exp(-1 / small)

    def lagging(cells: int) -> float:
        later = stays ** (cells + 1)
        gap = falls - stays
        both = (falls ** (cells + 1) - later) / gap if gap else (cells + 1) * stays**cells
        return (1 - stays) * first * both + later * (1 - (1 - stays) * first / (1 - stays * falls))

    return lambda cells: beyond(cells) / 2, lagging


@lru_cache(maxsize=LAWS_KEPT)
def laplace_quantile(terms: Terms, failure: float) -> int:
    """The least B with P(|sum of independent DLap terms| > B) <= failure.

    With whole weights the result is exact, or a multiple of a step where the scales are large. Otherwise it is for the
    rounded sum and at most one more than the least B: Gil-Pelaez, for the sum plus a little normal noise.
    """
    summed = _Sum.of(terms)
    quick, all_of_it = (
        (_whole_quickly, _whole_quantile)
        if summed.whole
        else (_weighted_quickly, _weighted_quantile)
    )
    quantile = quick(summed, failure)
    return all_of_it(summed, failure) if quantile is None else quantile


def in_floats(terms: Terms) -> list[tuple[float, int, float]]:
    """Return (scale, number, weight) of every term that has a noise."""
    return [
        (term[0].numerator / term[0].denominator, term[1], term[2] if len(term) > 2 else 1.0)
        for term in terms
        if term[1]
    ]


class _Sum(NamedTuple):
    """Arrays of the terms; `doubled` are 4 a / (1 - a)^2, a = e^(-1 / scale): twice the variance of a noise.

    `whole`: whether the sum is an integer, so that nothing is rounded. `widest`: the largest scale times its weight.
    """

    scales: Floats
    numbers: Floats
    weights: Floats
    doubled: Floats
    variance: float
    whole: bool
    widest: float

    @classmethod
    def of(cls, terms: Terms) -> "_Sum":
        rows = in_floats(terms)
        whole = all(weight == 1 for _, _, weight in rows)
        widest = max([scale * weight for scale, _, weight in rows], default=0.0)
        flat = np.array([*chain(*rows)], dtype=np.float64)
        scales, numbers, weights = flat.reshape(-1, 3).T.copy()
        doubled = np.sinh(0.5 / scales) ** -2
        variance = float(numbers @ (weights**2 * doubled)) / 2
        return cls(scales, numbers, weights, doubled, variance, whole, widest)

    @property
    def spread(self) -> float:
        """The standard deviation of the smooth law."""
        return math.sqrt(self.variance + SMOOTH**2)

    def transform(self, theta: Floats) -> Floats:
        """Return the characteristic function at the angles `theta`; it is real."""
        waves = np.sin(np.multiply.outer(self.weights / 2, theta))
        waves *= waves
        waves *= self.doubled[:, None]
        logs = np.log1p(waves, out=waves)
        return np.asarray(np.exp(-(self.numbers @ logs)), dtype=np.float64)

    def smooth_transform(self, theta: Floats) -> Floats:
        """Return the characteristic function of the sum plus the normal noise that makes its law smooth."""
        return self.transform(theta) * np.exp(-((theta * SMOOTH) ** 2) / 2)

    def reach(self, failure: float) -> float:
        """Return a bound that |sum|, with its rounding, exceeds with probability at most `failure` (Bernstein)."""
        unlikely = math.log(2 / failure)
        variance = float(self.numbers @ (self.scales * self.weights) ** 2) * 2
        return math.sqrt(2 * unlikely * variance) + unlikely * self.widest + _step(self.widest)

    def near_peaks(self, spacing: float, first: int, last: int, least: float) -> Floats:
        """Return the numbers, `first` to `last`, of angles at which the smooth law's transform may reach `least`."""
        if (first, last) == (1, POINTS):
            return _FIRST
        run = 1
        while run * 8 * POINTS <= last - first + 1:
            run *= 8
        begins = np.arange(first, last + 1, run, dtype=np.float64)
        while run > 1:
            begins = begins[self._highest(begins, run, spacing) >= math.log(least)]
            run //= 8
            begins = np.add.outer(begins, run * np.arange(8.0)).ravel()
            begins = begins[begins <= last]
        return begins

    def _highest(self, begins: Floats, run: int, spacing: float) -> Floats:
        """Return an upper bound on the logarithm of the smooth law's transform in each run of angles."""
        half = (run - 1) / 2
        middles = np.multiply.outer(self.weights / 2, (begins + half) * spacing)
        off = np.abs(middles - np.pi * np.rint(middles / np.pi))
        waves = np.sin(np.maximum(off - (self.weights / 2 * half * spacing)[:, None], 0)) ** 2
        logs = np.log1p(self.doubled[:, None] * waves)
        highest = 1e-6 - self.numbers @ logs - (begins * spacing * SMOOTH) ** 2 / 2
        return np.asarray(highest, dtype=np.float64)

    def rounded_transform(self, theta: Floats, step: int) -> Floats:
        """Return the characteristic function at `theta` of the sum rounded to multiples of `step`, in steps.

        A rounded sum has the law of the sum plus uniform noise, restricted to the integers, so its transform is a
        sum over the turns of the ring. An integer sum needs no rounding.
        """
        if step == 1 and self.whole:
            return self.transform(theta)
        added = np.zeros_like(theta)
        far = step * self._far((2 * ALIASES + 1) * np.pi / step)
        for turn in range(-ALIASES, ALIASES + 1):
            turned = theta + 2 * np.pi * turn
            near = (np.abs(turned) <= far).nonzero()[0]
            if near.size:
                turned = turned[near]
                added[near] += self.transform(turned / step) * np.sinc(turned / (2 * np.pi))
        return added

    def _far(self, last: float) -> float:
        """Return an angle from which the transform is `NOTHING` up to `last`; `last` where none is known."""
        if last * self.weights.max(initial=0.0) > np.pi:
            return last
        angles = last / 2 ** (np.arange(POINTS) / 4)
        return float(angles[self.transform(angles) < NOTHING].min(initial=last))


class NearTheEdge(Exception):
    """A probability is so near the requested one that the whole transform is needed."""


def _whole_quantile(summed: _Sum, failure: float) -> int:
    """Return the least B of an integer sum, in steps, from its whole law on the ring."""
    step = _step(summed.widest)
    size = _ring(summed, step)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    tail = _upper_tail(summed.rounded_transform(theta, step), size)
    return step * int(np.argmax(2 * tail <= failure)) + step - 1


def _whole_quickly(summed: _Sum, failure: float) -> int | None:
    """Return the result of `_whole_quantile` from the low angles alone; None where these do not decide it.

    The angles are those of a ring of odd size beyond which `left_out` of the mass lies. At the other angles the
    transform is at most that of the angle without its turns, which falls.
    """
    if not summed.numbers.size:
        return 0
    step, left_out = _step(summed.widest), max(failure * LEFT_OUT, 1e-11)
    reach = summed.reach(failure) / step
    single = summed.numbers.sum() == 1
    law = _single_law(summed, step) if single else _ring_law(summed, step, reach, left_out)
    cells = _surely(law, failure, -1, math.ceil(reach), 4 * left_out)
    return None if cells is None else step * cells + step - 1


def _ring_law(summed: _Sum, step: int, reach: float, left_out: float) -> Callable[[int], float]:
    size = 2 * math.ceil((reach + summed.reach(left_out) / step) / 2) + 1
    theta = 2 * np.pi * np.arange(1, _low_angles(summed, step, size, left_out) + 1) / size
    mass = 2 / size * summed.rounded_transform(theta, step) / np.sin(theta / 2)
    return lambda cells: 1 - (2 * cells + 1) / size - float(mass @ np.sin(theta * (cells + 0.5)))


def _low_angles(summed: _Sum, step: int, size: int, left_out: float) -> int:
    """Return how many angles of a ring of this size to use: the others add at most `left_out` to a probability."""
    places = np.array([*takewhile((size // 2).__gt__, _PLACES), size // 2])
    turns = 1 if step == 1 else 2 * ALIASES + 1
    heights = turns * summed.transform(2 * np.pi * places / (size * step))
    rest = np.append(heights[:-1] * np.log(places[1:] / places[:-1]), 0.0)[::-1].cumsum()[::-1]
    return int(places[np.argmax(rest <= left_out)])


def _single_law(summed: _Sum, step: int) -> Callable[[int], float]:
    """Return the tail probability of a single noise beyond a number of steps, in closed form; in steps, which leave out
    turns of the ring, it has only the first waves of the staircase.
    """
    rate = 1 / float(summed.scales[0])
    waves = 2j * np.pi * np.arange(1, (2 * ALIASES + 1) // (2 * step) + 1)
    flat = 2 * math.tanh(rate / 2)

    def beyond(cells: int) -> float:
        edge = (2 * cells + 1) * step / 2
        if step == 1:
            return 2 * math.exp(-rate * (cells + 1)) / (1 + math.exp(-rate))
        ahead = math.floor(edge) + 1 - edge
        above = 2 * float((np.exp(waves * ahead) / (rate + waves)).real.sum())
        return flat * math.exp(-rate * edge) * (1 / rate + above)

    return beyond


def _surely(
    beyond: Callable[[int], float], failure: float, low: int, high: int, room: float
) -> int | None:
    """Return the least number above `low`, at most `high`, with a tail <= `failure`; None where `room` matters."""
    least = low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if beyond(middle) <= failure else (middle, high)
    sure = beyond(high) <= failure - room and (low == least or beyond(low) > failure + room)
    return high if sure else None


def _weighted_quantile(summed: _Sum, failure: float) -> int:
    """Return the least B at which the smooth law's tail is small enough."""
    bound = _farthest(summed, failure)
    return _least(summed, failure, bound, *_until_negligible(summed, math.pi / bound, failure), 0.0)


def _weighted_quickly(summed: _Sum, failure: float) -> int | None:
    """Return the result of `_weighted_quantile` from the relevant angles; None where these do not decide it."""
    bound, left_out = _farthest(summed, failure), failure * LEFT_OUT
    relevant = _that_matter(summed, math.pi / bound, failure, left_out / 32)
    try:
        return _least(summed, failure, bound, *relevant, left_out + 1e-12)
    except NearTheEdge:
        return None


def _farthest(summed: _Sum, failure: float) -> float:
    """Return a bound that the smooth sum exceeds with negligible probability."""
    unlikely = math.log(2 / (failure * NEGLIGIBLE))
    return math.sqrt(2 * unlikely) * summed.spread + unlikely * summed.widest + 1  # Bernstein


def _least(
    summed: _Sum, failure: float, bound: float, theta: Floats, transform: Floats, room: float
) -> int:
    """Return the quantile by Gil-Pelaez, from the smooth law's transform at multiples of pi / `bound`.

    Raises:
        NearTheEdge: a probability on the way is within `room` of `failure`.
    """
    spacing = math.pi / bound
    mass = 2 / math.pi * spacing * transform / theta

    def beyond(candidate: int) -> float:
        edge = candidate + ROUNDED
        inside = edge * spacing / math.pi + float(mass @ np.sin(theta * edge))
        return 1 - inside - failure

    return by_chords(beyond, -1, math.ceil(bound), failure, summed.spread, room)


def by_chords(
    beyond: Callable[[int], float], low: int, high: int, failure: float, spread: float, room: float
) -> int:
    """Return the least number above `low`, up to `high`, where `beyond` is at most 0.

    `beyond` is how much a law of standard deviation `spread` exceeds a number more often than `failure`. It falls by
    more than its error from number to number, so every search order finds the same number. The search begins where a
    normal law has its quantile, and follows chords.

    Raises:
        NearTheEdge: a value on the way is within `room` of 0.
    """
    normal = NORMAL.inv_cdf(1 - failure / 2)
    likely, falls = normal * spread, 2 * NORMAL.pdf(normal) / spread
    before, last, tried = 0, 0.0, 0
    while high - low > 1:
        inner = min(max(likely, low + 1), high - 1)
        middle = int(inner) if tried < CHORDS else (low + high) // 2
        above = beyond(middle)
        if abs(above) < room:
            raise NearTheEdge
        low, high = (low, middle) if above <= 0 else (middle, high)
        if tried:
            falls = max((last - above) / (middle - before), sys.float_info.min)
        likely = middle + above / falls + (above > 0)
        before, last, tried = middle, above, tried + 1
    return high


def _that_matter(
    summed: _Sum, spacing: float, failure: float, least: float
) -> tuple[Floats, Floats]:
    """Return those angles of `_until_negligible` where the transform may reach `least`, and the transform there.

    A probability is a sum of at most transform / k over the angles number k, so the angles left out change it by
    less than 32 times `least`.
    """
    runs: list[tuple[Floats, Floats]] = []
    first, points = 1, POINTS
    while True:
        theta = summed.near_peaks(spacing, first, points, least) * spacing
        transform = summed.smooth_transform(theta)
        runs.append((theta, transform))
        upper = transform[theta.searchsorted((points // 2 + 0.5) * spacing) :]
        if upper.max(initial=0.0) < failure * NEGLIGIBLE:
            if len(runs) == 1:
                return theta, transform
            angles, values = zip(*runs, strict=True)
            return np.concatenate(angles), np.concatenate(values)
        first, points = points + 1, points * 2


def _until_negligible(summed: _Sum, spacing: float, failure: float) -> tuple[Floats, Floats]:
    """Return the multiples of `spacing` until the smooth law's transform is negligible, and the transform there."""
    points = POINTS
    while True:
        theta = np.arange(1, points + 1, dtype=np.float64) * spacing
        transform = summed.smooth_transform(theta)
        if transform[points // 2 :].max() < failure * NEGLIGIBLE:
            return theta, transform
        points *= 2


def _step(*scales: float) -> int:
    """Return how many integers are counted as one step, so that the work is bounded at any scale."""
    return max(1, math.ceil(max(scales) / LARGEST_SCALE))


def _geometric_transform(scale: float, theta: Floats) -> NDArray[np.complex128]:
    a = math.exp(-1 / scale)
    return np.asarray((1 - a) / (1 - a * np.exp(1j * theta)), dtype=np.complex128)


def _upper_tail(transform: NDArray[Any], size: int) -> Floats:
    """Return P(X > x) for x = 0..size/2 - 1."""
    mass = np.fft.irfft(np.conj(transform), size)[: size // 2]
    negative_side = 1 - float(mass.sum())
    return np.clip(1 - negative_side - np.cumsum(mass), 0.0, 1.0)


def _ring(summed: _Sum, step: int, *scales: float) -> int:
    """Return a power of two, in steps, beyond which the sums have a mass below 1e-12."""
    widest = max(1.0, summed.widest / step, *scales)
    return _power_above(int(2 * (9 * math.sqrt(summed.variance) / step + 40 * widest)))


def _power_above(number: int) -> int:
    return 1 << max(4, int(number).bit_length())
