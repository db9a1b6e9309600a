"""From the text or number of a record's own time to its tick; it depends on that record alone."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.moments import EPOCH_UNITS, TimeForm, parse_moments
from stream_dp.core.tick_grid import TickGrid

OUTSIDE: Final = -1
"""The time lies outside the grid."""
NO_TIME: Final = -2
"""It is no time."""
_CACHED_TIMES = 1 << 14
_AT_ONCE = 1 << 12
_UNKNOWN = -3
"""The number of the first new time in a reading; the next ones have -4, -5 and so on."""
_LONGEST_TIME = 40
_NONE = np.empty(0, np.int64)


class OwnTicks:
    """The ticks of times of one form on a grid."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        kinds = {"iso": _Ticks, "epoch_ms": _EpochTicks}
        self._tick_of = kinds.get(form.format, _ScaledTicks)(grid, form)
        self._texts = form.format == "iso"

    def of(self, times: Iterable[Any], number: int) -> IntArray:
        """Return the tick of each of `number` times; `OUTSIDE` or `NO_TIME` where there is none."""
        if not self._texts:
            return np.fromiter(map(self._tick_of.__getitem__, times), np.int64, number)
        every = iter(times)
        parts = [
            self._tick_of.of(list(islice(every, _AT_ONCE))) for _ in range(0, number, _AT_ONCE)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])


class _Ticks(dict[str, int]):
    """From the text of a time to its tick; remembers short texts, and no more than it has room for."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        super().__init__()
        self._find = grid.find
        self._zone = form.zone
        self._times, self._over = EPOCH_UNITS.get(form.format, (1, 1))
        self._new: list[str] = []

    def of(self, times: Sequence[str]) -> IntArray:
        """Return the tick of each of these times; those that are new are read together."""
        new: list[str] = []
        self._new = new
        try:
            found = np.fromiter(map(self.__getitem__, times), np.int64, len(times))
            if new:
                ticks = self._read(new)
                places = found <= _UNKNOWN
                found[places] = np.array(ticks, np.int64)[_UNKNOWN - found[places]]
        except BaseException:
            self.clear()  # it may hold numbers of new times in place of ticks
            raise
        return found

    def __missing__(self, time: Any) -> int:
        self[time] = number = _UNKNOWN - len(self._new)
        self._new.append(time)
        return number

    def _read(self, new: list[str]) -> list[int]:
        """The ticks of times that have numbers here; they are remembered as far as there is room."""
        tick = self._tick
        ticks = [
            NO_TIME if moment is None else tick(moment) for moment in parse_moments(new, self._zone)
        ]
        told = dict(zip(new, ticks, strict=True))
        for time in [each for each in new if len(each) > _LONGEST_TIME]:
            del self[time], told[time]
        if len(self) > _CACHED_TIMES:
            self.clear()
            told = dict(islice(told.items(), _CACHED_TIMES))
        self.update(told)
        return ticks

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
