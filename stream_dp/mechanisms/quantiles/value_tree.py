"""Noisy counts of the nodes of a tree over value buckets, over sliding windows, so far, or both.

A row counts events by bucket; each is counted in one node of every level of the tree, and the counts of all nodes are
given noise by a mechanism for rows of so many entries of which one event sets one a level. What is released of the
counts is made of its answers and of nothing else. Rules: an event sets at most one node of each level. This file knows
no quantiles and no times.
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
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.counter import Counter, CounterState
from stream_dp.mechanisms.linear.hybrid_counter import HybridCounter, HybridState
from stream_dp.mechanisms.noise_quantiles import Term, laplace_quantile
from stream_dp.mechanisms.quantiles.value_levels import ValueLevels
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.windows.noisy_forest import WindowForestState
from stream_dp.mechanisms.windows.window_forest import WindowForest
from stream_dp.mechanisms.windows.windows_and_ever import WindowsAndEver, WindowsAndEverState

Over: TypeAlias = WindowForest | WindowsAndEver | Counter | HybridCounter
OverState: TypeAlias = WindowForestState | WindowsAndEverState | CounterState | HybridState


@wire("value-tree-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class ValueTreeState:
    """The number of updates, which is public, and the state of what counts the nodes."""

    updates: int
    counts: OverState


@wire("value-tree", 1)
@dataclass(frozen=True)
class ValueTree:
    """Answers of shape (views * nodes,): the noisy counts of all nodes of `levels`, one view of `counts` after another.

    The first entries of a row are the buckets; the last `unranked` ones hold events without a value.

    Privacy claim: that of `counts`, which is made for rows of which one event sets an entry in each level.

    Raises:
        NotDerivable: `counts` is for other rows, or for events that set fewer entries.
    """

    levels: ValueLevels
    counts: Over
    unranked: int = 0

    def __post_init__(self) -> None:
        """Refuse what counts other rows."""
        if self.counts.width != self.levels.nodes or self.counts.ones < self.levels.height:
            raise NotDerivable(
                f"an event is counted in {self.levels.height} of {self.levels.nodes} nodes: their counts are made for "
                f"{self.counts.ones} of {self.counts.width}"
            )

    @property
    def width(self) -> int:
        """Number of entries of the rows it takes."""
        return self.levels.leaves + self.unranked

    @property
    def epsilon(self) -> Fraction:
        """The epsilon of the counts."""
        return self.guarantee.measure.epsilon  # type: ignore[union-attr]  # all of them are pure

    @property
    def neighbors(self) -> Neighbors:
        """The neighbours of the counts."""
        return self.counts.neighbors

    @property
    def guarantee(self) -> Guarantee:
        """That of the counts."""
        return self.counts.guarantee

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: that of the counts, on rows that an event sets one entry of in each level.

        Raises:
            NotDerivable: the noise of the counts is too small.
        """
        return derive((self.counts.derivation(),), Fixed("counts of the nodes over the values"))

    @property
    def views(self) -> int:
        """How many windows, the count so far among them, its answers show."""
        match self.counts:
            case WindowsAndEver():
                return len(self.counts.forest.windows) + 1
            case WindowForest():
                return len(self.counts.windows)
        return 1

    def public(self, updates: int, state: ValueTreeState) -> Hashable:
        """Return the number of updates: noise depends on nothing else."""
        return updates

    def band(self, public: int, confidence: float) -> int:
        """Return the largest half-width of a node's count, over the views."""
        terms = (tuple(self.view_terms(v, self.view_public(v, public))) for v in range(self.views))
        return max(laplace_quantile(each, 1 - confidence) for each in terms)

    def view_public(self, place: int, updates: int) -> int:
        """Return the number of updates, as far as the noise of the view at `place` depends on it."""
        counts: Any = self.counts
        return updates if self.view_ever(place) else counts.view_public(place, updates, None)

    def view_ever(self, place: int) -> bool:
        """Whether the view at `place` shows counts so far."""
        match self.counts:
            case WindowsAndEver():
                return place == len(self.counts.forest.windows)
            case WindowForest():
                return False
        return True

    def view_terms(self, place: int, public: int) -> list[Term]:
        """The independent noises in a node's count of the view at `place`, before it is rounded."""
        match self.counts:
            case WindowsAndEver():
                if self.view_ever(place):
                    return self._so_far_terms(self.counts, public)
                return self.counts.forest.noise_terms(place, public)
            case WindowForest():
                return self.counts.noise_terms(place, public)
        return list(self.counts.noise_terms(public))

    def _so_far_terms(self, counts: WindowsAndEver, public: int) -> list[Term]:
        """Those of what is told as the counts so far: first of the longest window, then of the counter."""
        if public <= counts.covered:
            return counts.forest.noise_terms(counts.longest, public)
        return [Term(*term) for term in counts.ever.noise_terms(public)]

    def opening(self) -> tuple[int, int]:
        """Return (0, 0): no decision is taken by counts."""
        return 0, 0

    def init(self, noise: Noise) -> ValueTreeState:
        """Return the first state: nothing counted."""
        return ValueTreeState(0, self.counts.init(noise))

    def step(
        self, state: ValueTreeState, message: Message, noise: Noise
    ) -> tuple[ValueTreeState, IntArray | None]:
        """Count a row in the nodes, or answer their noisy counts.

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
