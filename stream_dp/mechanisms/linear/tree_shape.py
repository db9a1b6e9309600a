"""Arity and height of a counter's tree, and the variance of its decoded answers.

A node (level l, index i) covers the steps i k^l .. (i+1) k^l - 1, counted from 0; there is nothing above the
highest level, so a tree takes any number of steps. Variances are those of `tree_decoding` with exact gains, for
node noises of variance 1. Rules: the numbers here choose a shape or describe it; none is added to a count. This
file draws nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray

Variances = NDArray[np.float64]
SAMPLE = 1024  # prefixes that stand for all of a long horizon
GOLDEN = (math.sqrt(5) - 1) / 2
HIGHEST, WIDEST = 12, 40  # heights and arities that are tried


@dataclass(frozen=True)
class TreeShape:
    """Arity k >= 2 and height h >= 1 of a tree; every step lies in h nodes."""

    arity: int
    height: int

    @classmethod
    @lru_cache(maxsize=64)
    def best(cls, horizon: int) -> "TreeShape":
        """Return the shape with the least mean squared error over prefixes 1..horizon, at equal l1 sensitivity."""
        prefixes = sampled(horizon)
        return min(
            _candidates(horizon), key=lambda s: s.height**2 * float(s.variances(prefixes).mean())
        )

    def digit(self, level: int, step: int) -> int:
        """Return which child of its parent the node of `level` with `step` (from 0) is; at the top, its index."""
        index = int(step // self.arity**level)
        return index if level == self.height - 1 else index % self.arity

    @cached_property
    def finished(self) -> tuple[float, ...]:
        """The variance of a finished node's estimate, by level; it equals the weight of the node's own noise.

        The children's sum has the remaining weight.
        """
        variances = [1.0]
        for _ in range(self.height - 1):
            variances.append(self.arity * variances[-1] / (1 + self.arity * variances[-1]))
        return tuple(variances)

    def variances(self, prefixes: IntArray) -> Variances:
        """Return the variances, in units of a node's, of the decoded noise after `prefixes` steps; same shape."""
        steps, k = prefixes - 1, self.arity
        digit: Variances = (steps // k ** (self.height - 1)).astype(np.float64)
        if self.height == 1:
            return np.add(digit, 1)
        prefix, cross, total = digit * self.finished[-1], 0 * digit, np.ones_like(digit)
        for level in range(self.height - 2, 0, -1):
            digit = (steps // k**level % k).astype(np.float64)
            left = digit * self.finished[level]
            surplus, moved = total + left + (k - digit), cross - left
            prefix = prefix + left - moved**2 / surplus
            cross, total = moved / surplus, 1 - 1 / surplus
        here: Variances = (steps % k + 1).astype(np.float64)
        found: Variances = prefix + here - (cross - here) ** 2 / (total + k)
        return found


def sampled(horizon: int) -> IntArray:
    """Return prefixes 1..horizon, or `SAMPLE` of them, spread evenly over the range and over all digits."""
    if horizon <= SAMPLE:
        return np.arange(1, horizon + 1, dtype=np.int64)
    spread = np.arange(SAMPLE, dtype=np.float64) * GOLDEN % 1
    return 1 + (spread * horizon).astype(np.int64)


@lru_cache(maxsize=256)
def worst_prefix(shape: TreeShape, horizon: int) -> int:
    """Return the prefix up to `horizon` with the largest variance, among those that `sampled` returns."""
    prefixes = sampled(horizon)
    return int(prefixes[np.argmax(shape.variances(prefixes))])


def _candidates(horizon: int) -> Iterator[TreeShape]:
    """Yield shapes with 1 to about k / 6 of their highest nodes inside the horizon."""
    yield TreeShape(2, 1)
    for height in range(2, HIGHEST + 1):
        least = max(2, int(horizon ** (1 / height)))
        most = int((6 * horizon) ** (1 / height)) + 1
        if least <= WIDEST:
            yield from (TreeShape(k, height) for k in range(least, min(most, WIDEST) + 1))
