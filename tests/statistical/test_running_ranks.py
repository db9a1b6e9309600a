"""How far running averages of the noise of ranks go: what the band of told buckets has on top of one rank's margin.

In the worst data all events lie in two places, each L events beyond the asked rank, so that a bucket between is told
too high by L exactly where some running average of the noise from the first of them on is below -L. 4,000 draws of
each; a quantile of .975 is then off by less than 4 percent with probability above 1 - 1e-4, and fixed seeds decide.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.mechanisms.quantiles.bucket_windows import RankLevels, best_rank_levels
from stream_dp.mechanisms.quantiles.value_tree import RUNNING, RUNNING_NORMAL, ValueLevels

Floats = NDArray[np.float64]
DRAWS = 4_000


@pytest.mark.parametrize(
    ("leaves", "arity"), [(5, 5), (20, 20), (52, 12), (102, 102), (202, 16), (202, 10)]
)
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_running_averages_stay_within_what_the_band_has_on_top(
    leaves: int, arity: int, quantile: float
) -> None:
    assert farthest(weights_of(ValueLevels(leaves, arity)), quantile) <= 1.04 * RUNNING


@pytest.mark.parametrize("leaves", [3, 12, 52, 102, 402])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_those_of_normal_noise_that_is_made_for_ranks_do_so_too(
    leaves: int, quantile: float
) -> None:
    levels = best_rank_levels(leaves, (Fraction(str(quantile)),))
    assert farthest(weights_of(levels), quantile) <= 1.02 * RUNNING_NORMAL


def test_they_go_beyond_one_ranks_margin() -> None:
    """The twin: a band without anything on top."""
    assert farthest(weights_of(ValueLevels(102, 102)), 0.5) > 1.08
    assert farthest(weights_of(RankLevels(102, 0)), 0.5) > 1.05


def weights_of(levels: ValueLevels | RankLevels) -> Floats:
    """The weights of independent noises of equal variance in the estimates of the buckets."""
    if isinstance(levels, ValueLevels):
        return levels.weights
    return np.asarray(levels.covariance @ levels.strategy.T, dtype=np.float64)


def farthest(weights: Floats, quantile: float) -> float:
    """The quantile of running averages, in that of one rank's largest noise; over all buckets to begin with."""
    through = np.cumsum(weights, axis=0)
    ranks, leaves = through - quantile * through[-1], len(through)
    widest = float(np.sqrt((ranks**2).sum(axis=1).max()))
    rng = np.random.default_rng(leaves)
    noise = rng.normal(size=(DRAWS, ranks.shape[1])) @ ranks.T / widest
    found = []
    for first in range(0, leaves - 1, max(1, leaves // 20)):
        for part in (noise[:, first : leaves - 1], noise[:, first::-1]):
            averages = np.cumsum(part, axis=1) / np.arange(1, part.shape[1] + 1)
            found.append(float(np.quantile(averages.max(axis=1), 0.975)))
    return max(found) / 1.96
