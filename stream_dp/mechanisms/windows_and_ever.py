"""Sliding windows with the count so far beside them: a forest and a counter on the same rows, each at its share.

With n windows (the single tick is one) the counter has 1 / (n + 1) of the budget: there the geometric mean of all
errors is least. This file knows no noise and no ticks.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.mechanisms.counter import Counter, CounterState
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.hybrid_counter import HybridCounter, HybridState
from stream_dp.mechanisms.window_forest import WindowForest, WindowForestState

SoFar: TypeAlias = Counter | HybridCounter


def ever_share(windows: int) -> Fraction:
    """Return the counter's share of the budget beside so many windows."""
    return Fraction(1, windows + 1)


@wire("windows-and-ever-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WindowsAndEverState:
    """The states of both."""

    forest: WindowForestState
    ever: CounterState | HybridState


@wire("windows-and-ever", 1)
@dataclass(frozen=True)
class WindowsAndEver:
    """Answers of shape ((windows + 1) * width,): those of `forest`, and behind them the counts so far of `ever`.

    Privacy claim: the sum of both epsilons, adaptively: both see the same rows ([HSV] Thm 4.10).
    """

    forest: WindowForest
    ever: SoFar

    @property
    def width(self) -> int:
        """Number of entries of the rows it takes."""
        return self.forest.width

    @property
    def neighbors(self) -> Neighbors:
        """The neighbours of both."""
        return self.forest.neighbors

    @property
    def ones(self) -> int:
        """The most entries of a row that one event sets, for both."""
        return min(self.forest.ones, self.ever.ones)

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at the sum of the shares."""
        return Guarantee(PureDP(self.forest.epsilon + self.ever.epsilon), self.neighbors)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: forest and counter at once.

        Raises:
            NotDerivable: the noise of one is too small.
        """
        parts = (self.forest.derivation(), self.ever.derivation())
        return derive(parts, Fixed("windows and the count so far"))

    def public(self, updates: int, state: WindowsAndEverState) -> int:
        """Return the number of updates: the counter's noise depends on it."""
        return updates

    def band(self, public: int, confidence: float) -> int:
        """Return the largest half-width of the views."""
        views = range(len(self.forest.windows) + 1)
        found = (self.view_band(v, self.view_public(v, public, None), confidence) for v in views)
        return max(found)

    def view_public(self, place: int, updates: int, state: Any) -> Hashable:
        """Return the public values that the band of the view at `place` depends on."""
        if place < len(self.forest.windows):
            return self.forest.view_public(place, updates, state)
        return updates

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        """Return the quantile of the noise of a value of the view at `place`."""
        if place < len(self.forest.windows):
            return self.forest.view_band(place, public, confidence)
        return self.ever.band(public, confidence)

    def opening(self) -> tuple[int, int]:
        """Return (0, 0): no decision is taken by counts."""
        return 0, 0

    def init(self, noise: Noise) -> WindowsAndEverState:
        """Return the first state: nothing counted."""
        return WindowsAndEverState(self.forest.init(noise), self.ever.init(noise))

    def step(
        self, state: WindowsAndEverState, message: Message, noise: Noise
    ) -> tuple[WindowsAndEverState, IntArray | None]:
        """Give both the row, or answer what both answer.

        Raises:
            RejectedMessage: a bad row, or an update beyond the counter's horizon.
        """
        ever: Any = self.ever
        counted, total = ever.step(state.ever, message, noise)
        forest, windows = self.forest.step(state.forest, message, noise)
        after = WindowsAndEverState(forest, counted)
        if isinstance(message, Query) and windows is not None:
            return after, np.concatenate([windows, total])
        return after, None
