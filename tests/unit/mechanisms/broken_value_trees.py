"""Trees over values whose privacy is broken in one known way each: the exact checks must catch them."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from unit.mechanisms.shifted_noise import NoNoise

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.mechanisms.quantiles.value_tree import ValueLevels, ValueTree, ValueTreeState


class LevelsForgotten(ValueTree):
    """Every level's counts at the whole epsilon: an event is counted in each of them."""

    def __post_init__(self) -> None:
        """Takes counts that are made for one entry an event."""


class NoiseReused(ValueTree):
    """The nodes above have the noise of the buckets, handed out again."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        return super().step(state, message, _Repeated(noise, self.levels.leaves))


class KeptOn(ValueTree):
    """The counts of a hop stay in the next one, so an event is counted in two."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if isinstance(message, Query):
            return super().step(state, message, noise)
        before = np.zeros(self.width, dtype=np.int64) if state.open is None else state.open
        row = message.row + before
        after, _ = super().step(replace(state, open=None), Update(row), noise)
        return replace(after, open=message.row), None


class LookedInto(ValueTree):
    """At each tick the counts of the open hop so far go through the noise."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if isinstance(message, Query):
            return super().step(state, message, noise)
        row = message.row if state.open is None else message.row + state.open
        counts, _ = self.counts.step(state.counts, Update(self.levels.counted(row)), noise)
        updates = state.updates + 1
        return ValueTreeState(updates, counts, row if updates % self.hop else None), None


class _Repeated(NoNoise):
    """Draws for the buckets, and repeats that for the other nodes."""

    def __init__(self, noise: Noise, leaves: int) -> None:
        self.noise, self.leaves = noise, leaves

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return np.resize(self.noise.laplace(scale, self.leaves), size)


@dataclass(frozen=True)
class CountedTwice(ValueLevels):
    """The first node above holds all buckets, so that an event may lie in two of a level."""

    def counted(self, buckets: IntArray) -> IntArray:
        found = super().counted(buckets)
        found[self.leaves] = buckets.sum()
        return found
