"""A data file as records: CSV, JSON lines or Parquet, each also with `.gz`.

Rules: every row or line is a record of its own, and a bad one harms no other: what does not convert
stays a string, a row with too few or too many columns becomes a payload that no decoder takes for
an object, a broken JSON line or bad UTF-8 passes as it is. The engine makes dead letters of them.
Blank lines are no records. CSV and Parquet give JSON objects with the declared fields that the file
has; an empty cell is null. A record's own time is what `core.moments` makes of it.
Error texts name the file and its columns, never a cell.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from stream_dp.core.moments import own_time
from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import UsageError, WorldError

_T = TypeVar("_T")
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_BROKEN_ROW = b"[]"
_CACHED = 100_000
_BOM = b"\xef\xbb\xbf"
_INTEGER = re.compile(r"-?[0-9]{1,400}")
_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


class FieldType(StrEnum):
    """What a declared field holds."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    CATEGORY = "category"
    TEXT = "text"


class Record(NamedTuple):
    """One record: where it lies in the file, its time if readable, and its JSON bytes."""

    line: int
    time_ms: int | None
    payload: bytes

    def __repr__(self) -> str:
        return f"Record(line={self.line})"


_Fields = Mapping[str, FieldType]
_Bytes = gzip.GzipFile | io.BufferedReader
_Reader = Callable[[_Bytes, _Fields, str], Iterator[Record]]


def load_records(path: Path, fields: _Fields, time_field: str) -> list[Record]:
    """Read the whole file, in its own order.

    Raises:
        UsageError: no such file, an unknown or damaged format, or no column for the time.
        WorldError: the file cannot be read.
    """
    compressed = path.suffix == ".gz"
    reader = _READERS.get((path.with_suffix("") if compressed else path).suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: the name must end in {', '.join(_READERS)}, or one and .gz")
    try:
        with path.open("rb") as raw, gzip.open(raw) if compressed else raw as file:
            return list(reader(file, fields, time_field))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise UsageError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UsageError(f"{path}: the gzip data is damaged or cut short") from None
    except _BadFileError as problem:
        raise UsageError(f"{path}: {problem}") from None
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror}") from None


def ticked(records: Sequence[Record], grid: TickGrid) -> list[Sequence[Record]]:
    """The records of each tick of the grid, by time; equal times keep the file's order.

    A record outside the range is kept, with the nearest tick; one without a readable time comes
    first of all. Where a record lands depends on that record alone.

    Raises:
        ValueError: the grid has no horizon.
    """
    if grid.horizon is None:
        raise ValueError("a file needs a grid with a horizon")
    ticks: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda each: (each.time_ms is not None, each.time_ms or 0)):
        tick = 0 if record.time_ms is None else grid.tick_of(record.time_ms)
        ticks.setdefault(min(max(tick, 0), grid.horizon - 1), []).append(record)
    return [ticks.get(tick, ()) for tick in range(grid.horizon)]


class _BadFileError(Exception):
    """The file as a whole is not what it should be; the text needs only the path."""


def _columns(header: Sequence[str], fields: _Fields, time_field: str) -> None:
    """Check that each column that is used is there, and there once."""
    if time_field not in header:
        raise _BadFileError(f"the first line names no column {time_field!r}, which holds the time")
    for name in {time_field, *fields}:
        if header.count(name) > 1:
            raise _BadFileError(f"the first line names the column {name!r} more than once")


def _number(text: str) -> int | float | str:
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


def _integer(text: str) -> int | str:
    return int(text) if _INTEGER.fullmatch(text) else text


_CONVERT: dict[FieldType, Callable[[str], object]] = {
    FieldType.INTEGER: _integer,
    FieldType.NUMBER: _number,
    FieldType.BOOLEAN: lambda text: _BOOLEANS.get(text.lower(), text),
    FieldType.TIME: _integer,
    FieldType.CATEGORY: str,
    FieldType.TEXT: str,
}


class _Memo(dict[Any, _T]):
    """The results of `make` for the different cells of a column, remembered within bounds."""

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make

    def __missing__(self, cell: object) -> _T:
        if len(self) >= _CACHED:
            self.clear()
        result = self[cell] = self._make(cell)
        return result


def _cells(name: str, kind: FieldType) -> _Memo[str]:
    """One column: the `"name":value` text of each different cell."""
    label, convert, text = json.dumps(name), _CONVERT[FieldType(kind)], _ENCODER.encode
    return _Memo(lambda cell: f"{label}:{text(convert(cell) if cell else None)}")


def _rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str] | None]]:
    """The cells of each line that is not blank; None where a quote stays open or text follows one.

    Every line is parsed on its own, so no record can swallow another: cells cannot hold line breaks.
    """
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text:
            continue
        if '"' not in text:
            yield number, text.split(",")
            continue
        try:
            yield number, next(csv.reader([text], strict=True))
        except csv.Error:
            yield number, None


def _csv(file: _Bytes, fields: _Fields, time_field: str) -> Iterator[Record]:
    # surrogateescape carries bad UTF-8 through to the payload unchanged
    bad = "surrogateescape"
    with io.TextIOWrapper(file, encoding="utf-8-sig", errors=bad, newline="") as text:
        rows = _rows(text)
        header = next(rows, (0, None))[1] or []
        _columns(header, fields, time_field)
        columns = [(header.index(n), _cells(n, kind)) for n, kind in fields.items() if n in header]
        width, at = len(header), header.index(time_field)
        times = _Memo(lambda cell: own_time(_integer(cell)))
        for line, row in rows:
            if row is None or len(row) != width:
                yield Record(line, None, _BROKEN_ROW)
                continue
            body = ",".join([cells[row[index]] for index, cells in columns])
            yield Record(line, times[row[at]], f"{{{body}}}".encode("utf-8", bad))


def _jsonl(file: _Bytes, _: _Fields, time_field: str) -> Iterator[Record]:
    timed = msgspec.defstruct("Timed", [("time", Any, None)], rename={"time": time_field})
    decoder = msgspec.json.Decoder(timed)
    for line, raw in enumerate(file, 1):
        payload = raw.removeprefix(_BOM).rstrip(b"\r\n") if line == 1 else raw.rstrip(b"\r\n")
        if not payload.strip():
            continue
        try:
            time = decoder.decode(payload).time  # type: ignore[attr-defined]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            time = None
        yield Record(line, own_time(time), payload)


def _parquet(file: _Bytes, fields: _Fields, time_field: str) -> Iterator[Record]:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise _BadFileError(
            "reading Parquet needs pyarrow: pip install 'stream_dp[parquet]'"
        ) from None
    try:
        table = parquet.ParquetFile(io.BytesIO(file.read()))
        header = table.schema_arrow.names
        _columns(header, fields, time_field)
        wanted = [name for name in header if name == time_field or name in fields]
        batches = table.iter_batches(columns=wanted)
        rows = (row for batch in batches for row in zip(*_values(arrow, batch), strict=True))
        for line, row in enumerate(rows, 1):
            yield _from_parquet(line, dict(zip(wanted, row, strict=True)), fields, time_field)
    except arrow.ArrowException:
        raise _BadFileError("not a Parquet file that pyarrow can read") from None


def _values(arrow: Any, batch: Any) -> Iterator[list[object]]:
    """The values of each column; times with a zone come in UTC and whole milliseconds, floored."""
    floor = import_module("pyarrow.compute").floor_temporal
    for column in batch.columns:
        if arrow.types.is_timestamp(column.type):
            zone = None if column.type.tz is None else "UTC"
            utc = column.cast(arrow.timestamp(column.type.unit, tz=zone))
            whole = floor(utc, unit="millisecond")
            yield whole.cast(arrow.timestamp("ms", tz=zone)).to_pylist()
        else:
            yield column.to_pylist()


def _from_parquet(line: int, row: dict[str, Any], fields: _Fields, time_field: str) -> Record:
    time = row[time_field].isoformat() if isinstance(row[time_field], datetime) else row[time_field]
    body = {name: row[name] for name in fields if name in row}
    return Record(line, own_time(time), msgspec.json.encode(body, enc_hook=str))


_READERS = {".csv": _csv, ".jsonl": _jsonl, ".ndjson": _jsonl, ".parquet": _parquet}
