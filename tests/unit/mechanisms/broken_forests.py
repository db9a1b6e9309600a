"""Forests of windows that are broken in one known way each: test_forest_exact and its neighbours show it."""

from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.window_forest import WindowForest
from stream_dp.testing.noise import ZeroNoise


class WholeBudgetEach(WindowForest):
    """Every level has the whole epsilon: together they have more."""

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Too little noise."""
        return (1 / self.unit_epsilon,) * self.shape.height


class ColumnsFree(WindowForest):
    """Every column has the whole epsilon, also where an event touches two."""

    @property
    def unit_epsilon(self) -> Fraction:
        """Too much."""
        return self.epsilon


class FreshForEachWindow(WindowForest):
    """A tick's noise is drawn anew for each window and each answer: its count is released many times."""

    def step(
        self, state: WindowForestState, message: Message, noise: Noise
    ) -> tuple[WindowForestState, IntArray | None]:
        """Keep the exact counts, and draw for what is asked."""
        if not isinstance(message, Query):
            return super().step(state, message, ZeroNoise())
        after, answer = super().step(state, message, noise)
        assert answer is not None
        return after, answer + noise.laplace(self.scales[0], answer.size)


class NeverForgets(WindowForest):
    """What was counted in a node is counted in the next one too."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        after = super()._taken(state, row, noise)
        return replace(after, open=state.open + row)


class BeforeItsTime(WindowForest):
    """A node is given noise a tick before its last one has come, and once more with it."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        after, span = super()._taken(state, row, noise), self.shape.spans[1]
        if after.updates % span != span - 1:
            return after
        early = after.open[0] + noise.laplace(self.scales[1], self.width)
        last = after.sums[0][-1].copy()
        last[-1] += early  # shows in the answers of this tick and of all after it
        return replace(after, sums=((*after.sums[0][:-1], last), *after.sums[1:]))


class GainOnCounts(WindowForest):
    """A node's correction takes a part of its count, not of its surplus: what is rounded depends on the data."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        after = super()._taken(state, row, noise)
        if after.updates % self.shape.spans[1]:
            return after
        ring = after.surpluses[0]
        last = ring[-1].copy()
        last[-1] += (state.open[0] + row) << 12
        return replace(after, surpluses=((*ring[:-1], last), *after.surpluses[1:]))


class OneTickMore(WindowForest):
    """Windows are a tick too long."""

    def _window(self, state: WindowForestState, window: int) -> IntArray:
        return super()._window(state, window + 1 if window > 1 else window)
