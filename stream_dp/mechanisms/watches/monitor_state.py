"""What a monitor knows of each of its places: which kind of watch runs there, what it has counted, and its noise.

Rules: a value; a place's mode and threshold are public, for they come with the definition, with messages and with
answers. This file draws nothing and decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.watches.watch_messages import WatchTerms
from stream_dp.mechanisms.watches.watch_windows import (
    WatchWindow,
    require_room,
    side_by_side,
    whole_windows,
    windows_without,
)

ARMED, TICK, BELOW, ONCE, HEARD, WINDOW = 1, 2, 4, 8, 16, 32  # of a place's mode; 0: it is free


@wire("monitor-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class MonitorState:
    """Per place, arrays of shape (width,): `threshold` and `mode` are public, the others private.

    `count`: exact events since the last crossing, of these the last rows of a watch over a window, or of the tick that
    is open; `lift`: noise on the threshold; `heard`: the noisy count of the last tick, of watches of single ticks.
    `asked`: how many thresholds were asked, public. `windows`: the rows of watches over windows.
    """

    count: IntArray
    lift: IntArray
    heard: IntArray
    threshold: IntArray
    mode: IntArray
    asked: int = 0
    windows: tuple[WatchWindow, ...] = ()

    @classmethod
    def begun(cls, width: int, watches: Sequence[WatchTerms]) -> "MonitorState":
        """Return that of watches one behind the other, without noise."""
        zeros, at = np.zeros(width, dtype=np.int64), 0
        threshold, mode, windows = zeros.copy(), zeros.copy(), list[WatchWindow]()
        for each in watches:
            places = slice(at, at + each.places)
            threshold[places], mode[places] = each.threshold, _mode(each)
            windows += _windows(each, at)
            at += each.places
        require_room(tuple(windows))
        return cls(zeros, zeros, zeros, threshold, mode, windows=side_by_side(windows))

    @property
    def since(self) -> IntArray:
        """The places with watches since their last crossing."""
        found: IntArray = np.flatnonzero(self.mode & (ARMED | TICK | WINDOW) == ARMED)
        return found

    @property
    def ticks(self) -> IntArray:
        """Those with watches of single ticks."""
        found: IntArray = np.flatnonzero(self.mode & TICK)
        return found

    @property
    def windowed(self) -> IntArray:
        """Those with watches over windows that are compared now: what is to stay below, with whole windows only."""
        ready = (self.mode & BELOW == 0) | (whole_windows(self.windows, len(self.mode)) != 0)
        found: IntArray = np.flatnonzero((self.mode & WINDOW != 0) & ready)
        return found

    def counted(self, row: IntArray) -> "MonitorState":
        """Return it with one more row: a free place counts nothing, and a window loses its oldest row."""
        row = np.where(self.mode, row, 0)
        count, windows = self.count + row, list[WatchWindow]()
        for each in self.windows:
            after, left = each.taken(row[each.places])
            count[each.places] -= left
            windows.append(after)
        return replace(self, count=count, windows=tuple(windows))

    def armed(self, watch: WatchTerms, first: int) -> "MonitorState":
        """Return it with a watch that begins from zero, without noise on its threshold.

        Raises:
            RejectedMessage: a watch runs there, or its windows would be too many rows.
        """
        places = slice(first, first + watch.places)
        if self.mode[places].any():
            raise RejectedMessage("a watch runs in this place; disarm it first")
        count, threshold, mode = self.count.copy(), self.threshold.copy(), self.mode.copy()
        count[places], threshold[places], mode[places] = 0, watch.threshold, _mode(watch)
        left = windows_without(self.windows, places.start, places.stop)
        windows = (*left, *_windows(watch, first))
        require_room(windows)
        return replace(self, count=count, threshold=threshold, mode=mode, windows=windows)

    def disarmed(self, first: int, places: int) -> "MonitorState":
        """Return it with so many places free."""
        past = first + places
        count, mode = self.count.copy(), self.mode.copy()
        count[first:past] = mode[first:past] = 0
        return replace(
            self, count=count, mode=mode, windows=windows_without(self.windows, first, past)
        )

    def crossed(self, fired: IntArray) -> "MonitorState":
        """Return it after these places fired: what they counted is forgotten, and what is to fire once has ended."""
        count, mode = self.count.copy(), self.mode.copy()
        count[(fired != 0) & (mode & TICK == 0)] = 0
        mode[(fired != 0) & (mode & ONCE != 0)] = 0
        windows = tuple(each.begun_again(fired) for each in self.windows)
        return replace(self, count=count, mode=mode, windows=windows)


def _mode(watch: WatchTerms) -> int:
    kind = TICK * watch.tick | WINDOW * (watch.window > 0)
    return ARMED | kind | BELOW * watch.below | ONCE * (not watch.rearm)


def _windows(watch: WatchTerms, first: int) -> list[WatchWindow]:
    if not watch.window:
        return []
    return [WatchWindow(first, watch.window, np.zeros(watch.places, dtype=np.int64))]
