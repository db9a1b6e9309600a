"""Sliding windows of counts from one forest: every tick, and each window that is asked, at one price.

The noise of `laplace_forest` at the scale of one event's ones. This file knows no ticks' times and no names.
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
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.column_counter import ColumnShares
from stream_dp.mechanisms.windows.forest_shape import ForestShape
from stream_dp.mechanisms.windows.laplace_forest import LaplaceForest
from stream_dp.mechanisms.windows.noisy_forest import ONCE, TEST

SOURCE = "discrete Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009)"


@wire("window-forest", 1)
@dataclass(frozen=True)
class WindowForest(LaplaceForest, ColumnShares):
    """Answers of shape (windows * width,): the counts of each of `windows` (in ticks), one window after the other.

    A window longer than what has been seen counts what there is. `ones`: the most entries of a row that one event sets.

    Privacy claim: `epsilon`-DP for such event streams under `neighbors`, adaptively: each level's nodes have noise of
    their own at the level's share; an event lies in one node of each level, in L0 of its entries ([HSV] Cor 5.5), and
    the levels add up ([HSV] Thm 4.10). Answers are functions of the noisy counts.

    Raises:
        NotDerivable: no windows, windows that its nodes do not fit into, more of them than a state may hold, or noise
            that is too wide for 64 bits.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    shape: ForestShape
    ones: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be held or summed up."""
        self._require_room()

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """The scale of a node's noise, by level."""
        return tuple(1 / (share * self.column_epsilon) for share in self.shape.shares)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: a node's entries, the nodes of a level one after the other, all levels at once.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        levels = tuple(self._level(level) for level in range(self.shape.height))
        return derive(levels, Fixed("a forest of windows")) if len(levels) > 1 else levels[0]

    def _level(self, level: int) -> Derivation:
        """What the nodes of a level guarantee."""
        span, scale = self.shape.spans[level], self.scales[level]
        touched = Touched.columns(self.neighbors, self.width, ones=self.ones)
        share = self.shape.shares[level] * self.epsilon / touched.k
        why = f"1 / scale = 1 / {text(scale)}, at most {text(share)}"
        enough = Condition("noise", scale * share >= 1, why)
        each = Guarantee(PureDP(share), self.neighbors)
        one = leaf(f"one count of {span} tick(s)", each, SOURCE, (enough,))
        node = derive((one,), Parallel(f"{self.width} column(s)", touched, (self.width,)))
        once = Touched.intervals(self.neighbors, ONCE, TEST)
        return derive((node,), Parallel(f"counts of {span} tick(s)", once))
