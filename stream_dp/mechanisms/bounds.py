"""Public tail bounds of the noise, from which thresholds and error bounds are computed.

Everything here is a function of public parameters; floats are allowed, because no result is added to a count. This
file knows no state and no data.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from stream_dp.mechanisms.noise_quantiles import Term

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
    """Return an integer that |sum of independent DLap terms|, rounded, exceeds with at most this probability
    (Chernoff).

    The bound is a minimum over a grid of s, so it always holds: E exp(s w X) = (1-a)^2 / ((1 - a e^sw)(1 - a
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
