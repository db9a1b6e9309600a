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
KNOWN = 4096  # bands kept per mechanism
LARGEST_SCALE = 1 << 11  # scales beyond are counted in steps of several
SURVIVAL = 0.5  # what long-lived thresholds may add to the failure probability, as a share


class Bands:
    """The bands of one mechanism: `bands(tick, state)` holds with `confidence` for one value released then.

    Raises:
        TypeError: no band is known for this mechanism.
    """

    def __init__(self, mechanism: Any, confidence: float) -> None:
        self._mechanism = mechanism
        self._confidence = confidence
        self._known: dict[Any, int] = {}

    def __call__(self, tick: int, state: Any) -> int:
        """The half-width; looks at public parts of `state` only (none but HSS needs them)."""
        key = _public(self._mechanism, tick, state)
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = _band(self._mechanism, key, self._confidence)
        return self._known[key]


@singledispatch
def _public(mechanism: Any, tick: int, state: Any) -> Any:
    """The public values that the band depends on."""
    raise TypeError(f"no error band is known for {type(mechanism).__name__}")


@singledispatch
def _band(mechanism: Any, key: Any, confidence: float) -> int:
    raise TypeError(f"no error band is known for {type(mechanism).__name__}")


@_public.register
def _(mechanism: Counter | HybridCounter, tick: int, state: Any) -> int:
    return tick + 1


@_band.register
def _(mechanism: Counter | HybridCounter, key: int, confidence: float) -> int:
    return laplace_quantile(tuple(mechanism.noise_terms(key)), 1 - confidence)


@_public.register
def _(mechanism: HSS, tick: int, state: HSSState) -> tuple[int, int]:
    """Where the horizon is known, gamma is the same at every query."""
    return mechanism.horizon or max(1, state.queries), state.intervals


@_band.register
def _(mechanism: HSS, key: tuple[int, int], confidence: float) -> int:
    return hss_band(mechanism, *key, confidence)


@_public.register
def _(mechanism: Alerts, tick: int, state: Any) -> int:
    return tick


@_band.register
def _(mechanism: Alerts, key: int, confidence: float) -> int:
    """Too early needs one of at most tick+1 draws to exceed the threshold's, too late a large one on it."""
    return math.ceil(float(mechanism.scale) * math.log((key + 2) / (1 - confidence)))


def hss_band(mechanism: HSS, query: int, intervals: int, confidence: float) -> int:
    """Bound on |released - true|: what may have gone by unseen since the crossing, and the counter's noise.

    Unseen is at most gamma + (threshold noise) - (query noise). A histogram entry is too high by its own noise
    only; a maximum may be too high by the largest noise of any column.

    It holds at every query for all data chosen without looking at the noise. A threshold with large noise lives
    longest, so the noise of the instance alive now is not geometric any more: on quiet data it is almost uniform.
    What is known is that the j-th instance drew it once. With J the number of closed intervals and G the
    tail of (threshold noise) - (query noise), P(J = j and it exceeds z) <= min(P(J = j), G(z))
    <= (P(J = j) + w_j) min(1, G(z) / w_j), w_j = SURVIVAL * share: summed over j, (1 + SURVIVAL) times the law with
    tail min(1, G / w_j), a geometric moved up. A histogram's crossings never look at the counter's noise, which is
    therefore independent of J. Those of a maximum do once the largest released column is not the largest true one;
    there independence is an assumption, paid for by adding up the tails of all columns (tests: rotating leaders).
    """
    instance = mechanism.instance()
    scales = (instance.lift_scale, instance.query_scale)
    known = mechanism.horizon is not None and query <= mechanism.horizon
    possible = (mechanism.horizon or 0) + 1 if known else 1 << query.bit_length()
    moved = _moved_up(scales, SURVIVAL * interval_share(intervals, possible))
    return _hss_band(
        mechanism.gamma(query, intervals) + moved,
        tuple(mechanism.counter.noise_terms(intervals)),
        instance.lift_scale,
        mechanism.width if mechanism.statistic is Statistic.MAXIMUM else 1,
        1 - confidence,
    )


def interval_share(intervals: int, possible: int) -> float:
    """w_j = 1 / ((j + 1) (1 + ln n)): at most 1 in sum over the n possible numbers of closed intervals."""
    return 1 / ((intervals + 1) * (1 + math.log(possible)))


def _moved_up(scales: tuple[Fraction, Fraction], share: float) -> int:
    """The least z0 such that z0 + geometric dominates the law with tail min(1, P(lift - query > z) / share)."""
    a, b = (math.exp(-1 / float(scale)) for scale in scales)
    return max(0, math.ceil(float(scales[0]) * math.log((1 - b) / (1 - a * b) / share)))


@lru_cache(maxsize=1 << 16)
def _hss_band(behind: int, terms: Terms, lift: Fraction, columns: int, failure: float) -> int:
    """The least B with P(noise of some column > B) + P(behind + geometric - noise > B) <= failure, in steps."""
    terms, (lift,), step, rest = _in_steps(terms, lift)
    behind = -(-behind // step)
    size = _ring(terms, (lift,)) + 2 * _power_above(behind)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    noise = laplace_transform(terms, theta)
    failing = columns * _upper_tail(noise, size)
    failing[:behind] = np.inf
    too_low = _upper_tail(noise * _geometric_transform(lift, theta), size)
    failing[behind:] += (1 + SURVIVAL) * too_low[: len(failing) - behind]
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
    """The same noise counted in steps, so that work is bounded at any scale: (terms, scales, step, rest).

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
