"""Noisy counts of the nodes of a tree over value buckets, over sliding windows, so far, or both.

A row counts events by bucket. An event is counted in one node of every level, and the inner mechanism `counts`,
made for rows with one entry per node, adds the noise. Everything that is released is computed from its answers.
Rules: an event sets at most one node of each level. This file knows no quantiles and no times.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.counter import Counter, CounterState, HybridCounter, HybridState
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.quantiles.value_levels import ValueLevels
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import Additive
from stream_dp.mechanisms.windows.noisy_forest import WindowForestState
from stream_dp.mechanisms.windows.window_forest import WindowForest
from stream_dp.mechanisms.windows.windows_and_ever import WindowsAndEver, WindowsAndEverState

Over: TypeAlias = WindowForest | WindowsAndEver | Counter | HybridCounter
OverState: TypeAlias = WindowForestState | WindowsAndEverState | CounterState | HybridState


@wire("value-tree-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class ValueTreeState:
    """`updates` (public) and the state of the mechanism that counts the nodes."""

    updates: int
    counts: OverState


@wire("value-tree", 1)
@dataclass(frozen=True)
class ValueTree(Additive):
    """Answers of shape (views * nodes,): the noisy counts of all nodes of `levels`, one view of `counts` after
    another.

    The first entries of a row are the buckets; the last `unranked` ones hold events without a value.

    Privacy claim: the claim of `counts`, which must be made for events that set one entry in each level.

    Raises:
        NotDerivable: `counts` is made for other rows, or for events that set fewer entries.
    """

    levels: ValueLevels
    counts: Over
    unranked: int = 0

    def __post_init__(self) -> None:
        if self.counts.width != self.levels.nodes or self.counts.ones < self.levels.height:
            raise NotDerivable(
                f"an event is counted in {self.levels.height} of {self.levels.nodes} nodes: their counts are made for "
                f"{self.counts.ones} of {self.counts.width}"
            )

    @property
    def width(self) -> int:
        """Number of entries of a row."""
        return self.levels.leaves + self.unranked

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of `counts`."""
        return self.guarantee.measure.epsilon  # type: ignore[union-attr]  # all of them are pure

    @property
    def neighbors(self) -> Neighbors:
        """The neighbour relation that the guarantee holds for."""
        return self.counts.neighbors

    @property
    def rows(self) -> RowLaw:
        """The law of what one event changes in a row."""
        return RowLaw(self.width, self.neighbors)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of `counts`."""
        return self.counts.guarantee

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: that of `counts`, on rows in which an event sets one entry per level.

        Raises:
            NotDerivable: the noise of the counts is too small.
        """
        return derive((self.counts.derivation(),), Fixed("counts of the nodes over the values"))

    @property
    def views(self) -> int:
        """Number of views in an answer: the windows and, if present, the count so far."""
        return self._windows + (self.counts.ever is not None)

    @property
    def _windows(self) -> int:
        """Number of windows, without the count so far."""
        forest = self.counts.forest
        return 0 if forest is None else len(forest.windows)

    def public(self, updates: int, state: ValueTreeState) -> Hashable:
        """Return the number of updates: noise depends on nothing else."""
        return updates

    def band(self, public: int, confidence: float) -> int:
        """Return the largest half-width of a node's count over all views."""
        views = ((view, self.view_public(view, public)) for view in range(self.views))
        return max(self.view_band(view, known, confidence) for view, known in views)

    def view_public(self, place: int, updates: int, state: Any = None) -> int:
        """Return the number of updates, as far as the noise of the view at index `place` depends on it."""
        forest = self.counts.forest
        if forest is None or self.view_ever(place):
            return updates
        return forest.view_public(place, updates, None)

    def view_ever(self, place: int) -> bool:
        """Whether the view at index `place` shows counts so far."""
        return place >= self._windows

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in a node's count of the view at index `view`."""
        return self.counts.noise(public, view)

    def init(self, noise: Noise) -> ValueTreeState:
        """Return the first state: nothing counted."""
        return ValueTreeState(0, self.counts.init(noise))

    def step(
        self, state: ValueTreeState, message: Message, noise: Noise
    ) -> tuple[ValueTreeState, IntArray | None]:
        """Add a row to the counts of the nodes, or answer their noisy counts.

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon of the counts.
        """
        counts: Any = self.counts
        if isinstance(message, Query):
            return state, counts.step(state.counts, message, noise)[1]
        buckets = checked(message.row, self.width)[: self.levels.leaves]
        nodes = np.minimum(self.levels.counted(buckets.astype(object)), 1 << 62).astype(np.int64)
        after, _ = counts.step(state.counts, Update(nodes), noise)
        return ValueTreeState(state.updates + 1, after), None
