"""From the text or number of a record's own time to its tick; it depends on that record alone."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.moments import EPOCH_UNITS, TimeForm, parse_moment
from stream_dp.core.tick_grid import TickGrid

OUTSIDE: Final = -1
"""The time lies outside the grid."""
NO_TIME: Final = -2
"""It is no time."""
_CACHED_TIMES = 1 << 14
_LONGEST_TIME = 40


class OwnTicks:
    """The ticks of times of one form on a grid."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        kinds = {"iso": _Ticks, "epoch_ms": _EpochTicks}
        self._tick_of = kinds.get(form.format, _ScaledTicks)(grid, form)

    def of(self, times: Iterable[Any], number: int) -> IntArray:
        """Return the tick of each of `number` times; `OUTSIDE` or `NO_TIME` where there is none."""
        return np.fromiter(map(self._tick_of.__getitem__, times), np.int64, number)


class _Ticks(dict[str, int]):
    """From the text of a time to its tick; remembers short texts, and no more than it has room for."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        super().__init__()
        self._find = grid.find
        self._zone = form.zone
        self._times, self._over = EPOCH_UNITS.get(form.format, (1, 1))

    def __missing__(self, time: str) -> int:
        moment = parse_moment(time, self._zone)
        tick = NO_TIME if moment is None else self._tick(moment)
        if len(time) <= _LONGEST_TIME:
            if len(self) >= _CACHED_TIMES:
                self.clear()
            self[time] = tick
        return tick

    def _tick(self, moment: int) -> int:
        """The tick of a moment, or that it lies outside the grid."""
        tick = self._find(moment)
        return OUTSIDE if tick is None else tick


class _EpochTicks(_Ticks):
    """From integer milliseconds to their tick; nothing to remember."""

    def __missing__(self, time: Any) -> int:
        return self._tick(time)


class _ScaledTicks(_Ticks):
    """From integers of another unit to their tick."""

    def __missing__(self, time: Any) -> int:
        return self._tick(time * self._times // self._over)
