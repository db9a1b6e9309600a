"""Forests of sums that are broken in one known way each; test_sum_forest_exact shows it."""

from fractions import Fraction
from functools import cached_property

from stream_dp.core.mechanism import IntArray, Message, Noise, Query
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.window_forest import SumForest
from stream_dp.testing.noise import ZeroNoise


class ForestOfOnes(SumForest):
    """An event changes a row by 1 in each of its entries, as if it were counted."""

    @property
    def l1(self) -> int:
        """Too little."""
        return self.neighbors.l0(self.width, self.ones)


class ForestOfOneEntry(SumForest):
    """An event sets one entry."""

    @property
    def l1(self) -> int:
        """Too little for lists."""
        return self.weight


class ForestOfRanges(SumForest):
    """A replaced amount is always one of the range, in the same entries."""

    @property
    def l1(self) -> int:
        """Too little where an event may as well add nothing."""
        return max(1, self.highest - self.lowest)


class ForestAsAdded(SumForest):
    """Under replace, the scale of add_remove."""

    @property
    def l1(self) -> int:
        """Too little."""
        return min(self.ones, self.width) * self.weight


class ForestOfWholeBudgets(SumForest):
    """Every level has the whole epsilon: together they have more."""

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Too little noise."""
        return (self.l1 / self.epsilon,) * self.shape.height


class FirstNodeBare(SumForest):
    """The first node of all is given no noise."""

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        return super()._taken(state, row, noise if state.updates else ZeroNoise())


class ClippedSums(SumForest):
    """A tick that is below 0 is given noise as if it were 0, so that the answer says of some rows that they are not."""

    def step(
        self, state: WindowForestState, message: Message, noise: Noise
    ) -> tuple[WindowForestState, IntArray | None]:
        """Clip the answer: no window is told below 0."""
        after, answer = super().step(state, message, noise)
        return after, None if answer is None or not isinstance(message, Query) else answer.clip(0)


TOO_LITTLE_NOISE: dict[str, type[SumForest]] = {
    twin.__name__: twin
    for twin in (
        ForestOfOnes, ForestOfOneEntry, ForestOfRanges, ForestAsAdded, ForestOfWholeBudgets,
    )
}  # fmt: skip
