"""Public thresholds that need no guess of the volume: how much growth is worth an update of the counter.

An update adds the noise of one more node to a counter and takes away what went by unseen. After j updates the noise is
about sqrt(j) nodes, so growth of about that size is worth the next one: the threshold follows the number of closed
intervals, which is public, and so learns the volume from the releases as they come. The noise of a Gaussian counter
grows with the logarithm of j, so that each update costs a part of a node, and the same growth is worth any of them:
its thresholds are steady. What is added for the query noise
keeps false crossings rare: about one for each interval that has closed, over the whole horizon. Rules: nothing
here looks at a count, released or not; a threshold is an integer, rounded up. This file knows no mechanism.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

NODES = Fraction(
    7, 20
)  # tuned by simulation: growth of 0.35 times the noise's standard deviation of j + 1 nodes
LEAST = Fraction(3, 4)  # of the scale of the query noise: less growth is not seen anyway
SHORTEST = 1 << 10  # queries: the horizon where none is known yet


@dataclass(frozen=True, slots=True)
class SelfTuned:
    """Thresholds for a counter whose nodes have scale `node`, behind sparse vectors whose noises have scale `watch`.

    `spread`: the mean squared growth of all columns, where one of them grows by one, is 1 / `spread`: 1 for columns
    that have thresholds of their own. `steady`: the counter is Gaussian.
    """

    node: Fraction
    watch: Fraction
    horizon: int | None
    spread: int = 1
    steady: bool = False

    def growth(self, intervals: int) -> int:
        """The growth that is worth another update after `intervals` of them; exact, rounded up.

        Example:
            >>> [SelfTuned(Fraction(4), Fraction(4), 100).growth(j) for j in (0, 9, 99)]
            [3, 5, 14]
        """
        nodes = 1 if self.steady else intervals + 1
        square = (NODES * self.node) ** 2 * self.spread * nodes
        return max(ceil_root(square), math.ceil(LEAST * self.watch))

    def gamma(self, query: int, intervals: int) -> int:
        """The threshold at the query-th query after `intervals` closed intervals, never negative.

        It depends on `query` only where the horizon is not known: then it is the least power of two beyond.
        """
        horizon = self.horizon or max(SHORTEST, 1 << query.bit_length())
        rare = max(0.0, math.log(horizon / (intervals + 1)))
        return max(0, self.growth(intervals) + math.ceil(float(self.watch) * (rare - 1)))


def ceil_root(square: Fraction) -> int:
    """The least integer whose square is at least `square` >= 0; exact."""
    least = -(-square.numerator // square.denominator)
    root = math.isqrt(least)
    return root if root * root == least else root + 1
