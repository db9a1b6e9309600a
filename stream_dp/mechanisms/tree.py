"""Correlated noise of a k-ary tree with optimal decoding: the noise inside every counter.

Every step lies in one node per level, so the l1 sensitivity of the node totals R x is the height. What is released is
decoded from all of them (`tree_decoding`), in fixed point with FRACTION_BITS binary places and rounded at the end:
A x + f(z), where f(z + R y) = f(z) + A y for every integer stream y, exactly. For each estimate is moved by a count as
the true value is, and corrections are made of differences of estimates of one thing, which no count moves: they may be
rounded. So it is private, adaptively: for streams that differ by y at step i, shift the noises of the nodes that hold i
by R y (l1 norm: the height). Answers before i do not move, so the shift may depend on them; it is a bijection of the
noise with density ratio at most e^(norm / scale). Nodes may cover steps still to come. Rules: values are integers all
the way; a node's noise is drawn once and forgotten when its parent's window moves on. This file knows no counts and no
budget: scales come from outside, values leave as integers.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.tree_decoding import (
    GAIN_BITS,
    UNIT,
    children_gain,
    last_gain,
    path_gains,
    weights,
)
from stream_dp.mechanisms.tree_shape import TreeShape

FRACTION_BITS = 14
LIKELY = 128  # scales: one noise is larger with a probability below e^-127


@wire("tree-state", 2)
@dataclass(frozen=True, slots=True, repr=False)
class TreeState:
    """After `prefix` steps; the path is the nodes that hold the last one (before it: the first).

    `windows[l]` of shape (k, width) holds the noises of the path's node of level l and of its siblings; at the top its
    own alone. `left[l]`, shape (width,), sums up the estimates of finished siblings left of it, at level 0 with its
    own. `base` and `surplus` are what the levels above have to say: the prefix up to the window of level 0, and the
    estimate of that window's total less its noises. All but `windows` in units of 2^-FRACTION_BITS.
    """

    prefix: int
    windows: tuple[IntArray, ...]
    left: tuple[IntArray, ...]
    base: IntArray
    surplus: IntArray


@wire("tree-noise", 2)
@dataclass(frozen=True, slots=True)
class TreeNoise:
    """Noise process of `width` independent trees; node noise is DLap(`scale`).

    Raises:
        NotDerivable: the noise is so wide that its sums might not fit into 64 bits.
    """

    shape: TreeShape
    scale: Fraction
    width: int

    def __post_init__(self) -> None:
        """Check that sums of noises stay below 2^62, in fixed point."""
        nodes = 2 * self.shape.arity * self.shape.height
        if self.scale * LIKELY * nodes >= 1 << (62 - FRACTION_BITS):
            raise NotDerivable(
                f"noise of scale {float(self.scale):.3g} in each node is too wide for 64 bits; give more epsilon"
            )

    def init(self, noise: Noise) -> TreeState:
        """Return the first state: prefix 0, with the windows of all levels drawn."""
        zero = np.zeros(self.width, dtype=np.int64)
        drawn = self._draw(self.shape.height, noise)
        return self._looked_up(TreeState(0, drawn, (zero,) * self.shape.height, zero, zero))

    def advance(self, state: TreeState, noise: Noise) -> TreeState:
        """One step on; draws the windows of the levels whose parent changes (O(1) amortised)."""
        step = state.prefix
        changed = self._changed_levels(step)
        if changed:
            state = self._moved_on(state, changed, noise)
        windows, left = state.windows, state.left
        own = windows[0][step % len(windows[0])] << FRACTION_BITS
        return TreeState(step + 1, windows, (left[0] + own, *left[1:]), state.base, state.surplus)

    def fine(self, state: TreeState) -> IntArray:
        """The noise at the current prefix, shape (width,), in units of 2^-FRACTION_BITS."""
        if state.prefix == 0:
            return np.zeros(self.width, dtype=np.int64)
        gain = last_gain(self.shape, state.prefix - 1)
        return state.base + state.left[0] - _part(gain, state.surplus)

    def value(self, state: TreeState) -> IntArray:
        """The noise at the current prefix as integers, shape (width,)."""
        return rounded(self.fine(state))

    def terms(self, prefix: int) -> list[Term]:
        """The independent noises in the value after `prefix` steps, before it is rounded."""
        return [Term(self.scale, number, weight) for number, weight in weights(self.shape, prefix)]

    def _changed_levels(self, step: int) -> int:
        """How many levels, from the lowest, get a new window when `step` (from 0) comes: the top with each new node."""
        levels = 0
        while step and levels < self.shape.height - 1 and step % self.shape.arity == 0:
            step, levels = step // self.shape.arity, levels + 1
        return levels + (step > 0 and levels == self.shape.height - 1)

    def _moved_on(self, state: TreeState, changed: int, noise: Noise) -> TreeState:
        """The state with the path at the next step: finished windows become estimates one level up, new ones come."""
        left, shape = list(state.left), self.shape
        for level, upper in pairwise(range(min(changed, shape.height - 1) + 1)):
            window = state.windows[upper]
            own = window[shape.digit(upper, state.prefix - 1) % len(window)] << FRACTION_BITS
            left[upper] = left[upper] + own + _part(children_gain(shape, upper), left[level] - own)
            left[level] = np.zeros(self.width, dtype=np.int64)
        windows = self._draw(changed, noise) + state.windows[changed:]
        return self._looked_up(
            TreeState(state.prefix, windows, tuple(left), state.base, state.surplus)
        )

    def _looked_up(self, state: TreeState) -> TreeState:
        """The state with `base` and `surplus` for the path of the next step."""
        shape, step = self.shape, state.prefix
        if shape.height == 1:
            return state
        prefix, total = state.left[-1], state.windows[-1][0] << FRACTION_BITS
        for level in range(shape.height - 2, 0, -1):
            window, place = state.windows[level], shape.digit(level, step)
            own, left = window[place] << FRACTION_BITS, state.left[level]
            rest = window[place + 1 :].sum(axis=0) << FRACTION_BITS
            surplus = total - left - own - rest
            to_prefix, to_total = path_gains(shape, level, step // shape.arity**level)
            prefix = prefix + left - _part(to_prefix, surplus)
            total = own + _part(to_total, surplus)
        surplus = total - (state.windows[0].sum(axis=0) << FRACTION_BITS)
        return TreeState(step, state.windows, state.left, prefix, surplus)

    def _draw(self, levels: int, noise: Noise) -> tuple[IntArray, ...]:
        """Fresh windows, from the lowest level, nodes of a level from left to right."""
        sizes = [self.shape.arity] * levels
        if levels == self.shape.height:
            sizes[-1] = 1
        drawn = noise.laplace(self.scale, sum(sizes) * self.width).reshape(-1, self.width)
        return tuple(np.split(drawn, np.cumsum(sizes)[:-1]))


def rounded(fine: IntArray) -> IntArray:
    """The nearest integers to values in units of 2^-FRACTION_BITS, halves up."""
    return (fine + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS


def _part(gain: int, difference: IntArray) -> IntArray:
    """Gain times difference, rounded: a function of what no count moves. In two parts, for the product may be wide."""
    low = (difference & (UNIT - 1)) * gain
    return (difference >> GAIN_BITS) * gain + ((low + UNIT // 2) >> GAIN_BITS)
