"""Tumbling quantiles whose privacy is broken in one known way each: the exact checks must catch them."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from unit.mechanisms.shifted_noise import NoNoise

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.mechanisms.quantiles.tumbling_quantiles import TumblingQuantiles


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

    def scale(self, quantile: Fraction) -> Fraction:
        return super().scale(quantile) / 2


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


class _Repeated(NoNoise):
    """Draws once and hands that out again."""

    def __init__(self, noise: Noise) -> None:
        self.noise, self.drawn = noise, list[IntArray]()

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        if not self.drawn:
            self.drawn.append(self.noise.geometric(scale, size))
        return self.drawn[0]
