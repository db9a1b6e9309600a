"""Monitors broken in one known way each: the exact attack of test_privacy_monitor.py must catch them."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.mechanisms.watches.block import (
    ArmQuery,
    DisarmQuery,
    MonitorState,
    ThresholdQuery,
)
from stream_dp.mechanisms.watches.kinds import Monitor

ONE = Fraction(1)


class KeepsItsLift(Monitor):
    """The noisy threshold survives a crossing."""

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        after, answer = super()._after(state, fired, Silent())
        return replace(after, lift=state.lift), answer


class AsksWithoutNoise(Monitor):
    """A threshold that an analyst asks is compared with the count as it is: the noise on the threshold will do."""

    def _asked(
        self, state: MonitorState, query: ThresholdQuery, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        return super()._asked(state, query, FirstSilent(noise))


class CheapTicks(Monitor):
    """Single ticks by a sparse vector at the scale of a constant shift, which there is not: max(e1, e2) claimed."""

    def init(self, noise: Noise) -> MonitorState:
        return replace(super().init(noise), lift=noise.geometric(self.scale, self.width))

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        lifted = state.count + noise.geometric(self.scale, self.width)
        fired = np.asarray(lifted >= state.threshold + state.lift, dtype=np.int64)
        fresh = noise.geometric(self.scale, int(fired.sum()))
        lift = state.lift.copy()
        lift[fired == 1] = fresh
        return replace(state, count=np.zeros_like(fired), lift=lift), fired


class TellsTheComparison(Monitor):
    """The count that is told is the noisy one that crossed."""

    def _compared(self, state: MonitorState, noise: Noise) -> tuple[MonitorState, IntArray]:
        drawn = Kept(noise)
        after, answer = super()._compared(state, drawn)
        told = state.count + drawn.values[0]
        return after, np.concatenate([answer[: self.width], answer[: self.width] * told])


class CheapWindows(Monitor):
    """Both noises of a watch over a window have the whole share, as if an event shifted all that it is asked."""

    @cached_property
    def window_scale(self) -> Fraction:
        return self.scale


class ForgetsNothing(Monitor):
    """A window that has fired keeps its events: they may make it fire again."""

    def _after(
        self, state: MonitorState, fired: IntArray, noise: Noise
    ) -> tuple[MonitorState, IntArray]:
        after, answer = super()._after(state, fired, noise)
        return replace(after, count=state.count, windows=state.windows), answer


class TellsWindowsTooWell(Monitor):
    """The count of a window is told with the noise of the whole, as if a comparison cost nothing."""

    @cached_property
    def window_value_scale(self) -> Fraction:
        return self.tick_scale


class ForgetsTouch(Monitor):
    """Every watch has the whole epsilon, as if one event counted in one."""

    @cached_property
    def l0(self) -> int:
        return 1


class KeepsCounting(Monitor):
    """A watch that is armed begins with what its place has counted since another was there."""

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        return replace(super()._armed(state, query, noise), count=state.count)

    def _disarmed(self, state: MonitorState, query: DisarmQuery) -> MonitorState:
        return replace(super()._disarmed(state, query), count=state.count)


class CountsWhereNothingRuns(KeepsCounting):
    """A free place counts: an event reaches the watches of today and the one that is armed tomorrow."""

    def step(
        self, state: MonitorState, message: Message, noise: Noise
    ) -> tuple[MonitorState, IntArray | None]:
        if isinstance(message, Query):
            return super().step(state, message, noise)
        return replace(state, count=state.count + message.row), None


class ArmsWithoutNoise(Monitor):
    """A watch that is created while the monitor runs gets no noise on its threshold."""

    def _armed(self, state: MonitorState, query: ArmQuery, noise: Noise) -> MonitorState:
        return super()._armed(state, query, Silent())


class Silent:
    """No noise."""

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    laplace = geometric

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)


@dataclass(slots=True)
class FirstSilent(Silent):
    """No noise in the first call."""

    noise: Noise
    calls: int = 0

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        self.calls += 1
        return self.noise.geometric(scale, size) if self.calls > 1 else np.zeros(size, np.int64)


@dataclass(slots=True)
class Kept:
    """Noise that remembers what it handed out."""

    noise: Noise
    values: list[IntArray] = field(default_factory=list)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self._kept(self.noise.geometric(scale, size))

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        return self._kept(self.noise.laplace(scale, size))

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        raise NotImplementedError

    def _kept(self, values: IntArray) -> IntArray:
        self.values.append(values)
        return values
