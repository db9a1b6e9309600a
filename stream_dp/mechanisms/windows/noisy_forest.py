"""The forest behind sliding windows: all windows are answered at every tick, at one price.

A node of the forest covers some ticks. When its last tick is complete, its exact sums receive noise once and are
forgotten. Answers are computed from these noisy sums alone, so they cost nothing more: a window is the sum of its
noisy ticks, corrected by the counts of higher nodes (`forest_decoding`). All of it is in fixed point. The
correction is a function of surpluses, where a surplus is a node's noisy sum less the noisy sum of its ticks; no row
moves a surplus, so the correction may be rounded. A row lies in one node of each level, so the shares of the levels
add up. The forest runs without end; its state holds the longest window. `window_forest` and `gaussian_forest` state
the noise. This file knows no privacy parameter, no ticks' times and no names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.serving import Additive
from stream_dp.mechanisms.windows.forest_decoding import (
    GAIN_BITS,
    UNIT,
    Edge,
    ForestDecoding,
    Whole,
)
from stream_dp.mechanisms.windows.forest_shape import ForestShape
from stream_dp.mechanisms.windows.row_ring import Ring, pushed, row_back

TEST = "tests/unit/mechanisms/test_forest_exact.py"
ONCE = (
    "a node is given noise once, when its last tick has come, and an event lies in one of a level"
)
FRACTION_BITS = 14
MARGIN = 4  # bound on a window's parts and their corrections, as a multiple of the sum itself
MOST_HELD = 400_000  # numbers: a snapshot of them takes 3 MB


@wire("window-forest-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WindowForestState:
    """State after `updates` ticks (public). `open`: exact counts of the open nodes, shape (levels - 1, width),
    private.

    `sums[l]` is a ring of rows of shape (width,) with running totals: level 0 adds up the noisy ticks, higher
    levels add up the corrections of complete nodes. The total between two places is the difference of two rows.
    `surpluses[l - 1]` has the surpluses of the complete nodes of level l. Values of the higher levels are in units
    of 2^-FRACTION_BITS.
    """

    updates: int
    open: IntArray
    sums: tuple[Ring, ...]
    surpluses: tuple[Ring, ...]


class NoisyForest(Additive):
    """Answers of shape (windows * width,): the sums over each of `windows` (in ticks), one window after the other.

    This base class has no dataclass fields; mechanisms declare theirs. A window longer than the stream so far
    counts what there is. A subclass states the law of the noise: `node_variances`, `_drawable`, `_reach`, `noise`,
    and `_drawn`, which alone draws noise.
    """

    width: int
    windows: tuple[int, ...]
    shape: ForestShape
    ever: ClassVar[None] = None

    @property
    def forest(self) -> Self:
        """The part that counts over windows: this mechanism itself."""
        return self

    @property
    def node_variances(self) -> tuple[Fraction, ...]:
        """The variance of one node's noise, by level, up to lattice effects."""
        raise NotImplementedError

    @property
    def _drawable(self) -> bool:
        """Whether the noise of every node can be drawn."""
        raise NotImplementedError

    def _reach(self, level: int, number: int) -> float:
        """Return a bound that the noises of `number` nodes of `level` in sum exceed with probability < e^-LIKELY."""
        raise NotImplementedError

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        """Draw the noise of one node of `level`, shape (width,)."""
        raise NotImplementedError

    @cached_property
    def decoding(self) -> ForestDecoding:
        """The estimator of windows from nodes."""
        return ForestDecoding(self.shape.arities, self.node_variances)

    def _require_room(self) -> None:
        """Raise NotDerivable where a state cannot hold the windows or 64 bits cannot hold their noise."""
        if not self.windows or min(self.windows) < 1:
            raise NotDerivable("windows have 1 or more ticks")
        longest = max(self.windows)
        if longest < self.shape.spans[-1]:
            raise NotDerivable("the nodes of a forest are no longer than its longest window")
        if (held := longest * self.width) > MOST_HELD:
            raise NotDerivable(
                f"a window of {longest:,} ticks of {self.width:,} counts would hold {held:,} numbers, more "
                f"than {MOST_HELD:,}: ask a shorter window, fewer keys, or a longer step of the clock"
            )
        widest = sum(
            self._reach(level, longest // span + 1) for level, span in enumerate(self.shape.spans)
        )
        bits = 62 if self.shape.height == 1 else 62 - FRACTION_BITS
        if MARGIN * widest >= 1 << bits or not self._drawable:
            raise NotDerivable(
                "noise in these windows is too wide for 64 bits; give more epsilon, or of a sum a wider step"
            )

    def checked_row(self, row: IntArray) -> IntArray:
        """Return `row` if it is a row for this mechanism, else raise RejectedMessage."""
        raise NotImplementedError

    def public(self, updates: int, state: WindowForestState | None) -> int:
        """Return the number of updates, reduced to a number of updates with the same noise: the law is periodic."""
        return self._repeating(updates, max(self.windows))

    def band(self, public: int, confidence: float) -> int:
        """Return the largest half-width over all windows."""
        views = ((place, self._repeating(public, each)) for place, each in enumerate(self.windows))
        return max(self.view_band(place, now, confidence) for place, now in views)

    def view_public(self, place: int, updates: int, state: WindowForestState | None) -> int:
        """Return the number of updates, reduced as by `public`, for the window at index `place`."""
        return self._repeating(updates, self.windows[place])

    def view_variance(self, place: int, public: int) -> float:
        """Return the variance of a value of the window at index `place`, before rounding."""
        found, nodes = self.decoding.weights(public, self.windows[place]), self.node_variances
        return sum(n * float(nodes[level]) * weight**2 for n, level, weight in found)

    def _repeating(self, updates: int, window: int) -> int:
        """Return `updates` up to the window's length; later the noise repeats with the span of the highest nodes."""
        turn = self.shape.spans[-1]
        return updates if updates <= window else window + (updates - window - 1) % turn + 1

    def init(self, noise: Noise) -> WindowForestState:
        """Return the first state: nothing counted, no noise drawn."""
        zeros, higher = np.zeros(self.width, dtype=np.int64), self.shape.height - 1
        begun = pushed((), zeros, 1)
        none: Sequence[Ring] = [()] * higher
        return WindowForestState(
            0, np.zeros((higher, self.width), dtype=np.int64), (begun,) * (higher + 1), tuple(none)
        )

    def step(
        self, state: WindowForestState, message: Message, noise: Noise
    ) -> tuple[WindowForestState, IntArray | None]:
        """Add a row and add noise to the nodes that it completes, or answer all windows.

        Raises:
            RejectedMessage: a bad row.
        """
        if isinstance(message, Query):
            return state, np.concatenate([self._window(state, each) for each in self.windows])
        return self._taken(state, self.checked_row(message.row), noise), None

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        """Return the state after one more tick."""
        updates = state.updates + 1
        ticks = row_back(state.sums[0], 0) + row + self._drawn(0, noise)
        sums = [pushed(state.sums[0], ticks, max(self.windows) + 1), *state.sums[1:]]
        surpluses, counted = list(state.surpluses), state.open + row
        for level in range(1, self.shape.height):
            span = self.shape.spans[level]
            if updates % span:
                break
            noisy = counted[level - 1] + self._drawn(level, noise)
            known = self._children(sums, level)
            of_ticks = ticks - row_back(sums[0], span)
            surplus = ((noisy - of_ticks) << FRACTION_BITS) - known
            correction = known + _part(self.decoding.own_gains[level], surplus)
            keep = max(self.windows) // span + 3
            sums[level] = pushed(sums[level], row_back(sums[level], 0) + correction, keep)
            surpluses[level - 1] = pushed(surpluses[level - 1], surplus, keep)
            counted[level - 1] = 0
        return WindowForestState(updates, counted, tuple(sums), tuple(surpluses))

    def _children(self, sums: Sequence[Ring], level: int) -> IntArray:
        """Return the sum of the corrections of the children of the node of `level` that is complete now."""
        if level == 1:
            return np.zeros(self.width, dtype=np.int64)
        ring = sums[level - 1]
        return row_back(ring, 0) - row_back(ring, self.shape.arities[level - 1])

    def _window(self, state: WindowForestState, window: int) -> IntArray:
        """Return the counts of the last `window` ticks, or of all ticks where there are fewer."""
        updates, ring = state.updates, state.sums[0]
        found = row_back(ring, 0) - row_back(ring, min(window, updates))
        if self.shape.height == 1:
            return found
        whole, edge = self.decoding.cover(updates, window)
        fine = self._corrections(state, whole)
        if edge is not None:
            fine += self._corrections(state, self.decoding.behind(edge))
            fine += self._corrected(state, edge)
        return found + ((fine + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS)

    def _corrections(self, state: WindowForestState, parts: Sequence[Whole]) -> IntArray:
        """Return the sum of the corrections of these complete nodes."""
        fine = np.zeros(self.width, dtype=np.int64)
        for level, first, past in parts:
            if level and past > first:
                ring, last = state.sums[level], state.updates // self.shape.spans[level]
                fine += row_back(ring, last - past) - row_back(ring, last - first)
        return fine

    def _corrected(self, state: WindowForestState, edge: Edge) -> IntArray:
        """Return the correction of the ticks behind the edge, from the surpluses of the nodes above it."""
        fine = np.zeros(self.width, dtype=np.int64)
        for level, gain in enumerate(self.decoding.gains(edge), start=1):
            span = self.shape.spans[level]
            back = state.updates // span - 1 - edge.before // span
            fine += _part(gain, row_back(state.surpluses[level - 1], back))
        return fine


def _part(gain: int, surplus: IntArray) -> IntArray:
    """Return gain times surplus, rounded; computed in two parts because the product may exceed 64 bits."""
    low = (surplus & (UNIT - 1)) * gain
    return (surplus >> GAIN_BITS) * gain + ((low + UNIT // 2) >> GAIN_BITS)
