"""What counters of columns have alike: what their noise depends on; with trees, their claim, shares and band.

Rules: no fields and no state of its own; the counters are dataclasses beside it. This file draws nothing.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile


class ColumnShares:
    """A pure claim, and the equal share of it that each column has."""

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    ones: int

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @property
    def column_epsilon(self) -> Fraction:
        """What one column may spend: epsilon / L0."""
        return self.epsilon / self.neighbors.l0(self.width, self.ones)


class UpdatesAlone:
    """All columns are updated together, so that the noise in an answer depends on the number of updates alone."""

    def public(self, updates: int, state: Any) -> int:
        """Return the number of updates: the noise in an answer depends on nothing else."""
        return updates

    def opening(self) -> tuple[int, int]:
        """Return (0, 0): no decision is taken by counts."""
        return 0, 0


class ColumnCounter(ColumnShares, UpdatesAlone):
    """Tree noise, the same number of updates in every column."""

    def noise_terms(self, updates: int) -> Sequence[Term]:
        """Return the independent noises in the answer after `updates` updates, before it is rounded."""
        raise NotImplementedError

    def band(self, public: int, confidence: float) -> int:
        """Return the quantile of the noise in the answer after `public` updates; from its exact law."""
        return laplace_quantile(tuple(self.noise_terms(public)), 1 - confidence)
