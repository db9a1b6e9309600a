"""Error bands: half-widths that hold with a stated confidence for one released value.

Every band is a function of public values: the tick, the parameters and, for HSS, the number of closed intervals.
Distributions are inverted numerically from their exact characteristic functions on a ring so long that the
mass beyond it is below 1e-12. Floats are fine here: nothing of this is ever added to a count.
"""

import math
from fractions import Fraction
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.mechanisms.alerts import Alerts
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hss import HSS, HSSState, Statistic
from stream_dp.mechanisms.hybrid_counter import HybridCounter

Terms = tuple[tuple[Fraction, int], ...]


@singledispatch
def band(mechanism: Any, tick: int, state: Any, confidence: float) -> int:
    """The half-width that holds with `confidence` for one value released at `tick`.

    Raises:
        TypeError: no band is known for this mechanism.
    """
    raise TypeError(f"no error band is known for {type(mechanism).__name__}")


@band.register
def _(mechanism: Counter, tick: int, state: Any, confidence: float) -> int:
    return laplace_quantile(tuple(mechanism.noise_terms(tick + 1)), 1 - confidence)


@band.register
def _(mechanism: HybridCounter, tick: int, state: Any, confidence: float) -> int:
    return laplace_quantile(tuple(mechanism.noise_terms(tick + 1)), 1 - confidence)


@band.register
def _(mechanism: HSS, tick: int, state: HSSState, confidence: float) -> int:
    return hss_band(mechanism, max(1, state.queries), state.intervals, confidence)


@band.register
def _(mechanism: Alerts, tick: int, state: Any, confidence: float) -> int:
    """Too early needs one of at most tick+1 draws to exceed the threshold's, too late a large one on it."""
    scale = float(mechanism.scale)
    return math.ceil(scale * math.log((tick + 2) / (1 - confidence)))


def hss_band(mechanism: HSS, query: int, intervals: int, confidence: float) -> int:
    """Bound on |released - true|: what may have gone by unseen since the crossing, and the counter's noise.

    Unseen is at most gamma + (threshold noise) - (query noise). A histogram entry is too high by its own noise
    only; a maximum may be too high by the largest noise of any column.
    """
    columns = mechanism.width if mechanism.statistic is Statistic.MAXIMUM else 1
    instance = mechanism.instance()
    return _hss_band(
        mechanism.gamma(query, intervals),
        tuple(mechanism.counter.noise_terms(intervals)),
        (instance.lift_scale, instance.query_scale),
        columns,
        1 - confidence,
    )


@lru_cache(maxsize=1 << 16)
def _hss_band(
    gamma: int, terms: Terms, scales: tuple[Fraction, Fraction], columns: int, failure: float
) -> int:
    size = _ring(terms, scales) + 2 * _power_above(gamma)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = laplace_transform(terms, theta)
    lift, query = (_geometric_transform(scale, theta) for scale in scales)
    unseen = noise * lift * np.conj(query)
    own = _upper_tail(noise, size)
    too_high = 1 - (1 - np.clip(own, 0, 1)) ** columns
    too_low = _upper_tail(unseen, size)
    for width in range(size // 2):
        behind = too_low[width - gamma] if width >= gamma else 1.0
        if too_high[width] + behind <= failure:
            return width
    raise ArithmeticError("the ring is too short for this confidence")


@lru_cache(maxsize=1 << 16)
def laplace_quantile(terms: Terms, failure: float) -> int:
    """The least B with P(|sum of independent DLap terms| > B) <= failure; `terms` are (scale, number)."""
    size = _ring(terms, ())
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    tail = _upper_tail(laplace_transform(terms, theta), size)
    return int(np.argmax(2 * tail <= failure))


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
