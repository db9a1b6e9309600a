"""Tumbling quantiles whose privacy is broken in one known way each: the exact checks must catch them."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.mechanisms.quantiles.tumbling_quantiles import (
    TumblingQuantiles,
    TumblingQuantilesState,
)


class SensitivityForgotten(TumblingQuantiles):
    """As if an event moved every loss by one, whatever the quantile."""

    def sensitivity(self, quantile: Fraction) -> int:
        """Right for the median under add_remove only."""
        return 1


class ReplaceForgotten(TumblingQuantiles):
    """The sensitivity of an event that comes or goes, also where it moves."""

    def sensitivity(self, quantile: Fraction) -> int:
        """Too little under replace."""
        return max(quantile.numerator, quantile.denominator - quantile.numerator)


class OneSided(TumblingQuantiles):
    """Scale sensitivity / epsilon, as if all losses went the same way."""

    def scale(self, quantile: Fraction) -> Fraction:
        """Half of what is needed."""
        return super().scale(quantile) / 2


class QuantilesFree(TumblingQuantiles):
    """Every quantile at the whole epsilon."""

    @property
    def choice_epsilon(self) -> Fraction:
        """Too much."""
        return self.epsilon / len(self.windows)


class LengthsFree(TumblingQuantiles):
    """Every length of window at the whole epsilon."""

    @property
    def choice_epsilon(self) -> Fraction:
        """Too much."""
        return self.epsilon / len(self.at)


class LeaksOn(TumblingQuantiles):
    """What was counted in a window counts in the next one too."""

    def step(
        self, state: TumblingQuantilesState, message: Message, noise: Noise
    ) -> tuple[TumblingQuantilesState, IntArray | None]:
        """Never forgets."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Query):
            return after, answer
        return replace(after, counts=state.counts + message.row[: self.buckets]), answer


class SameFlips(TumblingQuantiles):
    """All quantiles of a window share the noise of the first."""

    def _chosen(self, counts: IntArray, noise: Noise) -> list[int]:
        """One draw a bucket."""
        return super()._chosen(counts, _Repeated(noise))


@dataclass(slots=True)
class _Repeated:
    """Draws once and hands that out again."""

    noise: Noise
    drawn: list[IntArray] = field(default_factory=list)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """The first draw."""
        if not self.drawn:
            self.drawn.append(self.noise.geometric(scale, size))
        return self.drawn[0]

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Not used by quantiles."""
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """Not used by quantiles."""
        raise NotImplementedError
