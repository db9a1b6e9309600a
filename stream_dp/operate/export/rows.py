"""A release as rows of one long table, one row for each of its numbers.

Rules: rows are made from published bytes alone. A row is identified by pipeline, series, tick, window and key; all
other columns are the released values, so writing a row again changes nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import repeat
from typing import NamedTuple, TypeVar

from msgspec import UNSET, UnsetType

from stream_dp.journal.release import Released, WindowPart, by_key, read_by_key


class Row(NamedTuple):
    """One number of a release.

    `time_window` is the name of the window, "" if the series has none. `key` is the name of an entry, a quantile's
    share or a name of a top list, "" if the release is a single number. `kind` is `value`, `quantile`, `rank` or
    `fired`. `low` and `high` bound the true number with `confidence` (value minus and plus band, if there is a
    band); None for an open end. The band of quantiles is in ranks. `name` is the entry that has the maximum or the
    rank. `tied` lists, as a JSON array, the names that cannot be distinguished from that of the rank. `sequence` is
    the release's sequence number.
    """

    pipeline: str
    series: str
    tick: int
    tick_end: datetime
    time_window: str
    key: str
    kind: str
    value: float | None
    low: float | None
    high: float | None
    band: float | None
    confidence: float
    name: str | None
    rank: int | None
    tied: str | None
    sequence: int


COLUMNS = Row._fields
UNIQUE = ("pipeline", "series", "tick", "time_window", "key")
"""The columns that identify a row."""
KINDS = dict.fromkeys(COLUMNS, "text") | {
    "tick": "bigint", "tick_end": "timestamptz", "value": "double precision", "low": "double precision",
    "high": "double precision", "band": "double precision", "confidence": "double precision", "rank": "integer",
    "sequence": "bigint",
}  # fmt: skip
"""The SQL type of each column."""

_T = TypeVar("_T")
_Number = int | float | None
_Part = WindowPart | Released


class _Numbers(NamedTuple):
    """The columns of a row that differ within a release and a window."""

    key: str
    kind: str
    value: _Number
    low: _Number = None
    high: _Number = None
    band: _Number = None
    name: str | None = None
    rank: int | None = None
    tied: str | None = None


def rows_of(
    pipeline: str, body: bytes, read: Callable[[bytes], Released] = read_by_key
) -> list[Row]:
    """Return the rows of a published body, none if no alert in it fired; raise FailClosed if it cannot be read."""
    release = read(body)
    parts: Mapping[str, _Part] = release.windows or {"": release}
    at = datetime.fromtimestamp(release.end_ms / 1000, UTC)
    return [
        Row(
            pipeline, release.series, release.tick, at, window, row.key, row.kind,
            _float(row.value), _float(row.low), _float(row.high), _float(row.band),
            release.confidence, row.name, row.rank, row.tied, release.sequence,
        )
        for window, part in parts.items()
        for row in _numbers(part)
    ]  # fmt: skip


def _numbers(part: _Part) -> Iterator[_Numbers]:
    band = _known(part.band)
    if isinstance(part, Released) and part.fired is not UNSET:
        band, counts = _known(part.counts_band), part.counts or {}
        for key in part.fired or ():
            count = counts.get(key)
            yield _Numbers(key, "fired", count, *_around(count, band), band)
    elif part.ranks is not UNSET:
        for place, rank in enumerate(part.ranks, 1):
            tied = json.dumps(list(rank.tied), ensure_ascii=False)
            ends = _around(rank.value, band)
            yield _Numbers(rank.name, "rank", rank.value, *ends, band, rank.name, place, tied)
    elif isinstance(part, WindowPart) and part.quantiles is not UNSET:
        for share, quantile in part.quantiles.items():
            ends = _known(quantile.low), _known(quantile.high)
            yield _Numbers(share, "quantile", quantile.value, *ends, band)
    elif part.values is not UNSET:
        lows, highs = part.lows or repeat(None), part.highs or repeat(None)
        for (key, value), low, high in zip(by_key(part).items(), lows, highs, strict=False):
            ends = _around(value, band) if low is None and band is not None else (low, high)
            yield _Numbers(key, "value", value, *ends, band)
    else:
        value = _known(part.value)
        ends = _known(part.low), _known(part.high)
        if ends[0] is None and band is not None:
            ends = _around(value, band)
        name = _known(part.name) if isinstance(part, Released) else None
        yield _Numbers("", "value", value, *ends, band, name)


def _around(value: _Number, band: _Number) -> tuple[_Number, _Number]:
    """Return the interval of a value with its band, or two None if either is missing."""
    return (None, None) if value is None or band is None else (value - band, value + band)


def _float(number: _Number) -> float | None:
    return None if number is None else float(number)


def _known(value: _T | UnsetType) -> _T | None:
    return None if isinstance(value, UnsetType) else value
