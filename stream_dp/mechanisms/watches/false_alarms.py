"""The chance of a false alarm, from the law of the noise and public numbers alone.

A watch compares at each tick: it fires where a fresh geometric draw is at least a margin, the distance of its count to
the threshold, and the geometric draw on the threshold. Rules: what is returned is exact up to a thousandth, and never
less than exact. This file knows no data and no state.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream_dp.errors import UsageError

STEPS = 1 << 10  # of a scale, that a draw on the threshold is looked at in
FAR = 40  # scales: beyond them lies less than e^-40
WIDEST = (
    1 << 40
)  # the largest scale that is drawn: `stream_dp.noise.digits.MAX_SCALE`, which loads the cipher


def exceeding(margin: int, scale: Fraction) -> float:
    """Return P[nu >= margin + tau] of two geometric draws, or P[nu >= margin] of one discrete Laplace draw: the same.

    >>> round(exceeding(0, Fraction(1)), 6)  # 1 / (1 + 1/e)
    0.731059
    """
    decay = math.exp(-1 / float(scale))
    if margin < 0:
        return 1 - decay ** (1 - margin) / (1 + decay)
    return decay**margin / (1 + decay)


@lru_cache(maxsize=1024)
def crossing_chance(margin: int, scale: Fraction, comparisons: int) -> float:
    """Return P[one of so many fresh draws is >= margin + tau], tau drawn once; all geometric of this scale.

    The sum over tau of its chance times 1 - (1 - a^(margin + tau))^n, a = exp(-1/scale), in steps of a thousandth of
    the scale, each at its near end.
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
    """Return a margin beyond which one of so many draws lies with no more than this chance, by the sum over them.

    >>> margin = enough_margin(Fraction(10), 24, 0.05)
    >>> margin, round(crossing_chance(margin, Fraction(10), 24), 3)
    (56, 0.045)
    """
    decay = math.exp(-1 / float(scale))
    return max(0, math.ceil(float(scale) * math.log(comparisons / chance / (1 + decay))))


def require_drawable(*scales: Fraction) -> None:
    """Do nothing where noise of all these scales can be drawn.

    Raises:
        UsageError: some of it is too wide.
    """
    if (widest := max(scales)) > WIDEST:
        raise UsageError(
            f"noise of scale {float(widest):.3g} is too wide for 64 bits: give more epsilon, or let one event count in "
            "fewer entries at once"
        )
