"""From batches to closed ticks: which rows a tick holds and where its cut lies.

A tick closes in a partition at that partition's mark, and closes when it has closed in all of them. What a record adds,
and to which tick, depends on that record and on the marks before it in its own partition, never on when it was read.
The cut carries everything read before it: the closed row, rows of ticks still open, dead letters and late records. Rows
are private; open ones are dense, or sparse where they are wide and have few entries that are not 0: that changes
nothing but room and time. A row that was handed out is never written to. Sans I/O: no source, clock or journal.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.ports import Batch, Behind, Behinds
from stream_dp.engine.user_table import Arrivals, ByColumn, Used
from stream_dp.journal.dead_letters import DeadLetters, Span

NARROW = 1024
"""The largest number of entries of a row that is always dense: 8 kB."""
_SHARE = 4  # a row is dense if more than one in 4 entries is not 0
_FEW = 1 << 12
_ROOM = 1 << 20  # entries of dense rows, of a partition's open ticks: 8 MB


class ThinRow(NamedTuple):
    """A sparse row: `counts` in ascending `columns`; all other entries are 0."""

    columns: IntArray
    counts: IntArray

    def __repr__(self) -> str:
        return "<ThinRow>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


Row: TypeAlias = IntArray | ThinRow


def thin(row: Row) -> ThinRow:
    if isinstance(row, ThinRow):
        return row
    columns = np.flatnonzero(row)
    return ThinRow(columns, row[columns])


def dense(row: Row, width: int) -> IntArray:
    """Return a row with `width` entries, dropping entries beyond; a dense row of that width is returned itself."""
    if not isinstance(row, ThinRow) and len(row) == width:
        return row
    columns, counts = thin(row)
    kept = columns < width
    wide: IntArray = np.zeros(width, dtype=np.int64)
    wide[columns[kept]] = counts[kept]
    return wide


def of_entries(entries: dict[int, int]) -> Row:
    """Return the row of these counts by column, as narrow as possible."""
    columns = np.array(sorted(entries), dtype=np.int64)
    counts = np.array([entries[column] for column in columns.tolist()], dtype=np.int64)
    row = ThinRow(columns, counts)
    width = int(columns[-1]) + 1 if len(columns) else 0
    return dense(row, width) if width <= NARROW else row


def without(row: Row, columns: slice) -> Row:
    """Return a row with 0 in these columns."""
    if isinstance(row, ThinRow):
        kept = (row.columns < columns.start) | (row.columns >= columns.stop)
        return ThinRow(row.columns[kept], row.counts[kept])
    changed = row.copy()
    changed[columns] = 0
    return changed


def together(cells: IntArray, counts: IntArray) -> ThinRow:
    """Return the sum of the counts of each cell that occurs, sorted by cell."""
    order = np.argsort(cells, kind="stable")
    cells, counts = cells[order], counts[order]
    begins = np.ones(len(cells), np.bool_)
    np.not_equal(cells[1:], cells[:-1], out=begins[1:])
    if begins.all():
        return ThinRow(cells, counts)
    return ThinRow(cells[begins], np.add.reduceat(counts, np.flatnonzero(begins)))


class OpenRow:
    """The counts of an open tick, to which rows of `width` entries are added."""

    __slots__ = ("_bound", "_dense", "_held", "_parts", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._dense: IntArray | None = None
        self._parts: list[ThinRow] = []
        self._held, self._bound = 0, _FEW

    def add(self, row: Row, *, roomy: bool = False) -> None:
        """Add a row, which nobody may write to afterwards; with `roomy` a dense row stays dense."""
        if self._dense is not None:
            self._put(row)
        elif isinstance(row, ThinRow) and self._width <= NARROW:
            self._open(dense(row, self._width))
        elif not isinstance(row, ThinRow) and (roomy or self._is_dense(row)):
            self._open(row.copy())
        else:
            part = thin(row)
            self._parts.append(part)
            self._held += len(part.columns)
            if self._held > self._bound:
                self._merge()

    def shrink(self) -> None:
        """Free the room that only entries of 0 take."""
        if self._dense is not None and not self._is_dense(self._dense):
            self._parts, self._dense = [thin(self._dense)], None

    def row(self) -> Row:
        """Return the counts as a row; nothing may be added afterwards."""
        if self._dense is None and len(self._parts) != 1:
            self._merge()
        row: Row = self._parts[0] if self._dense is None else self._dense
        for array in row if isinstance(row, ThinRow) else (row,):
            array.flags.writeable = False
        return row

    def _is_dense(self, row: IntArray) -> bool:
        return self._width <= NARROW or int(np.count_nonzero(row)) * _SHARE > self._width

    def _open(self, row: IntArray) -> None:
        self._dense = row
        for part in self._parts:
            self._put(part)
        self._parts.clear()

    def _put(self, row: Row) -> None:
        if self._dense is None:
            raise TypeError("open a row first")
        if isinstance(row, ThinRow):
            self._dense[row.columns] += row.counts
        else:
            self._dense += row

    def _merge(self) -> None:
        """Merge all parts into one, or into a dense row if that takes no more room."""
        none: IntArray = np.zeros(0, dtype=np.int64)
        cells = np.concatenate([none, *(part.columns for part in self._parts)])
        counts = np.concatenate([none, *(part.counts for part in self._parts)])
        merged = together(cells, counts)
        self._held, self._bound = len(merged.columns), 2 * len(merged.columns) + _FEW
        self._parts = [merged]
        if self._held * _SHARE > self._width:
            self._open(np.zeros(self._width, dtype=np.int64))


def total(rows: Sequence[Row], width: int) -> Row:
    """Return the sum of rows; a single row is returned itself."""
    if len(rows) == 1:
        return rows[0]
    summed = OpenRow(width)
    for row in rows:
        summed.add(row)
    return summed.row()


NO_ENTRY = of_entries({})


@dataclass(slots=True, repr=False)
class Routed:
    """What a batch adds by tick: rows, numbers of records, and `arrived` identifiers; and the refused spans, `dead`."""

    rows: dict[int, Any]
    dead: Sequence[Span]
    records: dict[int, int]
    arrived: Mapping[int, ByColumn] = field(default_factory=dict)


class Router(Protocol):
    """Turns payloads into rows; never raises for anything a payload holds."""

    @property
    def width(self) -> int:
        """The number of entries of a row."""

    def decode(self, batch: Batch) -> Batch:
        """Return the batch with its decoded payloads, for the guard and for `route`."""

    def route(self, batch: Batch) -> Routed:
        """Route one batch; decode it first if nobody has."""


@dataclass(frozen=True, slots=True, repr=False)
class Cut:
    """Where a tick ended: all that the next tick needs, and what a commit keeps of it. `arriving` is set where reading
    begins (`OpenIdentifiers.rewind`); elsewhere a cut lacks it.
    """

    next_tick: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    marks: Mapping[int, int] = field(default_factory=dict)
    pending: Mapping[int, Any] = field(default_factory=dict)
    behind: Behinds = field(default_factory=dict)
    arriving: Mapping[int, ByColumn] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        next_tick: int,
        positions: Mapping[int, int],
        marks: Mapping[int, int],
        sparse: Mapping[int, Mapping[int, int]],
        behind: Mapping[int, tuple[int, int]],
    ) -> "Cut":
        """Return a cut whose pending rows are `sparse`, each as narrow as possible (`opened` widens them)."""
        pending = {tick: of_entries(dict(counts)) for tick, counts in sparse.items()}
        open_there = {partition: Behind(*part) for partition, part in behind.items()}
        return cls(next_tick, positions, marks, pending, open_there)

    @property
    def sparse(self) -> dict[int, dict[int, int]]:
        """The entries of the pending rows that are not 0, by tick and column; the records bound their number."""
        rows = {tick: thin(row) for tick, row in self.pending.items()}
        return {
            tick: dict(zip(row.columns.tolist(), row.counts.tolist(), strict=True))
            for tick, row in rows.items()
        }

    def opened(self, width: int, fresh: slice) -> "Cut":
        """Return this cut for rows of `width` entries, of which those in `fresh` begin to count behind it. Records
        before the cut never count in these entries, not even for ticks still open.
        """
        pending = {}
        for tick, row in self.pending.items():
            kept = without(row, fresh)
            few = width > NARROW and isinstance(kept, ThinRow)
            pending[tick] = without(kept, slice(width, sys.maxsize)) if few else dense(kept, width)
        return replace(self, pending=pending)


@dataclass(frozen=True, slots=True, repr=False)
class ClosedTick:
    """A tick at its cut: reading continues at `positions`; `pending` has rows of later ticks, read before the cut.

    Several ticks share these rows, so nobody can write to them. `marks` are the last marks before `positions`; they may
    be beyond `tick`. `used` is what the records since the last cut used of their users' caps, and `capped` how many did
    not count. `arrived` are the tick's identifiers, whether or not they came earlier; `arriving` those of later ticks
    that came for the first time since the last cut.
    """

    tick: int
    row: IntArray
    positions: dict[int, int]
    marks: dict[int, int]
    pending: Mapping[int, Any]
    dead_letters: DeadLetters
    late: int
    records: int
    behind: Behinds = field(default_factory=dict)
    used: Sequence[Used] = ()
    capped: int = 0
    arrived: ByColumn = field(default_factory=dict)
    arriving: Mapping[int, ByColumn] = field(default_factory=dict)

    @property
    def cut(self) -> Cut:
        return Cut(self.tick + 1, self.positions, self.marks, self.pending, self.behind)


class _Later(Mapping[int, Row]):
    """The rows of ticks after `tick`, out of rows that several ticks share; nobody writes to these."""

    def __init__(self, shared: Mapping[int, Row], tick: int) -> None:
        self._shared, self._tick = shared, tick

    def __getitem__(self, tick: int) -> Row:
        if tick <= self._tick:
            raise KeyError(tick)
        return self._shared[tick]

    def __iter__(self) -> Iterator[int]:
        return (tick for tick in self._shared if tick > self._tick)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return "<_Later>"


@dataclass(slots=True, repr=False)
class _Segment:
    """What a partition brought between two marks; or what all brought since the last closed tick, without rows."""

    rows: dict[int, OpenRow] = field(default_factory=dict)
    dead: DeadLetters = field(default_factory=DeadLetters)
    late: int = 0
    records: int = 0
    mark: int = -1
    position: int = 0
    behind: Behind | None = None
    used: list[Used] = field(default_factory=list)
    capped: int = 0
    arrived: dict[int, Arrivals] = field(default_factory=dict)


@dataclass(slots=True, repr=False)
class _Partition:
    """`marked` is the last mark read, `cut` the last mark taken into a closed tick, at `position`."""

    marked: int
    cut: int
    position: int | None
    behind: Behind | None = None
    current: _Segment = field(default_factory=_Segment)
    closed: deque[_Segment] = field(default_factory=deque)


class TickAssembler:
    """Collects the routed batches behind a cut, and hands out ticks in order, each at its cut."""

    def __init__(self, partitions: Sequence[int], width: int, cut: Cut | None = None) -> None:
        cut = cut or Cut()
        self._partitions: dict[int, _Partition] = {}
        for number in partitions:
            mark, at = cut.marks.get(number, cut.next_tick - 1), cut.positions.get(number)
            self._partitions[number] = _Partition(mark, mark, at, cut.behind.get(number))
        self._width = width
        self._next = cut.next_tick
        self._merged: dict[int, Row] = dict(cut.pending)
        self._shared: dict[int, Row] | None = None
        self._arrived = {tick: Arrivals(known) for tick, known in cut.arriving.items()}
        self._grown: set[int] = set()
        self._since = _Segment()

    def passed(self, partition: int) -> int:
        """Return the last tick that is over in a partition: records of ticks up to it are late."""
        return p.marked if (p := self._partitions.get(partition)) else self._next - 1

    def add(self, batch: Batch, routed: Routed) -> None:
        """Add a routed batch, with its mark and its uses of caps; an unknown partition is added."""
        partition = self._partitions.get(batch.partition)
        if partition is None:
            over = self._next - 1
            partition = self._partitions[batch.partition] = _Partition(over, over, batch.position)
        segment = partition.current
        for tick, row in routed.rows.items():
            if tick <= partition.marked:
                segment.late += routed.records.get(tick, 0)
            else:
                if tick not in segment.rows:
                    segment.rows[tick] = OpenRow(self._width)
                roomy = len(segment.rows) * self._width <= _ROOM
                segment.rows[tick].add(row, roomy=roomy)
        for tick, columns in chain(routed.arrived.items(), batch.users.items()):
            if tick > partition.marked:
                segment.arrived.setdefault(tick, Arrivals()).add(columns)
        segment.records += sum(routed.records.values())
        segment.dead.add(batch.partition, routed.dead)
        segment.used += batch.used
        segment.capped += batch.capped
        if batch.mark is not None and batch.mark > partition.marked:
            segment.mark, segment.position = batch.mark, batch.position
            segment.behind = batch.behind
            if len(partition.closed) * self._width > _ROOM:
                _shrink(segment.rows.values())
            partition.closed.append(segment)
            partition.current, partition.marked = _Segment(), batch.mark

    def closed(self, limit: int) -> list[ClosedTick]:
        """Return up to `limit` further ticks that have closed in every partition, in order."""
        ready: list[ClosedTick] = []
        last = min(p.marked for p in self._partitions.values())
        while self._next <= last and len(ready) < limit:
            ready.append(self._close(self._next))
            self._next += 1
        return ready

    def _close(self, tick: int) -> ClosedTick:
        for partition in self._partitions.values():
            while partition.cut < tick:
                self._take(partition, partition.closed.popleft(), tick)
        if self._shared is None:
            self._shared = dict(self._merged)
        row = dense(self._merged.pop(tick, NO_ENTRY), self._width)
        row.flags.writeable = False
        arrived = self._arrived.pop(tick, Arrivals()).once()
        arriving = {later: self._arrived[later].fresh() for later in sorted(self._grown - {tick})}
        self._grown.clear()
        since, self._since = self._since, _Segment()
        return ClosedTick(
            tick, row,
            {n: p.position for n, p in self._partitions.items() if p.position is not None},
            {n: p.cut for n, p in self._partitions.items()},
            _Later(self._shared, tick), since.dead, since.late, since.records,
            {n: p.behind for n, p in self._partitions.items() if p.behind is not None},
            since.used, since.capped, arrived,
            {later: fresh for later, fresh in arriving.items() if fresh},
        )  # fmt: skip

    def _take(self, partition: _Partition, segment: _Segment, closing: int) -> None:
        partition.cut, partition.position = segment.mark, segment.position
        partition.behind = segment.behind
        self._shared = None if segment.rows else self._shared
        _shrink(added for tick, added in segment.rows.items() if tick > closing)
        for tick, added in segment.rows.items():
            row, present = added.row(), self._merged.get(tick)
            self._merged[tick] = row if present is None else total((present, row), self._width)
        for tick, arrivals in segment.arrived.items():
            self._arrived.setdefault(tick, Arrivals()).add(arrivals.once())
            self._grown.add(tick)
        since = self._since
        since.dead.merge(segment.dead)
        since.late += segment.late
        since.records += segment.records
        since.used += segment.used
        since.capped += segment.capped


def _shrink(rows: Iterable[OpenRow]) -> None:
    for row in rows:
        row.shrink()
