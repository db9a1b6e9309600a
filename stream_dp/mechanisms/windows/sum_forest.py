"""Sliding windows of sums from one forest: an event adds an integer amount, which may be negative, instead of 1.

The noise of `laplace_forest`: one node's row is given discrete Laplace noise at the scale of the l1 norm that one event
changes (`event_amounts`), all its entries together, so that they are one leaf. That noise is private for any integer
row: a difference y is explained by a shift of one node's noises a level by y. This file knows no ticks' times, no names
and no grid: amounts are whole units.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.leaf import leaf
from stream_dp.accounting.situations import Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.event_amounts import EventAmounts
from stream_dp.mechanisms.row_check import checked_amounts
from stream_dp.mechanisms.windows.forest_shape import ForestShape
from stream_dp.mechanisms.windows.laplace_forest import LaplaceForest
from stream_dp.mechanisms.windows.noisy_forest import ONCE, TEST

SOURCE = "discrete Laplace mechanism on integer rows, scale l1 / epsilon (Ghosh, Roughgarden, Sundararajan 2009)"


@wire("sum-forest", 1)
@dataclass(frozen=True)
class SumForest(EventAmounts, LaplaceForest):
    """Answers of shape (windows * width,): the sums over each of `windows` (in ticks), one window after the other.

    A window longer than what has been seen adds up what there is. An event adds one amount from `lowest` to `highest`
    (in units) to at most `ones` entries of its row, or nothing.

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, adaptively: each level's nodes have noise of
    their own at the level's share, made for rows that differ by `l1` in all; an event lies in one node of each level,
    and the levels add up ([HSV] Thm 4.10). Answers are functions of the noisy sums.

    >>> from stream_dp.core.messages import Query, Update
    >>> from stream_dp.mechanisms.windows.forest_shape import FLAT
    >>> from stream_dp.testing.noise import ZeroNoise
    >>> import numpy as np
    >>> sums = SumForest(1, Fraction(1), Neighbors.ADD_REMOVE, (1, 2), FLAT, lowest=-5, highest=240)
    >>> sums.l1, sums.scales
    (240, (Fraction(240, 1),))
    >>> state, noise = sums.init(ZeroNoise()), ZeroNoise()
    >>> for amount in (100, -3):
    ...     state, _ = sums.step(state, Update(np.array([amount])), noise)
    >>> sums.step(state, Query(), noise)[1]
    array([-3, 97])

    Raises:
        NotDerivable: no amounts, or what a forest of counts is refused for.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    lowest: int
    highest: int
    ones: int = 1

    def __post_init__(self) -> None:
        """Refuse amounts that are none, and what cannot be held or summed up."""
        self._require_amounts()
        self._require_room()

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`."""
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """The scale of a node's noise, by level."""
        return tuple(self.l1 / (share * self.epsilon) for share in self.shape.shares)

    def checked_row(self, row: IntArray) -> IntArray:
        """Return a row of amounts.

        Raises:
            RejectedMessage: a bad row.
        """
        return checked_amounts(row, self.width)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: a node's entries together, a level's nodes one after the other, all levels at once.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        levels = tuple(self._level(level) for level in range(self.shape.height))
        return derive(levels, Fixed("a forest of windows")) if len(levels) > 1 else levels[0]

    def _level(self, level: int) -> Derivation:
        """What the nodes of a level guarantee."""
        span, scale = self.shape.spans[level], self.scales[level]
        share = self.shape.shares[level] * self.epsilon
        why = f"l1 of a row / scale = {self.l1} / {text(scale)}, at most {text(share)}"
        enough = Condition("noise", scale * share >= self.l1, why)
        each = Guarantee(PureDP(share), self.neighbors)
        one = leaf(f"{self.width} sum(s) of {span} tick(s)", each, SOURCE, (enough,))
        once = Touched.intervals(self.neighbors, ONCE, TEST)
        return derive((one,), Parallel(f"sums of {span} tick(s)", once))
