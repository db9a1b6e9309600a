"""Sums beside counts that are broken in one known way each; test_sum_exact and the audit show it."""

from fractions import Fraction
from functools import cached_property
from typing import Any

from stream_dp.core.mechanism import Query, Update
from stream_dp.mechanisms.linear.pairs import SumsAndCounts, SumsAndCountsState
from stream_dp.mechanisms.linear.window_forest import SumForest
from stream_dp.testing.noise import ZeroNoise


class ScaleOfCounts(SumForest):
    """Sums with the noise of a count."""

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        return tuple(1 / (share * self.epsilon) for share in self.shape.shares)


class BareCounts(SumsAndCounts):
    """The exact counts beside noisy sums."""

    def step(self, state: Any, message: Any, noise: Any) -> Any:
        if isinstance(message, Query):
            return super().step(state, message, noise)
        after, _ = super().step(state, message, noise)
        half = self.sums.width
        counts, _ = self.counts.step(state.counts, Update(message.row[half:]), ZeroNoise())
        return SumsAndCountsState(after.sums, counts), None
