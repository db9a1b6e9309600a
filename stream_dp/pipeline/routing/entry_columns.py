"""The entry of a row in which each record of a batch counts, where it is more than a field's code.

Rules: columns only, no Python call per record. A record's entries depend on its own fields and on its tick, which
is public. Null, and a value that is no number, counts in `other`. With several groupings a record counts once in
every combination of its entries.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, timedelta, tzinfo
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.moments import EPOCH
from stream_dp.core.tick_grid import TickGrid
from stream_dp.records.groupings import Edges, TickKey, edge_value, number_of_keys
from stream_dp.records.list_columns import Entries
from stream_dp.records.record_columns import Columns


class BatchTicks(NamedTuple):
    """The ticks of a batch, in order, and the index of each record's tick; None: all records are in the first."""

    names: Sequence[int]
    at: IntArray | None
    records: int


Coder: TypeAlias = Callable[[Columns, BatchTicks], Entries]


def coder(by: Any, fields: Mapping[str, Any], grid: TickGrid) -> Coder:
    """Return the function that gives the entries of a grouping on this grid."""
    if isinstance(by, tuple):
        sizes = [number_of_keys(fields, part) for part in by]
        return _crossed([coder(part, fields, grid) for part in by], sizes)
    if isinstance(by, Edges):
        return _binned(by, fields[by.field])
    if isinstance(by, TickKey):
        return _ticked(by, grid)
    if by is None:
        return lambda columns, ticks: Entries(np.zeros(ticks.records, np.int64))
    return lambda columns, ticks: columns.codes[by]


def _binned(by: Edges, field: Any) -> Coder:
    """Return the coder of the bin of each value: how many edges are at most as large."""
    bounds = [edge_value(field, edge) for edge in by.edges]
    edges = np.array(bounds, np.int64 if field.type == "integer" else np.float64)
    other = len(edges) + 1

    def found(columns: Columns, ticks: BatchTicks) -> Entries:
        values, known = columns.numbers[by.field]
        codes = np.searchsorted(edges, values, side="right")
        if known is not None:
            codes = np.where(known, codes, other)
        return Entries(codes)

    return found


def _ticked(by: TickKey, grid: TickGrid) -> Coder:
    """Return the coder of the key of each record's tick."""
    zone: tzinfo = UTC if by.zone is None else ZoneInfo(by.zone)

    def found(columns: Columns, ticks: BatchTicks) -> Entries:
        keys = np.array([tick_key(by, zone, grid.start(tick)) for tick in ticks.names], np.int64)
        if ticks.at is None:
            return Entries(np.full(ticks.records, keys[0]))
        return Entries(keys[ticks.at])

    return found


def tick_key(by: TickKey, zone: tzinfo, moment: int) -> int:
    """Return the index, among its keys, of the hour or weekday of a moment in ms since 1970."""
    local = EPOCH + timedelta(milliseconds=moment)
    with suppress(OverflowError):  # within a day of the first or the last datetime
        local = local.astimezone(zone)
    return local.hour if by.tick == "hour" else local.weekday()


def _crossed(coders: Sequence[Coder], sizes: Sequence[int]) -> Coder:
    """Return the coder of every combination of a record's entries; the last grouping changes fastest."""

    def found(columns: Columns, ticks: BatchTicks) -> Entries:
        first, *others = [each(columns, ticks) for each in coders]
        for other, size in zip(others, sizes[1:], strict=True):
            first = _pairs(first, other, size, ticks.records)
        return first

    return found


def _pairs(left: Entries, right: Entries, size: int, records: int) -> Entries:
    """Combine each left entry with each right entry of the same record; there are `size` right entries in all."""
    if right.records is None:
        return Entries(left.codes * size + left.of(right.codes), left.records)
    if left.records is None:
        return Entries(left.codes[right.records] * size + right.codes, right.records)
    both = right.at(left.records)
    return Entries(both.of(left.codes) * size + both.codes, both.of(left.records))
