"""Alerts that draw too little noise when they are asked or re-armed."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.mechanisms.watches.alerts import Alerts, AlertsState


@dataclass(slots=True)
class Less:
    """A source of the geometric noise of one query, the asked-for first, the lifts second; some of it is less."""

    noise: Noise
    scales: tuple[int, int] = (1, 1)
    shared: tuple[bool, bool] = (False, False)
    draw: int = 0

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """At a part of the scale, or one value for all."""
        number, self.draw = self.draw, self.draw + 1
        scale = scale / self.scales[number]
        if not self.shared[number]:
            return self.noise.geometric(scale, size)
        return np.repeat(self.noise.geometric(scale, min(1, size)), size)

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """As given."""
        return self.noise.laplace(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """As given."""
        return self.noise.gaussian(variance, size)


class Asked(Alerts):
    """Alerts whose queries draw from `less`."""

    def less(self, noise: Noise) -> Less:
        """Nothing is less yet."""
        return Less(noise)

    def step(
        self, state: AlertsState, message: Message, noise: Noise
    ) -> tuple[AlertsState, IntArray | None]:
        """As ever."""
        return super().step(
            state, message, self.less(noise) if isinstance(message, Query) else noise
        )


class NoFreshLift(Alerts):
    """The noise on the threshold survives the alert."""

    def step(
        self, state: AlertsState, message: Message, noise: Noise
    ) -> tuple[AlertsState, IntArray | None]:
        """Takes the fresh lifts from a source of no use."""
        if not isinstance(message, Query):
            return super().step(state, message, noise)
        after, answer = super().step(state, message, _FirstDrawOnly(noise))
        return replace(after, lift=state.lift), answer


class HalfLift(Asked):
    """Re-armed at half the scale."""

    def less(self, noise: Noise) -> Less:
        """The second draw."""
        return Less(noise, scales=(1, 2))


class HalfQueryNoise(Asked):
    """Asked at half the scale."""

    def less(self, noise: Noise) -> Less:
        """The first draw."""
        return Less(noise, scales=(2, 1))


class OneQueryNoise(Asked):
    """All keys are compared with the same noise."""

    def less(self, noise: Noise) -> Less:
        """The first draw."""
        return Less(noise, shared=(True, False))


class OneLift(Asked):
    """All keys that alert in one tick are re-armed with the same noise."""

    def less(self, noise: Noise) -> Less:
        """The second draw."""
        return Less(noise, shared=(False, True))


@dataclass(slots=True)
class _FirstDrawOnly(Less):
    """Zeros after the first draw."""

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """Drawn once."""
        self.draw += 1
        if self.draw > 1:
            return np.zeros(size, dtype=np.int64)
        return self.noise.geometric(scale, size)
