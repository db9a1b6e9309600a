"""No band of tumbling quantiles that holds for all data is three times what an even stream shows: it must be wider.

No statistics: the laws are sums over the noise, of which less than e^-40 is left out, and equal the oracle's.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from oracles.noisy_maximum import noisy_maximum, rank_losses

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles

HALF, FAILURE, BUCKETS = Fraction(1, 2), 0.05, 24
MECHANISM = TumblingQuantiles(BUCKETS, Fraction(1), Neighbors.ADD_REMOVE, (1,), (HALF,))
RATE = float(1 / MECHANISM.scale(HALF))
EVEN = (6,) * BUCKETS


def law(losses: Sequence[int], rate: float) -> NDArray[np.float64]:
    """P[candidate i is chosen], by summing over its own noise z: all others stay behind independently."""
    z = np.arange(math.ceil(40 / rate))
    mass, all_losses = -math.expm1(-rate) * np.exp(-rate * z), np.array(losses)
    found = []
    for i, loss in enumerate(losses):
        gaps = all_losses - loss + (np.arange(len(losses)) > i)
        behind = -np.expm1(-rate * np.maximum(z[:, None] + np.delete(gaps, i), 0))
        found.append(mass @ behind.prod(axis=1))
    return np.array(found)


def missed(counts: Sequence[int], band: int) -> float:
    """P[the told bucket's ranks are more than so many events from the median]."""
    losses = rank_losses(counts, HALF)
    return float(law(losses, RATE)[np.array(losses) > 2 * band].sum())


def worst(band: int) -> tuple[int, ...]:
    """A stream whose last bucket holds the median: every other one is `band` and a half events off, and wins ties."""
    return (1, *[0] * (BUCKETS - 2), 2 * band + 2)


def test_the_law_is_the_oracles() -> None:
    losses = (2, 0, 1, 7)
    exact = [float(chance) for chance in noisy_maximum(losses, HALF)]
    assert law(losses, math.log(2)) == pytest.approx(exact)


def test_the_band_is_the_least_for_all_data_and_an_even_stream_is_not_off_at_all() -> None:
    """Six events in each of 24 buckets: 99 of 100 windows tell a bucket that the median lies in, or at the end of.

    Of the worst stream a band that is one event narrower fails, so no multiple of what is observed can be promised.
    """
    band = MECHANISM.band(None, 1 - FAILURE)
    assert missed(EVEN, 0) <= FAILURE
    assert missed(worst(band), band) <= FAILURE < missed(worst(band - 1), band - 1)
    assert band == 6


def test_a_band_by_the_told_bucket_is_narrow_for_a_few_buckets_only() -> None:
    """Half the band can be that of at most four of 24 buckets, and these are named before any data are seen.

    On one stream all buckets but the last are farther off than that, so those with so narrow a band are told with
    at most the chance of a failure, in all; any four of them are told more often.
    """
    half = MECHANISM.band(None, 1 - FAILURE) // 2
    losses = rank_losses(worst(half), HALF)
    assert min(losses[:-1]) > 2 * half
    assert np.sort(law(losses, RATE)[:-1])[:4].sum() > FAILURE
