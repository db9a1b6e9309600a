"""Trees over values whose privacy is broken in one known way each: the exact checks must catch them."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream_dp.core.mechanism import IntArray, Message, Noise
from stream_dp.mechanisms.quantiles.value_tree import ValueLevels, ValueTree, ValueTreeState


class LevelsForgotten(ValueTree):
    """Every level's counts at the whole epsilon: an event is counted in each of them."""

    def __post_init__(self) -> None:
        """Takes counts that are made for one entry an event."""


class NoiseReused(ValueTree):
    """The nodes above have the noise of the buckets, handed out again."""

    def step(
        self, state: ValueTreeState, message: Message, noise: Noise
    ) -> tuple[ValueTreeState, IntArray | None]:
        """One draw a bucket."""
        return super().step(state, message, _Repeated(noise, self.levels.leaves))


@dataclass(slots=True)
class _Repeated:
    """Draws for the buckets, and repeats that for the other nodes."""

    noise: Noise
    leaves: int

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """As many as asked, some of them twice."""
        return np.resize(self.noise.laplace(scale, self.leaves), size)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Not used by counts."""
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Not used by counts."""
        raise NotImplementedError


@dataclass(frozen=True)
class CountedTwice(ValueLevels):
    """The first node above holds all buckets, so that an event may lie in two of a level."""

    def counted(self, buckets: IntArray) -> IntArray:
        """One sum is too large."""
        found = super().counted(buckets)
        found[self.leaves] = buckets.sum()
        return found
