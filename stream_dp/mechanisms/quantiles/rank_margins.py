"""Error margins of noisy ranks: fast quantiles of sums of many Laplace noises of different weights.

A rank is a weighted sum of node counts, and every node count has noise of the same law, independent of the others.
The law of such a sum lies between that of one Laplace noise and the normal one, and its quantile in standard
deviations is interpolated at the same excess kurtosis from sums of 1, 2, 3, ... equal noises, whose laws are exact.
One hundredth and one event are added, because two sums of equal kurtosis may differ, and for rounding
(test_rank_margins compares with exact laws). Rules: functions of public parameters only. Floats are allowed,
because no result is added to a count.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile

Floats: TypeAlias = NDArray[np.float64]
EQUAL = (1, 2, 3, 4, 6, 9, 14, 24, 48, 120)
_SCALE = 2_000
SLACK = 1.01
ROUNDED = 1 / 12  # variance of the rounding of a count


def rank_margins(
    terms: Iterable[Term | tuple[Fraction, int]], squares: Floats, fourths: Floats, failure: float
) -> IntArray:
    """Return the margin that the absolute noise of each rank exceeds with probability at most `failure`; shape of
    `squares`.

    `terms` are the noises in one node's count; `squares` and `fourths` are the sums of the second and fourth powers
    of the nodes' weights in each rank.
    """
    second, fourth = _cumulants(terms)
    variances = squares * (second + ROUNDED)
    kurtosis = fourths * fourth / np.maximum(variances, 1e-12) ** 2
    knots, ratios = _ratios(failure)
    deviations = SLACK * np.interp(kurtosis, knots, ratios)
    return np.asarray(np.ceil(deviations * np.sqrt(variances)), dtype=np.int64) + 1


def _cumulants(terms: Iterable[Any]) -> tuple[float, float]:
    """The second and the fourth cumulant of the sum of independent discrete Laplace noises."""
    second = fourth = 0.0
    for scale, number, *weight in terms:
        rate = float(1 / scale)
        a, rest = math.exp(-rate), -math.expm1(-rate)
        w = float(weight[0]) if weight else 1.0
        second += number * w**2 * 2 * a / rest**2
        fourth += number * w**4 * 2 * a * (1 + 4 * a + a * a) / rest**4
    return second, fourth


@lru_cache(maxsize=64)
def _ratios(failure: float) -> tuple[Floats, Floats]:
    """(kurtosis, quantile in deviations) of sums of equal Laplace noises, the normal law first."""
    found = [(0.0, NormalDist().inv_cdf(1 - failure / 2))]
    for number in reversed(EQUAL):
        edge = laplace_quantile(((Fraction(_SCALE), number),), failure)
        found.append((3 / number, edge / (_SCALE * math.sqrt(2 * number))))
    knots, ratios = np.array(found).T
    return knots, ratios
