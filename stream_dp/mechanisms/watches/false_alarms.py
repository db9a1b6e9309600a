"""The chance of a false alarm, from the law of the noise and public numbers alone.

A watch compares at each tick. It fires where a fresh geometric draw is at least the margin (the distance of its
count to the threshold) plus the geometric draw on the threshold. Rules: results are exact up to a thousandth, and
never too small. This file knows no data and no state.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream_dp.errors import UsageError

STEPS = 1 << 10  # steps into which a scale is divided for a draw on the threshold
FAR = 40  # scales: beyond them lies less than e^-40
WIDEST = (
    1 << 40
)  # the largest scale that is drawn: `stream_dp.noise.digits.MAX_SCALE`, which loads the cipher


def exceeding(margin: int, scale: Fraction) -> float:
    """Return P[nu >= margin + tau] of two geometric draws; it equals P[nu >= margin] of one discrete Laplace draw.

    >>> round(exceeding(0, Fraction(1)), 6)  # 1 / (1 + 1/e)
    0.731059
    """
    decay = math.exp(-1 / float(scale))
    if margin < 0:
        return 1 - decay ** (1 - margin) / (1 + decay)
    return decay**margin / (1 + decay)


@lru_cache(maxsize=1024)
def crossing_chance(margin: int, scale: Fraction, comparisons: int) -> float:
    """Return P[one of `comparisons` fresh draws is >= margin + tau], tau drawn once; all geometric of this scale.

    It is the sum over tau of P[tau] * (1 - (1 - a^(margin + tau))^n), a = exp(-1/scale), n = `comparisons`, in
    steps of a thousandth of the scale, each evaluated at its near end.
    """
    rate = 1 / float(scale)
    step = max(1, math.ceil(float(scale) / STEPS))
    lifts = np.arange(0, math.ceil(FAR * float(scale)) + step, step, dtype=np.float64)
    exponent = -np.maximum(lifts + margin, 0) * rate
    with np.errstate(divide="ignore"):
        fires = -np.expm1(comparisons * np.log1p(-np.exp(exponent)))
    chance = np.exp(-lifts * rate) * -math.expm1(-step * rate)
    beyond = math.exp(-float(lifts[-1] + step) * rate)
    return min(1.0, float(chance @ fires) + beyond * float(fires[-1]))


def enough_margin(scale: Fraction, comparisons: int, chance: float) -> int:
    """Return a margin that one of `comparisons` draws exceeds with at most this chance, by a union bound.

    >>> margin = enough_margin(Fraction(10), 24, 0.05)
    >>> margin, round(crossing_chance(margin, Fraction(10), 24), 3)
    (56, 0.045)
    """
    decay = math.exp(-1 / float(scale))
    return max(0, math.ceil(float(scale) * math.log(comparisons / chance / (1 + decay))))


def require_drawable(*scales: Fraction) -> None:
    """Check that noise of all these scales can be drawn.

    Raises:
        UsageError: some scale is too large.
    """
    if (widest := max(scales)) > WIDEST:
        raise UsageError(
            f"noise of scale {float(widest):.3g} is too wide for 64 bits: give more epsilon, or let one event count in "
            "fewer entries at once"
        )
