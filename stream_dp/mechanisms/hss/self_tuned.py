"""Public thresholds that need no guess of the volume: how much growth is worth an update of the counter.

An update adds the noise of one more node to a counter and removes the error of the growth not yet released. After j
updates the noise is about sqrt(j) nodes, so growth of about that size is worth the next update. The threshold
follows the number of closed intervals, which is public, and so adapts to the volume of the data. The noise of a
Gaussian counter grows with the logarithm of j, so each update costs a part of a node, and the same growth is worth
every update: its thresholds are steady. A term for the query noise keeps false crossings rare: about one for each
interval that has closed, over the whole horizon. Rules: nothing here looks at a count, released or not; a threshold
is an integer, rounded up. This file knows no mechanism.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

NODES = Fraction(
    7, 20
)  # tuned by simulation: growth of 0.35 times the noise's standard deviation of j + 1 nodes
LEAST = Fraction(3, 4)  # of the scale of the query noise: smaller growth is not detected
SHORTEST = 1 << 10  # queries: the horizon that is assumed at first where none is declared


@dataclass(frozen=True, slots=True)
class SelfTuned:
    """Thresholds for a counter with node scale `node`, behind sparse vectors with noise scale `watch`.

    `spread` is the inverse of the mean squared growth over all columns while one column grows by 1; it is 1 for
    columns with their own thresholds. `steady`: the counter is Gaussian.
    """

    node: Fraction
    watch: Fraction
    horizon: int | None
    spread: int = 1
    steady: bool = False

    def growth(self, intervals: int) -> int:
        """Return the growth that is worth another update after `intervals` updates; exact, rounded up.

        Example:
            >>> [SelfTuned(Fraction(4), Fraction(4), 100).growth(j) for j in (0, 9, 99)]
            [3, 5, 14]
        """
        nodes = 1 if self.steady else intervals + 1
        square = (NODES * self.node) ** 2 * self.spread * nodes
        return max(ceil_root(square), math.ceil(LEAST * self.watch))

    def gamma(self, query: int, intervals: int) -> int:
        """Return the threshold at the query-th query after `intervals` closed intervals, never negative.

        It depends on `query` only where the horizon is not known: the horizon is then the least power of two above
        `query`.
        """
        horizon = self.horizon or max(SHORTEST, 1 << query.bit_length())
        rare = max(0.0, math.log(horizon / (intervals + 1)))
        return max(0, self.growth(intervals) + math.ceil(float(self.watch) * (rare - 1)))


def ceil_root(square: Fraction) -> int:
    """Return the least integer whose square is at least `square` >= 0; exact."""
    least = -(-square.numerator // square.denominator)
    root = math.isqrt(least)
    return root if root * root == least else root + 1
