"""Trees and counters that use a noise twice or not at all, or decode with L R other than A: the exact tests show it."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.mechanisms.linear.counter import HandOverCounter, HybridCounter
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, TreeNoise, TreeState
from stream_dp.testing.noise import ZeroNoise


class WindowStays(TreeNoise):
    """The noises of the lowest window serve the next one too, though it has moved on."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        windows = (state.windows[0], *after.windows[1:])
        return self._begun(after.prefix, windows, after.left, after.here)


class WindowHandedDown(TreeNoise):
    """The window that a level has left serves the level below it."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        if changed < 2:
            return after
        windows = (state.windows[1], *after.windows[1:])
        return self._begun(after.prefix, windows, after.left, after.here)


class TopStays(TreeNoise):
    """The highest node is drawn once and for all."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        windows = (*after.windows[:-1], state.windows[-1])
        return self._begun(after.prefix, windows, after.left, after.here)


class TotalCountsMore(TreeNoise):
    """The gain on a node's total is not that on its children's, by 1/1024: L R is not A."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        place = self.shape.digit(1, after.prefix)
        more = after.windows[1][place % len(after.windows[1])] << (FRACTION_BITS - 10)
        return replace(after, slope=after.slope + more)


class SharesApart(TreeNoise):
    """A finished node's two weights are rounded apart and do not add up to 1: L R is not A."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        left = list(after.left)
        left[-1] = left[-1] + (state.windows[0].sum(axis=0) << (FRACTION_BITS - 8))
        return self._begun(after.prefix, after.windows, tuple(left), after.here)


class FloatEstimates(TreeNoise):
    """The estimates are single precision floats."""

    def fine(self, state: TreeState) -> IntArray:
        return super().fine(state).astype(np.float32).astype(np.int64)


class ChildrenForgotten(TreeNoise):
    """What the finished siblings add up to is forgotten where the highest node is not new."""

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        after = super()._moved_on(state, changed, noise)
        left = (after.left[0] * 0, *after.left[1:])
        return self._begun(after.prefix, after.windows, left, after.here)


class TotalsStay(HybridCounter):
    """The tree of totals does not move on: its answer at prefix 0 is 0, the totals are exact."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return replace(after, totals=state.totals), answer


class TotalsDrawnAnew(HybridCounter):
    """The tree of totals takes fresh noise for the same nodes: they can be averaged."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
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

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if state.inner.prefix == 1 << state.epoch:
            self._memory.noise = noise
            noise = self._memory
        return super().step(state, message, noise)


class BaseForgotten(HandOverCounter):
    """What the finished trees answered last is exact from then on."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return replace(after, base=np.zeros_like(after.base)), answer


class OldWindow(HandOverCounter):
    """A new tree's first noises are the finished one's."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if after.number == state.number:
            return after, answer
        used, fresh = state.tree.windows[0], after.tree.windows[0]
        window = np.concatenate([used, fresh])[: len(fresh)]
        tree = replace(after.tree, windows=(window, *after.tree.windows[1:]))
        return replace(after, tree=tree), answer


class StartsLate(HandOverCounter):
    """The finished tree answers for the first update of the next one, too."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        if after.number == state.number:
            return after, answer
        return replace(after, tree=self.tree(after.number).init(ZeroNoise())), answer


@dataclass(slots=True)
class _Memory:
    """Noise whose draws end with what was drawn before; one scale is left alone."""

    spared: Fraction
    noise: Noise = field(default_factory=ZeroNoise)
    kept: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        fresh = self.noise.laplace(scale, size)
        if scale != self.spared:
            self.kept = np.concatenate([fresh, self.kept[-size:]])[-size:]
            return self.kept
        return fresh

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        return self.noise.geometric(scale, size)

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        return self.noise.gaussian(variance, size)


TREES = [
    WindowStays, WindowHandedDown, TopStays, TotalCountsMore, SharesApart, FloatEstimates,
    ChildrenForgotten,
]  # fmt: skip
HYBRIDS = [TotalsStay, TotalsDrawnAnew, InnerNoiseAgain]
HAND_OVERS = [BaseForgotten, OldWindow, StartsLate]
