"""Forests of sums that are broken in one known way each; test_sum_exact shows it."""

from fractions import Fraction
from functools import cached_property
from typing import Any

from stream_dp.core.mechanism import Query
from stream_dp.mechanisms.linear.window_forest import SumForest


class ForestOfOnes(SumForest):
    """An event changes a row by 1 in each of its entries, as if it were counted."""

    @property
    def l1(self) -> int:
        return self.neighbors.l0(self.width, self.ones)


class ForestOfOneEntry(SumForest):
    """An event sets one entry."""

    @property
    def l1(self) -> int:
        return self.weight


class ForestOfRanges(SumForest):
    """A replaced amount is always one of the range, in the same entries."""

    @property
    def l1(self) -> int:
        return max(1, self.highest - self.lowest)


class ForestAsAdded(SumForest):
    """Under replace, the scale of add_remove."""

    @property
    def l1(self) -> int:
        return min(self.ones, self.width) * self.weight


class ForestOfWholeBudgets(SumForest):
    """Every level has the whole epsilon: together they have more."""

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        return (self.l1 / self.epsilon,) * self.shape.height


class ClippedSums(SumForest):
    """A tick that is below 0 is given noise as if it were 0, so that the answer says of some rows that they are not."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        after, answer = super().step(state, message, noise)
        return after, None if answer is None or not isinstance(message, Query) else answer.clip(0)


TOO_LITTLE_NOISE: dict[str, type[SumForest]] = {
    twin.__name__: twin
    for twin in (
        ForestOfOnes, ForestOfOneEntry, ForestOfRanges, ForestAsAdded, ForestOfWholeBudgets,
    )
}  # fmt: skip
