"""Trees and hybrid counters that use a noise twice or not at all: the linear maps must show it."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message
from stream_dp.mechanisms.hybrid_counter import HybridCounter, HybridState
from stream_dp.mechanisms.tree import TreeNoise, TreeState
from stream_dp.testing.noise import ZeroNoise


class LowestWindowOnly(TreeNoise):
    """Redraws only its lowest window."""

    def _changed_levels(self, prefix: int) -> int:
        return min(1, super()._changed_levels(prefix))


class HighestChangedForgotten(TreeNoise):
    """Of several windows that change at once the highest stays."""

    def _changed_levels(self, prefix: int) -> int:
        levels = super()._changed_levels(prefix)
        return levels - 1 if levels > 1 else levels


class OneLevelNeverRedrawn(TreeNoise):
    """The level below the top is drawn once and for all."""

    def _changed_levels(self, prefix: int) -> int:
        return min(self.shape.height - 2, super()._changed_levels(prefix))


class WindowHandedDown(TreeNoise):
    """The window that a level has left serves the level below it."""

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        """Right, but for a lowest window that is no new one."""
        after = super().advance(state, noise)
        if self._changed_levels(after.prefix) < 2:
            return after
        return replace(after, windows=(state.windows[1], *after.windows[1:]))


class SameLevelTwice(TreeNoise):
    """Two levels that change together share one window."""

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        """Draws less."""
        after = super().advance(state, noise)
        if self._changed_levels(after.prefix) < 2:
            return after
        return replace(after, windows=(after.windows[1], *after.windows[1:]))


class TotalsStay(HybridCounter):
    """The tree of totals does not move on: its answer at prefix 0 is 0, the totals are exact."""

    def step(
        self, state: HybridState, message: Message, noise: Noise
    ) -> tuple[HybridState, IntArray | None]:
        """Forgets to advance it."""
        after, answer = super().step(state, message, noise)
        return replace(after, totals=state.totals), answer


class TotalsDrawnAnew(HybridCounter):
    """The tree of totals takes fresh noise for the same nodes: they can be averaged."""

    def step(
        self, state: HybridState, message: Message, noise: Noise
    ) -> tuple[HybridState, IntArray | None]:
        """Draws its windows with each epoch."""
        after, answer = super().step(state, message, noise)
        if after.epoch == state.epoch:
            return after, answer
        fresh = replace(after.totals, windows=self.totals.init(noise).windows)
        return replace(after, totals=fresh), answer


class InnerNoiseAgain(HybridCounter):
    """An epoch's tree takes over the noises of the epoch before, and draws only what it needs more."""

    @cached_property
    def _memory(self) -> "_Memory":
        return _Memory(self.totals.scale)

    def step(
        self, state: HybridState, message: Message, noise: Noise
    ) -> tuple[HybridState, IntArray | None]:
        """Draws through a memory where an epoch begins."""
        if state.inner.prefix == 1 << state.epoch:
            self._memory.noise = noise
            noise = self._memory
        return super().step(state, message, noise)


@dataclass(slots=True)
class _Memory:
    """Noise whose draws end with what was drawn before; one scale is left alone."""

    spared: Fraction
    noise: Noise = field(default_factory=ZeroNoise)
    kept: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Old noise, and fresh noise before it where that is not enough."""
        fresh = self.noise.laplace(scale, size)
        if scale != self.spared:
            self.kept = np.concatenate([fresh, self.kept[-size:]])[-size:]
            return self.kept
        return fresh

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        """As given."""
        return self.noise.geometric(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        """As given."""
        return self.noise.gaussian(variance, size)
