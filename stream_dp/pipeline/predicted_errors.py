"""Typical errors (RMSE) of trees and of HSS, predicted from the specification alone.

What `method: auto` compares. Categories are taken to be Zipf-like, the i-th one with 1/i of the events of the largest;
per category the error of HSS is what goes by unseen between updates, the sparse vector's noise, and the counter's over
J updates, at the best J: err^2 = (n / (J + 1))^2 / 3 + 2.6 / e^2 + counter^2, or n^2 / 3 where 0 is released.
Both counters' errors are computed from the noise that they really draw. This file knows no data and no state.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.mechanisms.hss import HSS
from stream_dp.mechanisms.per_bin_hss import PerBinHSS
from stream_dp.pipeline.choice import Setting, tree_counter

Floats = NDArray[np.float64]
WATCHING = 2.6  # variance that a sparse vector's two noises add, in squares of their scale (found by simulation)
SAMPLED = 128  # prefixes, or ranks, that stand for all
MOST_EVENTS = 10**15


@dataclass(frozen=True, slots=True)
class Profile:
    """Zipf-like categories: final counts of some ranks, and how many categories each stands for."""

    counts: Floats
    weights: Floats

    @classmethod
    def of(cls, width: int, events: int) -> "Profile":
        """The categories of so many events."""
        edges = np.unique(np.geomspace(1, width + 1, SAMPLED).astype(np.int64))
        edges = np.append(edges[edges <= width], width + 1)
        weights = np.diff(edges).astype(np.float64)
        ranks = np.sqrt(edges[:-1] * (edges[1:] - 1).astype(np.float64))
        largest = events / float((weights / ranks).sum())
        return cls(largest / ranks, weights)


def tree_error(setting: Setting, epsilon: Fraction) -> float:
    """Return the RMSE of the tree's noise, over the horizon."""
    counter = tree_counter(setting, epsilon)
    last = setting.last + 1
    prefixes = sorted({max(1, round(last * (i + 0.5) / SAMPLED)) for i in range(SAMPLED)})
    squares = [variance(counter.noise_terms(prefix)) for prefix in prefixes]
    return math.sqrt(sum(squares) / len(squares))


def hss_error(mechanism: HSS | PerBinHSS, setting: Setting, events: int) -> float:
    """Return the RMSE to expect of all columns, for so many events over the horizon."""
    profile = Profile.of(setting.width, events)
    updates = _updates(setting.last + 1)
    if isinstance(mechanism, PerBinHSS):
        noise = _so_far(updates, mechanism.counters.noise_terms)
        watching = WATCHING * float(mechanism.watchers.scale) ** 2
        squares = _best(profile.counts, updates, noise, watching)
        return math.sqrt(float(squares @ profile.weights) / setting.width)
    noise = _so_far(updates, mechanism.counter.noise_terms)
    squares = profile.counts**2 @ profile.weights / (setting.width * profile.counts[0] ** 2)
    unseen = (profile.counts[0] / (updates + 1)) ** 2 / 3
    watching = WATCHING * float(mechanism.instance().query_scale) ** 2
    return math.sqrt(float((squares * (unseen + watching) + noise).min()))


def break_even(mechanism: HSS | PerBinHSS, setting: Setting, tree: float) -> int:
    """Return up to about how many events over the horizon HSS has the smaller error; a power of two, or 0."""
    events = 1
    while events <= MOST_EVENTS and hss_error(mechanism, setting, events) < tree:
        events *= 2
    return events // 2


def variance(terms: Iterable[Any]) -> float:
    """The variance of a sum of independent noises (scale, number) or (scale, number, weight)."""
    total: float = sum(
        2 * float(scale) ** 2 * number * (weight[0] if weight else 1) ** 2
        for scale, number, *weight in terms
    )
    return total


def _updates(horizon: int) -> NDArray[np.int64]:
    """Some numbers of updates, up to one a tick."""
    return np.unique(np.geomspace(1, horizon, SAMPLED).astype(np.int64))


def _so_far(updates: NDArray[np.int64], terms: Callable[[int], Iterable[Any]]) -> Floats:
    """The mean variance of a counter's noise over its updates up to each of these."""
    here = np.array([variance(terms(number)) for number in updates.tolist()])
    steps = np.diff(updates, prepend=0)
    found: Floats = np.cumsum(here * steps) / updates
    return found


def _best(counts: Floats, updates: NDArray[np.int64], noise: Floats, watching: float) -> Floats:
    """Squared errors of categories with these counts, each at its best number of updates, or at none."""
    unseen = (counts[:, None] / (updates[None, :] + 1)) ** 2 / 3
    found: Floats = np.minimum((unseen + watching + noise[None, :]).min(axis=1), counts**2 / 3)
    return found
