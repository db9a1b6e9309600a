"""Rows of ticks that are still open: dense, or sparse where they are wide and have few entries that are not 0.

Rules: the form of a row changes nothing but room and time. A row that was handed out is never written to. Rows are
private.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stream_dp.core.messages import IntArray

NARROW = 1024
"""The largest number of entries of a row that is always dense: 8 kB."""
_SHARE = 4  # a row is dense if more than one in 4 entries is not 0
_FEW = 1 << 12


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
    """Return a row in sparse form."""
    if isinstance(row, ThinRow):
        return row
    columns = np.flatnonzero(row)
    return ThinRow(columns, row[columns])


def dense(row: Row, width: int) -> IntArray:
    """Return a row in dense form with `width` entries, dropping entries beyond; such a row is returned itself."""
    if not isinstance(row, ThinRow) and len(row) == width:
        return row
    columns, counts = thin(row)
    kept = columns < width
    found: IntArray = np.zeros(width, dtype=np.int64)
    found[columns[kept]] = counts[kept]
    return found


def of_entries(entries: dict[int, int]) -> Row:
    """Return the row of these counts by column, as narrow as possible."""
    columns = np.array(sorted(entries), dtype=np.int64)
    counts = np.array([entries[each] for each in columns.tolist()], dtype=np.int64)
    row = ThinRow(columns, counts)
    width = int(columns[-1]) + 1 if len(columns) else 0
    return dense(row, width) if width <= NARROW else row


def without(row: Row, columns: slice) -> Row:
    """Return a row with 0 in these columns."""
    if isinstance(row, ThinRow):
        kept = (row.columns < columns.start) | (row.columns >= columns.stop)
        return ThinRow(row.columns[kept], row.counts[kept])
    found = row.copy()
    found[columns] = 0
    return found


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
            found = thin(row)
            self._parts.append(found)
            self._held += len(found.columns)
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
        found: Row = self._parts[0] if self._dense is None else self._dense
        for each in found if isinstance(found, ThinRow) else (found,):
            each.flags.writeable = False
        return found

    def _is_dense(self, row: IntArray) -> bool:
        return self._width <= NARROW or int(np.count_nonzero(row)) * _SHARE > self._width

    def _open(self, row: IntArray) -> None:
        self._dense = row
        for part in self._parts:
            self._put(part)
        self._parts.clear()

    def _put(self, row: Row) -> None:
        if self._dense is None:
            raise TypeError("a row is opened first")
        if isinstance(row, ThinRow):
            self._dense[row.columns] += row.counts
        else:
            self._dense += row

    def _merge(self) -> None:
        """Merge all parts into one, or into a dense row if that takes no more room."""
        none: IntArray = np.zeros(0, dtype=np.int64)
        cells = np.concatenate([none, *(part.columns for part in self._parts)])
        counts = np.concatenate([none, *(part.counts for part in self._parts)])
        one = together(cells, counts)
        self._held, self._bound = len(one.columns), 2 * len(one.columns) + _FEW
        self._parts = [one]
        if self._held * _SHARE > self._width:
            self._open(np.zeros(self._width, dtype=np.int64))


def added(rows: Sequence[Row], width: int) -> Row:
    """Return the sum of rows; a single row is returned itself."""
    if len(rows) == 1:
        return rows[0]
    found = OpenRow(width)
    for row in rows:
        found.add(row)
    return found.row()
