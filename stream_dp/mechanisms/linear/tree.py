"""Correlated noise of a k-ary tree with optimal decoding, as every counter uses it.

Every step lies in one node per level, so the l1 sensitivity of the node totals R x is the height. The release is
decoded from all node totals (`weights`), in fixed point with FRACTION_BITS binary places, and rounded at the end. It
is A x + f(z), where f(z + R y) = f(z) + A y holds exactly for every integer stream y: a count moves each estimate as
it moves the true value, and corrections are functions of differences between estimates of the same total, which no
count moves, so they may be rounded.

Hence the release is private, adaptively. For streams that differ by y at step i, shift the noises of the nodes that
hold i by R y (l1 norm: the height). Answers before i do not move, so the shift may depend on them; it is a bijection of
the noise with density ratio at most e^(norm / scale). Nodes may cover steps still to come. Rules: all values are
integers; a node's noise is drawn once, and forgotten when its parent's window moves on. This file knows no counts and
no budget: scales come from outside, values leave as integers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray, Noise
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.noise_quantiles import Term

Variances = NDArray[np.float64]
SAMPLE = 1024  # prefixes that stand for all of a long horizon
GOLDEN = (math.sqrt(5) - 1) / 2
HIGHEST, WIDEST = 12, 40  # heights and arities that are tried
GAIN_BITS = 16  # a gain is an integer over 2^GAIN_BITS
UNIT = 1 << GAIN_BITS
FRACTION_BITS = 14


def rounded(fine: IntArray) -> IntArray:
    """Return the nearest integers to values in units of 2^-FRACTION_BITS, halves up."""
    return (fine + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS


def part(gain: int | IntArray, difference: IntArray) -> IntArray:
    """Return gain times difference, rounded; computed in two parts because the product may exceed 64 bits.

    Where no count moves the difference, rounding is allowed.
    """
    low = (difference & (UNIT - 1)) * gain
    return (difference >> GAIN_BITS) * gain + ((low + UNIT // 2) >> GAIN_BITS)


@dataclass(frozen=True)
class TreeShape:
    """Arity k >= 2 and height h >= 1 of a tree; every step lies in h nodes.

    Node i of level l covers the steps i k^l .. (i+1) k^l - 1, from 0; nothing is above the highest level, so a tree
    takes any number of steps. Variances are those of the decoding with exact gains, for node noises of variance 1.
    """

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

    @cached_property
    def children_gains(self) -> tuple[int, ...]:
        """By level: the gain of the children's sum in a finished node's estimate, against the node's own noise."""
        return tuple(round((1 - own) * UNIT) for own in self.finished)

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
        variances: Variances = prefix + here - (cross - here) ** 2 / (total + k)
        return variances


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


KEPT = 1 << 11  # cached gains of nodes: enough for the paths of many trees at their last steps


@lru_cache(maxsize=KEPT)
def path_gains(shape: TreeShape, level: int, index: int) -> tuple[int, int]:
    """Return the gains of the parent's surplus for (prefix, total) at node `index` of an inner level."""
    surplus, moved = _surplus(shape, level, index)
    return round(moved / surplus * UNIT), round(UNIT / surplus)


@lru_cache(maxsize=KEPT)
def window_gains(shape: TreeShape, parent: int) -> tuple[int, int]:
    """Return the gains of the surplus of node `parent` of level 1, for its window of steps.

    The prefix before the window loses the first gain; each step in the window adds the second.
    """
    cross, total = _known(shape, 1, parent)
    return round(cross / (total + shape.arity) * UNIT), round(UNIT / (total + shape.arity))


@lru_cache(maxsize=16)  # a tick's band and quotients use the same
def weights(shape: TreeShape, prefix: int) -> tuple[tuple[int, float], ...]:
    """Return (number, |weight|) of the independent node noises in the answer after `prefix` steps: the row of L.

    All node totals R x are measured once, each with its node's noise z; the answer is A x + L z with L R = A, for A x
    the prefix sums. Least squares, in one pass along a tree: a finished node is estimated from its own noise and its
    children (`TreeShape.finished`). Then, from the top down, the surplus of a node's total over its children's corrects
    the estimates of (prefix up to the path's node, total of that node). Both corrections are multiples of differences
    that no count moves, so any gain keeps L R = A; exact gains give the least variance.
    """
    if prefix == 0 or shape.height == 1:
        return ((prefix, 1.0),)
    index, place = divmod(prefix - 1, shape.arity)
    at_first, each = window_gains(shape, index)
    passed = (at_first - each * (place + 1)) / UNIT
    parts = [(place + 1, 1 + passed), (shape.arity - place - 1, passed)]
    carried = -passed
    for level in range(1, shape.height - 1):
        upper, place = divmod(index, shape.arity)
        to_prefix, to_total = (gain / UNIT for gain in path_gains(shape, level, index))
        passed = carried * to_total - to_prefix
        parts += [(1, carried - passed), (shape.arity - place - 1, -passed)]
        parts += _below(shape, level, place, 1 - passed)
        index, carried = upper, passed
    parts += [(1, carried), *_below(shape, shape.height - 1, index, 1.0)]
    return tuple((number, abs(weight)) for number, weight in parts if number and weight)


def _below(shape: TreeShape, level: int, number: int, weight: float) -> list[tuple[int, float]]:
    """Return (number, weight) of the noises in the estimates of `number` finished nodes of a level."""
    parts = []
    for lower in range(level, 0, -1):
        to_children = shape.children_gains[lower] / UNIT
        parts.append((number, weight * (1 - to_children)))
        number, weight = number * shape.arity, weight * to_children
    return [*parts, (number, weight)]


@lru_cache(maxsize=KEPT)
def _known(shape: TreeShape, level: int, index: int) -> tuple[float, float]:
    """Return the covariance of prefix and total, and the variance of the total, at node `index`.

    Both are for estimates from the node's level and the levels above.
    """
    if level == shape.height - 1:
        return 0.0, 1.0
    surplus, moved = _surplus(shape, level, index)
    return moved / surplus, 1 - 1 / surplus


def _surplus(shape: TreeShape, level: int, index: int) -> tuple[float, float]:
    """Return the variance of the parent's surplus, and its covariance with the prefix up to node `index`."""
    parent, place = divmod(index, shape.arity)
    cross, total = _known(shape, level + 1, parent)
    left = place * shape.finished[level]
    return total + left + (shape.arity - place), cross - left


LIKELY = 128  # scales: a noise is larger with a probability below e^-127


@wire("tree-state", 2)
@dataclass(frozen=True, slots=True, repr=False)
class TreeState:
    """State after `prefix` steps. The path is the nodes that hold the last step (before any step: the first step).

    `windows[l]`, shape (k, width), holds the noises of the path's node of level l and its siblings; at the top only
    the path's node. `left[l - 1]`, shape (width,), for l >= 1, is the sum of the estimates of the finished siblings
    left of the path's node. `here` is the noise of the prefix. `slope` is what each step inside the lowest window
    adds to `here` besides its own node's noise. All but `windows` are in units of 2^-FRACTION_BITS.
    """

    prefix: int
    windows: tuple[IntArray, ...]
    left: tuple[IntArray, ...]
    here: IntArray
    slope: IntArray


@wire("tree-noise", 2)
@dataclass(frozen=True, slots=True)
class TreeNoise:
    """Noise process of `width` independent trees; node noise is DLap(`scale`)."""

    shape: TreeShape
    scale: Fraction
    width: int

    def __post_init__(self) -> None:
        nodes = 2 * self.shape.arity * self.shape.height
        scale, most = self.scale, 1 << (62 - FRACTION_BITS)
        if scale.numerator * LIKELY * nodes >= most * scale.denominator:
            raise NotDerivable(
                f"noise of scale {float(self.scale):.3g} in each node is too wide for 64 bits; give more epsilon"
            )

    def init(self, noise: Noise) -> TreeState:
        zero, higher = np.zeros(self.width, dtype=np.int64), self.shape.height - 1
        return self._begun(0, self._draw(higher + 1, noise), (zero,) * higher, zero)

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        """Return the state after one more step; draws the windows of levels whose parent changes (amortised O(1))."""
        step = state.prefix
        changed = self._changed_levels(step)
        if changed:
            state = self._moved_on(state, changed, noise)
        window = state.windows[0]
        own = window[step % len(window)] << FRACTION_BITS
        here = state.here + own + state.slope
        return TreeState(step + 1, state.windows, state.left, here, state.slope)

    def fine(self, state: TreeState) -> IntArray:
        """Return the noise at the current prefix, shape (width,), in units of 2^-FRACTION_BITS."""
        return state.here if state.prefix else np.zeros(self.width, dtype=np.int64)

    def terms(self, prefix: int) -> list[Term]:
        """Return the independent noises in the value after `prefix` steps, before rounding."""
        return [Term(self.scale, number, weight) for number, weight in weights(self.shape, prefix)]

    def _changed_levels(self, step: int) -> int:
        """Return how many levels, from the lowest, get a new window at `step` (from 0); the top with each new node."""
        levels = 0
        while step and levels < self.shape.height - 1 and step % self.shape.arity == 0:
            step, levels = step // self.shape.arity, levels + 1
        return levels + (step > 0 and levels == self.shape.height - 1)

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        """Return the state with the path at the next step.

        Finished windows become estimates one level up, and new windows are drawn.
        """
        left, windows = list(state.left), self._draw(changed, noise) + state.windows[changed:]
        children = state.windows[0].sum(axis=0) << FRACTION_BITS
        for level in range(1, min(changed, self.shape.height - 1) + 1):
            window = state.windows[level]
            own = window[self.shape.digit(level, state.prefix - 1) % len(window)] << FRACTION_BITS
            gain = self.shape.children_gains[level]
            children = left[level - 1] + own + part(gain, children - own)
            left[level - 1] = children if level == changed or level == len(left) else children * 0
        return self._begun(state.prefix, windows, tuple(left), state.here)

    def _begun(
        self, step: int, windows: tuple[IntArray, ...], left: tuple[IntArray, ...], here: IntArray
    ) -> TreeState:
        """Return the state before the first step of the lowest window, decoded from the levels above."""
        if not left:
            return TreeState(step, windows, left, here, np.zeros(self.width, dtype=np.int64))
        prefix, total = left[-1], windows[-1][0] << FRACTION_BITS
        for level in range(len(left) - 1, 0, -1):
            window, place = windows[level], self.shape.digit(level, step)
            own = window[place] << FRACTION_BITS
            rest = window[place + 1 :].sum(axis=0) << FRACTION_BITS
            surplus = total - left[level - 1] - own - rest
            to_prefix, to_total = path_gains(self.shape, level, step // self.shape.arity**level)
            prefix = prefix + left[level - 1] - part(to_prefix, surplus)
            total = own + part(to_total, surplus)
        surplus = total - (windows[0].sum(axis=0) << FRACTION_BITS)
        at_first, each = window_gains(self.shape, step // self.shape.arity)
        slope = part(each, surplus)
        return TreeState(step, windows, left, prefix - part(at_first, surplus), slope)

    def _draw(self, levels: int, noise: Noise) -> tuple[IntArray, ...]:
        """Draw new windows of `levels` levels, from the lowest level, the nodes of a level from left to right."""
        sizes = [self.shape.arity] * levels
        if levels == self.shape.height:
            sizes[-1] = 1
        drawn = noise.laplace(self.scale, sum(sizes) * self.width).reshape(-1, self.width)
        return tuple(drawn[at:end] for at, end in pairwise([0, *accumulate(sizes)]))


@lru_cache(maxsize=256)
def best_tree(steps: int, epsilon: Fraction, width: int) -> TreeNoise:
    """Return the tree with the least noise over `steps` steps; one unit of a change costs `epsilon`: height / scale."""
    shape = TreeShape.best(steps)
    return TreeNoise(shape, shape.height / epsilon, width)
