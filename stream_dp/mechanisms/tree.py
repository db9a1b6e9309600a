"""Correlated noise of the odd k-ary tree with subtraction: the noise inside every counter.

A prefix of length t is written in balanced base k, digits d_0, d_1, ... in [-m, m], m = (k-1)/2. Level l adds
the first d_l node noises right of the parent's left end, or subtracts the |d_l| ones left of it (arXiv 2408.07021).
Every step lies in one node per level, so the l1 sensitivity is the height. Nodes may cover steps still to come;
it is adaptively private all the same: for streams that differ at step i, shift the noise of the nodes that contain i
(l1 norm: the height). Answers before i do not move, because those nodes' coefficients add up to 0 there, so the
shift may depend on them, and it is a bijection of the noise with density ratio at most e^(norm / scale).
This file knows no counts and no budget: scales come from outside, values leave as integers.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Arity k (odd, >= 3) and height h; good for prefixes up to `capacity` = (k^h - 1) / 2."""

    arity: int
    height: int

    @property
    def capacity(self) -> int:
        """The longest prefix the tree can write."""
        return (int(self.arity**self.height) - 1) // 2

    @classmethod
    @lru_cache(maxsize=64)
    def best(cls, horizon: int) -> "TreeShape":
        """The shape with the least mean squared error over prefixes 1..horizon."""
        shapes = [cls(_smallest_arity(horizon, height), height) for height in range(1, 25)]
        return min(shapes, key=lambda s: s.height**2 * s.total_terms(horizon))

    def digits(self, prefix: int) -> list[int]:
        """Balanced base-k digits of `prefix`, lowest first, `height` of them."""
        half, digits = self.arity // 2, []
        for _ in range(self.height):
            digit = (prefix + half) % self.arity - half
            digits.append(digit)
            prefix = (prefix - digit) // self.arity
        return digits

    def terms(self, prefix: int) -> int:
        """How many independent node noises the value at `prefix` sums up."""
        return sum(abs(digit) for digit in self.digits(prefix))

    def most_terms(self, horizon: int) -> int:
        """An upper bound on `terms` over prefixes 0..horizon."""
        return min(horizon, self.height * (self.arity // 2))

    def total_terms(self, horizon: int) -> int:
        """Sum of `terms` over prefixes 0..horizon, in O(height)."""
        if horizon <= 0:
            return 0
        half = self.arity // 2
        parent = (horizon + half) // self.arity
        last = horizon - parent * self.arity
        if parent == 0:
            return horizon * (horizon + 1) // 2
        own = half * (half + 1) // 2 + (parent - 1) * half * (half + 1) + _last_block(last, half)
        above = self.arity * self.total_terms(parent - 1) + (last + half + 1) * self.terms(parent)
        return own + above


def _last_block(last: int, half: int) -> int:
    """Sum of |d| for d = -half..last."""
    triangle = half * (half + 1) // 2
    if last >= 0:
        return triangle + last * (last + 1) // 2
    return triangle - (-last - 1) * -last // 2


def _smallest_arity(horizon: int, height: int) -> int:
    arity = max(3, int((2 * horizon + 1) ** (1 / height)) - 3) | 1
    while (arity**height - 1) // 2 < horizon:
        arity += 2
    return arity


@wire("tree-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class TreeState:
    """After `prefix` steps; `windows[l]` of shape (k, width) holds the partial sums for digits -m..m."""

    prefix: int
    windows: tuple[IntArray, ...]


@wire("tree-noise", 1)
@dataclass(frozen=True, slots=True)
class TreeNoise:
    """Noise process of `width` independent trees; node noise is DLap(`scale`)."""

    shape: TreeShape
    scale: Fraction
    width: int

    def init(self, noise: Noise) -> TreeState:
        """Return the first state: prefix 0, with the windows of all levels drawn."""
        return TreeState(0, self._draw(self.shape.height, noise))

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        """One step on; draws the windows of the levels whose parent changes (O(1) amortised).

        Raises:
            ValueError: beyond the shape's capacity.
        """
        prefix = state.prefix + 1
        if prefix > self.shape.capacity:
            raise ValueError("the tree is exhausted")
        changed = self._changed_levels(prefix)
        fresh = self._draw(changed, noise) if changed else ()
        return TreeState(prefix, fresh + state.windows[changed:])

    def value(self, state: TreeState) -> IntArray:
        """The noise at the current prefix, shape (width,)."""
        half = self.shape.arity // 2
        total = np.zeros(self.width, dtype=np.int64)
        for window, digit in zip(state.windows, self.shape.digits(state.prefix), strict=True):
            total += window[digit + half]
        return total

    def _changed_levels(self, prefix: int) -> int:
        """How many levels, from the lowest, get a new parent when `prefix` begins."""
        arity, half, levels = self.shape.arity, self.shape.arity // 2, 0
        while levels < self.shape.height and prefix % arity == half + 1:
            prefix = (prefix + half) // arity
            levels += 1
        return levels

    def _draw(self, levels: int, noise: Noise) -> tuple[IntArray, ...]:
        """Fresh windows; nodes of a level are drawn from left to right, levels from the lowest."""
        nodes, half = self.shape.arity - 1, self.shape.arity // 2
        drawn = noise.laplace(self.scale, levels * nodes * self.width)
        return tuple(_window(z, half) for z in drawn.reshape(levels, nodes, self.width))


def _window(nodes: IntArray, half: int) -> IntArray:
    """Partial sums for digits -half..half from the 2*half node noises around the parent's left end."""
    left, right = nodes[:half], nodes[half:]
    below = -np.cumsum(left[::-1], axis=0)[::-1]
    zero = np.zeros((1, nodes.shape[1]), dtype=np.int64)
    return np.concatenate([below, zero, np.cumsum(right, axis=0)])
