"""What watches over windows keep: the last rows of their places, and how many of them are of the live instance.

Rules: values. A window holds the last `window` rows and none from before its instance began, so an event is in the
counts of one instance only. How many rows that are is public, for it began with a released answer. This file knows no
noise, thresholds or names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.windows.row_ring import Ring, pushed, row_back

MOST_HELD = 400_000  # numbers: a snapshot of them takes 3 MB


@wire("watch-window", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WatchWindow:
    """The places from `place` on whose watches look at the last `window` rows.

    `age`: how many rows each live instance has seen, window + 1 for more; public, shape (places,). `rows`: what came,
    private.
    """

    place: int
    window: int
    age: IntArray
    rows: Ring = ()

    @property
    def places(self) -> slice:
        """Where they are."""
        return slice(self.place, self.place + len(self.age))

    @property
    def held(self) -> int:
        """How many numbers it keeps, when it is full."""
        return self.window * len(self.age)

    def taken(self, row: IntArray) -> tuple["WatchWindow", IntArray]:
        """Return it with one more row of its places, and what has left the windows of their instances."""
        rows = pushed(self.rows, row, self.window + 1)
        age = np.minimum(self.age + 1, self.window + 1)
        gone = age > self.window
        left = np.where(gone, row_back(rows, self.window), 0) if gone.any() else np.zeros_like(row)
        return replace(self, age=age, rows=rows), left

    def begun_again(self, fired: IntArray) -> "WatchWindow":
        """Return it with new instances where `fired`, of all places, is not 0."""
        return replace(self, age=np.where(fired[self.places], 0, self.age))

    def whole(self, place: int) -> bool:
        """Say whether the live instance in a place has seen a whole window."""
        return bool(self.age[place - self.place] >= self.window)

    def without(self, first: int, past: int) -> tuple["WatchWindow", ...]:
        """Return what is left where the places from `first` to before `past` are others'."""
        begin, end = self.place, self.place + len(self.age)
        parts = ((begin, min(end, first)), (max(begin, past), end))
        return tuple(self._part(a, b) for a, b in parts if a < b)

    def _part(self, first: int, past: int) -> "WatchWindow":
        at = slice(first - self.place, past - self.place)
        return WatchWindow(
            first, self.window, self.age[at], tuple(each[:, at] for each in self.rows)
        )


Windows = tuple[WatchWindow, ...]


def side_by_side(begun: Iterable[WatchWindow]) -> Windows:
    """Return windows that have seen no row, in the order of their places, with one for neighbours of equal length."""
    found: list[WatchWindow] = []
    for window, run in groupby(begun, key=lambda each: each.window):
        together = list[WatchWindow]()
        for each in run:
            if together and together[-1].places.stop != each.place:
                found.append(_joined(window, together))
                together = []
            together.append(each)
        found.append(_joined(window, together))
    return tuple(found)


def _joined(window: int, begun: Sequence[WatchWindow]) -> WatchWindow:
    return WatchWindow(begun[0].place, window, np.concatenate([each.age for each in begun]))


def windows_without(windows: Windows, first: int, past: int) -> Windows:
    """Return the windows without those places."""
    return tuple(part for each in windows for part in each.without(first, past))


def whole_windows(windows: Windows, width: int) -> IntArray:
    """Return 1 for each of `width` places whose instance has seen a whole window, else 0."""
    found = np.zeros(width, dtype=np.int64)
    for each in windows:
        found[each.places] = each.age >= each.window
    return found


def require_room(windows: Windows) -> None:
    """Do nothing where a state can hold all these rows.

    Raises:
        RejectedMessage: there are more than `MOST_HELD` numbers.
    """
    if (held := sum(each.held for each in windows)) > MOST_HELD:
        raise RejectedMessage(
            f"the windows of these watches would hold {held:,} numbers, more than {MOST_HELD:,}: give them shorter "
            "windows or fewer keys, or the clock a longer step"
        )
