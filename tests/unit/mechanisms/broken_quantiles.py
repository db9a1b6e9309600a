"""Tumbling quantiles whose privacy is broken in one known way each: the exact checks must catch them."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from unit.mechanisms.shifted_noise import NoNoise

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.mechanisms.quantiles.bucket_windows import TumblingQuantiles, Tuples


class SensitivityForgotten(TumblingQuantiles):
    """As if an event moved every loss by one, whatever the quantile."""

    def sensitivity(self, quantile: Fraction) -> int:
        return 1


class ReplaceForgotten(TumblingQuantiles):
    """The sensitivity of an event that comes or goes, also where it moves."""

    def sensitivity(self, quantile: Fraction) -> int:
        return max(quantile.numerator, quantile.denominator - quantile.numerator)


class OneSided(TumblingQuantiles):
    """Scale sensitivity / epsilon, as if all losses went the same way."""

    def scale(self, *quantiles: Fraction) -> Fraction:
        return super().scale(*quantiles) / 2


class QuantilesFree(TumblingQuantiles):
    """Every quantile at the whole epsilon."""

    @property
    def choice_epsilon(self) -> Fraction:
        return self.epsilon / len(self.windows)


class LengthsFree(TumblingQuantiles):
    """Every length of window at the whole epsilon."""

    @property
    def choice_epsilon(self) -> Fraction:
        return self.epsilon / len(self.at)


class LeaksOn(TumblingQuantiles):
    """What was counted in a window counts in the next one too."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if isinstance(message, Query):
            return after, answer
        return replace(after, counts=state.counts + message.row[: self.buckets]), answer


class SameFlips(TumblingQuantiles):
    """All quantiles of a window share the noise of the first."""

    def _chosen(self, counts: IntArray, noise: Noise) -> list[int]:
        return super()._chosen(counts, _Repeated(noise))


class LossesAdded(TumblingQuantiles):
    """Chosen together by the sum of the losses, at the noise for the largest."""

    def _largest(self, losses: Sequence[IntArray], tuples: Tuples) -> IntArray:
        added: IntArray = np.sum([loss[tuples[:, i]] for i, loss in enumerate(losses)], axis=0)
        return added


class SmallestMove(TumblingQuantiles):
    """Chosen together at the noise for the quantile whose losses move least."""

    def moves(self, quantiles: Sequence[Fraction]) -> int:
        return min(map(self.sensitivity, quantiles))

    def _losses(self, counts: IntArray, quantile: Fraction, times: int) -> IntArray:
        return super()._losses(counts, quantile, 1)


class _Repeated(NoNoise):
    """Draws once and hands that out again."""

    def __init__(self, noise: Noise) -> None:
        self.noise, self.drawn = noise, list[IntArray]()

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        if not self.drawn:
            self.drawn.append(self.noise.geometric(scale, size))
        return self.drawn[0]
