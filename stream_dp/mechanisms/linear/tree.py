"""Correlated noise of a k-ary tree with optimal decoding, as every counter uses it.

Every step lies in one node per level, so the l1 sensitivity of the node totals R x is the height. The release is
decoded from all node totals (`tree_decoding`), in fixed point with FRACTION_BITS binary places, and rounded at the
end. It is A x + f(z), where f(z + R y) = f(z) + A y holds exactly for every integer stream y: a count moves each
estimate as it moves the true value, and corrections are functions of differences between estimates of the same
total, which no count moves, so they may be rounded. Hence the release is private, adaptively: for streams that
differ by y at step i, shift the noises of the nodes that hold i by R y (l1 norm: the height). Answers before i do
not move, so the shift may depend on them; it is a bijection of the noise with density ratio at most e^(norm /
scale). Nodes may cover steps still to come. Rules: all values are integers; a node's noise is drawn once, and
forgotten when its parent's window moves on. This file knows no counts and no budget: scales come from outside,
values leave as integers.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.tree_decoding import (
    GAIN_BITS,
    UNIT,
    children_gain,
    path_gains,
    weights,
    window_gains,
)
from stream_dp.mechanisms.linear.tree_shape import TreeShape
from stream_dp.mechanisms.noise_quantiles import Term

FRACTION_BITS = 14
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
        scale, most = self.scale, 1 << (62 - FRACTION_BITS)
        if scale.numerator * LIKELY * nodes >= most * scale.denominator:
            raise NotDerivable(
                f"noise of scale {float(self.scale):.3g} in each node is too wide for 64 bits; give more epsilon"
            )

    def init(self, noise: Noise) -> TreeState:
        """Return the first state: prefix 0, with the windows of all levels drawn."""
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

    def value(self, state: TreeState) -> IntArray:
        """Return the noise at the current prefix as integers, shape (width,)."""
        return rounded(self.fine(state))

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
            gain = children_gain(self.shape, level)
            children = left[level - 1] + own + _part(gain, children - own)
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
            prefix = prefix + left[level - 1] - _part(to_prefix, surplus)
            total = own + _part(to_total, surplus)
        surplus = total - (windows[0].sum(axis=0) << FRACTION_BITS)
        at_first, each = window_gains(self.shape, step // self.shape.arity)
        slope = _part(each, surplus)
        return TreeState(step, windows, left, prefix - _part(at_first, surplus), slope)

    def _draw(self, levels: int, noise: Noise) -> tuple[IntArray, ...]:
        """Draw new windows of `levels` levels, from the lowest level, the nodes of a level from left to right."""
        sizes = [self.shape.arity] * levels
        if levels == self.shape.height:
            sizes[-1] = 1
        drawn = noise.laplace(self.scale, sum(sizes) * self.width).reshape(-1, self.width)
        ends = list(accumulate(sizes))
        return tuple(drawn[at:end] for at, end in pairwise([0, *ends]))


def rounded(fine: IntArray) -> IntArray:
    """Return the nearest integers to values in units of 2^-FRACTION_BITS, halves up."""
    return (fine + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS


def _part(gain: int, difference: IntArray) -> IntArray:
    """Return gain times difference, rounded; computed in two parts because the product may exceed 64 bits.

    No count moves the difference, so rounding is allowed.
    """
    low = (difference & (UNIT - 1)) * gain
    return (difference >> GAIN_BITS) * gain + ((low + UNIT // 2) >> GAIN_BITS)
