"""What a source's log says of every tick of a wall clock: the rules, applied to the raw batches of a partition.

The rules: (1) A batch has one append stamp; its tick is the one that holds the stamp, and a stamp before the origin
does not count at all. (2) The mark of tick k lies before the first batch, of whatever kind, whose stamp is not before
end(k) + settle; a record behind the mark of its tick is late. (3) A transaction's records count by their own batches'
stamps where their commit marker is met, if the marks before it allow; where it is aborted or never ends, nowhere. Open
transactions are known by producer id alone. (4) What cannot be unpacked, read or judged is dead, wherever it lies.
(5) Who reads while the log is written ends tick k in a silent partition once the earliest of the brokers' clocks is at
end(k) + settle. So a record that was visible only later than that is late too: `visible` says for each batch what that
clock was when it became visible. Without `visible` all was visible in time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from oracles.log_frames import ABORT, COMMIT, LIMIT, Frame, FrameError, marker, values

Judge: TypeAlias = Callable[[bytes | None], str | None]
"""The category of a record's value, None where it is a dead letter; null and unreadable ones come as None."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The ticks: all in milliseconds; `delay` is the pipeline's, half of which is left for settling."""

    origin: int
    step: int
    delay: int
    horizon: int

    def tick(self, stamp: int) -> int:
        return (stamp - self.origin) // self.step

    def passed(self, stamp: int) -> int:
        settled = self.tick(stamp - self.delay // 2) - 1
        return max(-1, min(settled, self.horizon - 1))


class Range(NamedTuple):
    """Dead letters of a partition, from offset `first` to offset `last`."""

    partition: int
    first: int
    last: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1


@dataclass(slots=True)
class Said:
    """What a log says: records by tick and category, dead letters, and the number of late ones."""

    ticks: dict[int, Counter[str]] = field(default_factory=dict)
    dead: list[Range] = field(default_factory=list)
    late: int = 0

    def tick(self, number: int) -> Counter[str]:
        return self.ticks.get(number, Counter())

    @property
    def dead_letters(self) -> int:
        return sum(one.records for one in self.dead)


@dataclass(slots=True)
class _Held:
    """What one batch would add."""

    tick: int
    good: Counter[str]
    dead: list[Range]


def said(
    partitions: Mapping[int, Iterable[Frame]],
    grid: Grid,
    judge: Judge,
    limit: int = LIMIT,
    visible: Mapping[int, Sequence[int]] | None = None,
) -> Said:
    """What counts where, of these batches of each partition, up to the mark of the last tick."""
    total = Said()
    for partition, log in partitions.items():
        seen = None if visible is None else visible[partition]
        _Reader(partition, grid, judge, limit, total).read(log, seen)
    total.dead.sort()
    return total


@dataclass(slots=True)
class _Reader:
    """One partition: the last tick whose mark has been passed, and the open transactions."""

    partition: int
    grid: Grid
    judge: Judge
    limit: int
    total: Said
    marked: int = -1
    open: dict[int, list[_Held]] = field(default_factory=dict)

    def read(self, log: Iterable[Frame], visible: Sequence[int] | None) -> None:
        for number, frame in enumerate(log):
            shown = frame.stamp if visible is None else max(frame.stamp, visible[number])
            self.marked = max(self.marked, self.grid.passed(shown))
            if self.marked == self.grid.horizon - 1:
                return
            if frame.control:
                self._end(frame)
            elif frame.stamp >= self.grid.origin:
                self._data(frame)

    def _data(self, frame: Frame) -> None:
        held = self._held(frame)
        if frame.transactional:
            self.open.setdefault(frame.producer, []).append(held)
        else:
            self._count(held)

    def _end(self, frame: Frame) -> None:
        kind = marker(frame)
        if kind not in {ABORT, COMMIT}:
            return
        for held in self.open.pop(frame.producer, []):
            if kind == COMMIT:
                self._count(held)

    def _count(self, held: _Held) -> None:
        self.total.dead += held.dead
        if held.tick <= self.marked:
            self.total.late += held.good.total()
        elif held.good:
            self.total.ticks.setdefault(held.tick, Counter()).update(held.good)

    def _held(self, frame: Frame) -> _Held:
        held = _Held(self.grid.tick(frame.stamp), Counter(), [])
        try:
            found = values(frame, self.limit)
        except FrameError:
            held.dead.append(Range(self.partition, frame.base, frame.last))
            return held
        for offset, value in enumerate(found, frame.base):
            category = self.judge(value)
            if category is None:
                _extend(held.dead, Range(self.partition, offset, offset))
            else:
                held.good[category] += 1
        return held


def _extend(dead: list[Range], more: Range) -> None:
    if dead and dead[-1].last + 1 == more.first:
        more = Range(more.partition, dead.pop().first, more.last)
    dead.append(more)
