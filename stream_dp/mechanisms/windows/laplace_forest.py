"""The forest behind sliding windows with discrete Laplace noise at a scale for each level.

What the scales are made for is said by `window_forest` and `sum_forest`; this file knows no privacy parameter.
"""

import math
from fractions import Fraction
from functools import cached_property

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.linear.tree import LIKELY
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.watches.false_alarms import WIDEST
from stream_dp.mechanisms.windows.noisy_forest import NoisyForest


class LaplaceForest(NoisyForest):
    """A forest whose nodes have Laplace noise; no fields, `scales` are a mechanism's own."""

    @property
    def scales(self) -> tuple[Fraction, ...]:
        """The scale of a node's noise, by level."""
        raise NotImplementedError

    @cached_property
    def node_variances(self) -> tuple[Fraction, ...]:
        """The variance of a node's noise, by level: twice the square of its scale, but for a twelfth or so."""
        return tuple(2 * scale**2 for scale in self.scales)

    @property
    def _drawable(self) -> bool:
        return max(self.scales) <= WIDEST

    def _reach(self, level: int, number: int) -> float:
        """A sum of n Laplace noises of scale s is beyond s (2 sqrt(n x) + x) with a probability below e^-x."""
        return float(self.scales[level]) * (2 * math.sqrt(number * LIKELY) + LIKELY)

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        return noise.laplace(self.scales[level], self.width)

    def view_band(self, place: int, public: int, confidence: float) -> int:
        """Return the quantile of the noise of a value of the window at `place`; from its exact law."""
        return laplace_quantile(tuple(self.noise_terms(place, public)), 1 - confidence)

    def noise_terms(self, place: int, updates: int) -> list[Term]:
        """The independent noises in the window at `place` after `updates` updates, before it is rounded."""
        found = self.decoding.weights(updates, self.windows[place])
        return [Term(self.scales[level], number, abs(weight)) for number, level, weight in found]
