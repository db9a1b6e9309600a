"""What the mechanisms that release counts have in common: whole numbers, none of them below 0.

Rules: a view of the answer (a window, or the only one) becomes a value by `_value`; its band stands beside it.
"""

from typing import Any, Generic, TypeVar

from stream_dp.core.messages import IntArray
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.continual import Continual
from stream_dp.python.standalone.tick_release import ByWindow, TickRelease, TickWindow

V = TypeVar("V")
T = TypeVar("T")


class Counting(Continual[TickRelease[V], T], Generic[V, T]):
    """A mechanism whose releases hold counts, or what is read off them."""

    __slots__ = ()

    def _released(self, tick: int, answer: IntArray, state: Any) -> TickRelease[V]:
        told = [
            TickWindow(self._shown(place, view, tick, state), band)
            for place, (view, band) in enumerate(self._views(tick, answer, state))
        ]
        first, windows = told[0], self.windows
        by_window = ByWindow(windows, tuple(told[: len(windows)]))
        return TickRelease(
            tick, first.value, first.band, self._charged.confidence, by_window, self._named(state)
        )

    def _shown(self, place: int, view: IntArray, tick: int, state: Any) -> V:
        """The value of the view at `place`."""
        return self._value(blocks.clipped(view))

    def _value(self, answer: IntArray) -> V:
        """The public value of a view's counts, none below 0."""
        raise NotImplementedError
