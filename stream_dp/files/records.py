"""A data file as records: CSV, JSON lines or Parquet, each also with `.gz`; and plain rows, without a schema.

Rules: every row or line is one record, and a bad one affects no other. A value that does not convert stays a string. A
row with too few or too many columns, or a Parquet row with a cell that cannot be converted, becomes a payload that no
decoder accepts as an object. A broken JSON line or bad UTF-8 stays unchanged. The engine makes dead letters of them.
Blank lines are not records. CSV and Parquet give JSON objects with the declared fields that the file has; an empty cell
is null. `core.time` reads a record's own time. Error texts name the file and its columns, never a cell.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib import import_module
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias, TypeVar, overload

import msgspec

from stream_dp.core.time import ISO, TickGrid, TimeForm, moment_text, own_time, written
from stream_dp.core.wording import meant
from stream_dp.errors import UsageError, WorldError
from stream_dp.records.cells import cell_reader
from stream_dp.records.decoder import node, record_type
from stream_dp.records.endpoints import UTF_8
from stream_dp.records.schema import Fields, FieldSpec, ListField, TimeField, key_path

Row: TypeAlias = Sequence[object] | None
_BAD: Final = object()
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_T = TypeVar("_T")
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_BROKEN_ROW = b"[]"
_CACHED = 100_000
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_TRUTHS = {"true": True, "false": False}
_MARK = "\ufeff"
_ESCAPED = re.compile("[\udc80-\udcff]")


class UnreadableParquet(Exception):
    """The file as a whole cannot be read; the text needs only the path."""

    def __init__(self, why: str = "not a Parquet file that pyarrow can read") -> None:
        super().__init__(why)


class ParquetCells:
    """The columns of a Parquet file, and its rows; `UnreadableParquet` if it is none, or without pyarrow.

    A cell that cannot be converted (bad UTF-8, a date after the year 9999) affects only its own row. A timestamp with a
    zone becomes text in UTC, one without becomes text without an offset, both in whole milliseconds, floored, also
    before 1970.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError:
            raise UnreadableParquet(
                "reading Parquet needs pyarrow: pip install 'stream_dp[parquet]'"
            ) from None
        self._broken = (self._arrow.ArrowException, OSError)
        self._no_value = (*self._broken, ValueError, TypeError, ArithmeticError, RecursionError)
        try:
            self._file = parquet.ParquetFile(io.BytesIO(data))
            self.names: list[str] = self._file.schema_arrow.names
        except self._broken:
            raise UnreadableParquet from None

    def rows(self, wanted: Sequence[str], text_of: Callable[[int], object]) -> Iterator[Row]:
        """Yield the cells of the wanted columns, row by row, in the file's order; None for a row with a bad cell.

        `text_of` writes a timestamp with a zone, given in milliseconds; if it raises OverflowError, the cell is bad.
        """
        try:
            for batch in self._file.iter_batches(columns=list(wanted)):
                by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
                columns = [self._column(by_name[name], text_of) for name in wanted]
                for row in zip(*columns, strict=True):
                    yield None if any(cell is _BAD for cell in row) else row
        except self._broken:
            raise UnreadableParquet from None

    def _column(self, column: Any, text_of: Callable[[int], object]) -> list[object]:
        if self._arrow.types.is_timestamp(column.type):
            return self._moments(column, text_of)
        try:
            cells: list[object] = column.to_pylist()
        except self._no_value:
            return [_tried(scalar.as_py, self._no_value) for scalar in column]
        return cells

    def _moments(self, column: Any, text_of: Callable[[int], object]) -> list[object]:
        """Convert timestamps from their integers, so that no unit or zone makes the conversion of a column fail."""
        times, over = _PER_MS[column.type.unit]
        if column.type.tz is None:
            text_of = _without_offset
        counts = column.cast(self._arrow.int64()).to_pylist()
        return [
            None if n is None else _tried(partial(text_of, n * times // over), OverflowError)
            for n in counts
        ]


def _tried(cell: Callable[[], object], no_value: Any) -> object:
    try:
        return cell()
    except no_value:
        return _BAD


def _without_offset(moment: int) -> str:
    return moment_text(moment).removesuffix("Z")


class Record(NamedTuple):
    """One record: its line in the file, its time if readable, and its JSON bytes."""

    line: int
    time_ms: int | None
    payload: bytes

    def __repr__(self) -> str:
        return f"Record(line={self.line})"


_Bytes = gzip.GzipFile | io.BufferedReader
_Reader = Callable[[_Bytes, Fields, str, TimeForm], Iterator[Record]]


def load_records(
    path: Path, fields: Fields, time_field: str, form: TimeForm = ISO, encoding: str = UTF_8
) -> list[Record]:
    """Read the whole file in its own order, as `each_record` does."""
    return list(each_record(path, fields, time_field, form, encoding))


def each_record(
    path: Path, fields: Fields, time_field: str, form: TimeForm = ISO, encoding: str = UTF_8
) -> Iterator[Record]:
    """Read the file record by record in its own order; `form` is the form of the times in `time_field`, `encoding` that
    of a CSV.

    Raises `UsageError` (no such file, an unknown or damaged format, no column for the time) or `WorldError`.
    """
    with opened_data(path) as (file, ending):
        read = partial(_csv, encoding=encoding) if ending == ".csv" else _READERS[ending]
        yield from read(file, fields, time_field, form)


def column_names(path: Path, encoding: str = UTF_8) -> list[str]:
    """Return the column names of a CSV or Parquet file, none for JSON lines; raises as `each_record`."""
    with opened_data(path) as (file, ending):
        if ending == ".parquet":
            return _parquet_cells(file).names
        if ending != ".csv":
            return []
        with _text_of(file, encoding, "replace") as text:
            return next(csv_rows(text), (0, None))[1] or []


@contextmanager
def opened_data(path: Path) -> Iterator[tuple[_Bytes, str]]:
    """Yield the file's content and its format; errors while it is read name the file."""
    compressed = path.suffix == ".gz"
    ending = (path.with_suffix("") if compressed else path).suffix.lower()
    if ending not in _READERS:
        raise UsageError(
            f"{path}: the name must end in {', '.join(_READERS)}, or in one of these followed by "
            ".gz"
        )
    try:
        with path.open("rb") as raw, gzip.open(raw) if compressed else raw as file:
            yield file, ending
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise UsageError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UsageError(f"{path}: the gzip data is damaged or cut short") from None
    except _BadFileError as problem:
        raise UsageError(f"{path}: {problem}") from None
    except OSError as error:
        raise WorldError(f"{path}: cannot be read: {error.strerror}") from None


class TickedRecords(Sequence[Sequence[Record]]):
    """The records of ticks 0 to `horizon` - 1; ticks without any take no memory, so a horizon may be long."""

    def __init__(self, ticks: Mapping[int, Sequence[Record]], horizon: int) -> None:
        self._records, self._ticks = ticks, range(horizon)
        self._taken = sorted(ticks)
        self._sums = [0, *accumulate(len(ticks[tick]) for tick in self._taken)]

    def __len__(self) -> int:
        """The number of ticks, with or without records."""
        return len(self._ticks)

    @overload
    def __getitem__(self, place: int) -> Sequence[Record]: ...
    @overload
    def __getitem__(self, place: slice) -> list[Sequence[Record]]: ...
    def __getitem__(self, place: int | slice) -> Sequence[Record] | list[Sequence[Record]]:
        if isinstance(place, slice):
            return [self._at(tick) for tick in self._ticks[place]]
        return self._at(self._ticks[place])

    def __iter__(self) -> Iterator[Sequence[Record]]:
        return map(self._at, self._ticks)

    def before(self, tick: int) -> int:
        return self._sums[bisect_left(self._taken, tick)]

    def _at(self, tick: int) -> Sequence[Record]:
        return self._records.get(tick, ())


class RepeatedTicks(TickedRecords):
    """The records of the first `every` ticks, again after every so many, with their times as much later.

    Their times must be written as `moment_text` does. Only the first are held in memory.
    """

    def __init__(self, once: TickedRecords, every: int, step_ms: int) -> None:
        self._once, self._every, self._step_ms = once, every, step_ms
        self._ticks = range(len(once))

    def before(self, tick: int) -> int:
        times, within = divmod(tick, self._every)
        return times * self._once.before(self._every) + self._once.before(within)

    def _at(self, tick: int) -> Sequence[Record]:
        times, within = divmod(tick, self._every)
        records, by_ms = self._once[within], times * self._every * self._step_ms
        return [_later(record, by_ms) for record in records] if times else records


def _later(record: Record, by_ms: int) -> Record:
    if record.time_ms is None:
        return record
    moved = record.time_ms + by_ms
    old, new = (f'"{moment_text(time)}"'.encode() for time in (record.time_ms, moved))
    return Record(record.line, moved, record.payload.replace(old, new, 1))


def ticked(records: Sequence[Record], grid: TickGrid) -> TickedRecords:
    """Return the records of each tick of the grid, by time; equal times keep the file's order.

    A record outside of the range goes to the nearest tick; records without a readable time go to tick 0, before the
    others. The tick of a record depends on that record alone. The grid must have a horizon.
    """
    if grid.horizon is None:
        raise ValueError("a file needs a grid with a horizon")
    ticks: dict[int, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.time_ms is not None, r.time_ms or 0)):
        tick = 0 if record.time_ms is None else grid.tick_of(record.time_ms)
        ticks.setdefault(min(max(tick, 0), grid.horizon - 1), []).append(record)
    return TickedRecords(ticks, grid.horizon)


class _BadFileError(Exception):
    """The file as a whole is invalid; the text needs only the path."""


def _nested(fields: Fields) -> str:
    """Return what is wrong with fields for columns; "" if nothing is."""
    within = (name for name, field in fields.items() if field.path and set(field.path) & {*".["})
    name = next(within, None)
    why = f"field {name!r} has a `path` into objects, which only JSON has: use JSON lines, or name a column"
    return "" if name is None else why


def _column(name: str, fields: Fields) -> str:
    """Return the column of a field: the one that its `path` names, or the one of its own name."""
    return (fields[name].path if name in fields else None) or name


def _columns(header: Sequence[str], fields: Fields, time_field: str) -> None:
    if wrong := _nested(fields):
        raise _BadFileError(wrong)
    time = _column(time_field, fields)
    if time not in header:
        near = meant(time, header)
        raise _BadFileError(
            f"the first line has no column {time!r}, which the file names as the time{near}"
        )
    for name in {time, *(_column(name, fields) for name in fields)}:
        if header.count(name) > 1:
            raise _BadFileError(f"the first line names the column {name!r} more than once")


_TIME = TimeField()


class _Memo(dict[Any, _T]):
    """The results of `make` for the distinct cells of a column, cached within bounds."""

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make

    def __missing__(self, cell: object) -> _T:
        if len(self) >= _CACHED:
            self.clear()
        result = self[cell] = self._make(cell)
        return result


def _cells(name: str, field: FieldSpec) -> _Memo[str]:
    """Return a cache of the `"name":value` text of each distinct cell of a column."""
    label, value = json.dumps(name), cell_reader(field)
    return _Memo(lambda cell: f"{label}:{_ENCODER.encode(value(cell))}")


def delimiter_of(header: str) -> str:
    """Return what stands between the names of columns: a comma, or, without one, what comes most of `;`, tab and `|`.

    >>> [delimiter_of(header) for header in ("at,shop;x", "at;shop", "at\\tshop", "at", 'at;"paid, EUR"')]
    [',', ';', '\\t', ',', ';']
    """
    header = re.sub('"[^"]*"', "", header)
    others = max(";\t|", key=header.count)
    return "," if "," in header or others not in header else others


def csv_rows(lines: Iterable[str]) -> Iterator[tuple[int, list[str] | None]]:
    """Yield line number and cells of each nonblank line; None for an open quote or text after a quote.

    Each line is parsed separately, so no record can swallow another; cells cannot contain line breaks. The first line
    says what stands between cells.
    """
    between = ""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text:
            continue
        between = between or delimiter_of(text)
        if '"' not in text:
            yield number, text.split(between)
            continue
        try:
            yield number, next(csv.reader([text], delimiter=between, strict=True))
        except csv.Error:
            yield number, None


def _text_of(file: _Bytes, encoding: str, bad: str) -> io.TextIOWrapper:
    marked = f"{UTF_8}-sig" if encoding == UTF_8 else encoding
    return io.TextIOWrapper(file, encoding=marked, errors=bad, newline="")


def _csv(
    file: _Bytes, fields: Fields, time_field: str, form: TimeForm, encoding: str = UTF_8
) -> Iterator[Record]:
    # surrogateescape carries bytes that mean nothing through to the payload unchanged: bad UTF-8
    bad = "surrogateescape"
    with _text_of(file, encoding, bad) as text:
        rows = csv_rows(text)
        header = next(rows, (0, None))[1] or []
        by_column = {_column(name, fields): kind for name, kind in fields.items()}
        time = _column(time_field, fields)
        absent = {time, *by_column}.difference(header)
        if _ESCAPED.search("".join(header)) and not "".join(absent).isascii():
            why = "declare the file's `encoding`, such as latin-1 or cp1252"
            raise _BadFileError(f"line 1: the names of the columns are not {encoding}: {why}")
        _columns(header, fields, time_field)
        columns = [
            (header.index(n), _cells(n, kind)) for n, kind in by_column.items() if n in header
        ]
        width, at = len(header), header.index(time)
        cell_of = cell_reader(TimeField(format=form.format, zone="UTC" if form.patterned else None))
        times = _Memo(lambda cell: own_time(cell_of(cell), form))
        for line, row in rows:
            if row is None or len(row) != width:
                yield Record(line, None, _BROKEN_ROW)
                continue
            body = ",".join([cells[row[index]] for index, cells in columns])
            yield Record(line, times[row[at]], f"{{{body}}}".encode("utf-8", bad))


def _jsonl(file: _Bytes, fields: Fields, time_field: str, form: TimeForm) -> Iterator[Record]:
    declared = fields.get(time_field)
    named = declared is None or declared.beside  # then its member has its name
    path = key_path(time_field, declared) if declared and not named else (time_field,)
    decoder = msgspec.json.Decoder(record_type([(path, ("time", Any, None))]))
    time_of = attrgetter(".".join([*map(node, path[:-1]), "time"]))
    for line, raw in enumerate(file, 1):
        payload = raw.removeprefix(_BOM).rstrip(b"\r\n") if line == 1 else raw.rstrip(b"\r\n")
        if not payload.strip():
            continue
        try:
            time = time_of(decoder.decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            time = None
        yield Record(line, own_time(time, form), payload)


def _parquet_cells(file: _Bytes) -> ParquetCells:
    try:
        return ParquetCells(file.read())
    except UnreadableParquet as problem:
        raise _BadFileError(str(problem)) from None


def _parquet(file: _Bytes, fields: Fields, time_field: str, form: TimeForm) -> Iterator[Record]:
    cells = _parquet_cells(file)
    _columns(cells.names, fields, time_field)
    by_column = {_column(name, fields): kind for name, kind in fields.items()}
    time = _column(time_field, fields)
    wanted = [name for name in cells.names if name == time or name in by_column]
    try:
        for line, row in enumerate(cells.rows(wanted, partial(written, form=form)), 1):
            yield _from_parquet(line, wanted, row, by_column, time, form)
    except UnreadableParquet as problem:
        raise _BadFileError(str(problem)) from None


def _from_parquet(
    line: int, names: Sequence[str], row: Row, by_column: Fields, time: str, form: TimeForm
) -> Record:
    if row is None:
        return Record(line, None, _BROKEN_ROW)
    cells = dict(zip(names, row, strict=True))
    body = {name: _plain(cells[name], kind) for name, kind in by_column.items() if name in cells}
    try:
        payload = msgspec.json.encode(body, enc_hook=str)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return Record(line, None, _BROKEN_ROW)
    return Record(line, own_time(_plain(cells[time], _TIME), form), payload)


def _plain(cell: object, field: FieldSpec) -> object:
    """Return the cell or its entries; a decimal that is a number becomes int (7) or float (7.00) as in JSON."""
    if isinstance(field, ListField) and field.separator is not None and isinstance(cell, str):
        return cell_reader(field)(cell)
    if not isinstance(cell, Decimal) or field.type in {"category", "text"}:
        return cell
    return int(cell) if cell.as_tuple().exponent == 0 else float(cell)


_READERS = {".csv": _csv, ".jsonl": _jsonl, ".ndjson": _jsonl, ".parquet": _parquet}


class PlainRow(NamedTuple):
    """A line of a CSV or of JSON lines: its values by name; None if it is not a complete row or no JSON object."""

    line: int
    value: Mapping[str, Any] | None

    def __repr__(self) -> str:
        return f"PlainRow(line={self.line})"


def json_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def cell_rows(lines: Iterable[bytes], encoding: str = UTF_8) -> Iterator[PlainRow]:
    """Yield the rows below the first line of a CSV, as texts by column name; an empty cell is None.

    Columns without a name, or with a name that occurs twice, are left out, as their names do not identify them.
    """
    texts = (line.decode(encoding, "surrogateescape") for line in lines)  # bad UTF-8 passes through
    rows = csv_rows(text.removeprefix(_MARK) if at == 0 else text for at, text in enumerate(texts))
    header = next(rows, (0, None))[1] or []
    once = set(nameable(header))
    for number, row in rows:
        if row is None or len(row) != len(header):
            yield PlainRow(number, None)
            continue
        cells = zip(header, row, strict=True)
        yield PlainRow(number, {name: cell or None for name, cell in cells if name in once})


def nameable(header: Sequence[str]) -> list[str]:
    counts = Counter(header)
    return [name for name in header if name and counts[name] == 1]


def plain_rows(lines: Iterable[bytes], *, cells: bool, encoding: str = UTF_8) -> Iterator[PlainRow]:
    """Yield the rows of a CSV (`cells`) of this encoding, or of JSON lines, of which blank ones are skipped."""
    if cells:
        yield from cell_rows(lines, encoding)
        return
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.strip():
            yield PlainRow(number, json_object(text))


def looks_like_json(begin: bytes) -> bool:
    return begin.removeprefix(_BOM).lstrip().startswith(b"{")


def plain_reader(fields: Fields | None, *, cells: bool) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function that encodes a row as JSON; JSON lines are sent unchanged.

    A CSV's row contains the declared `fields` by their types, or, without `fields`, all columns by their look.
    """
    if not cells:
        return msgspec.json.encode
    if fields is None:
        return lambda row: _encoded({name: as_it_looks(cell) for name, cell in row.items()})
    if wrong := _nested(fields):
        raise UsageError(wrong)
    readers = {_column(name, fields): cell_reader(kind) for name, kind in fields.items()}
    return lambda row: _encoded(
        {name: read(row[name] or "") for name, read in readers.items() if name in row}
    )


def as_it_looks(cell: str | None) -> object:
    """Return the value of a cell without a declared type: a JSON number, true, false or a text; None if empty.

    >>> [as_it_looks(cell) for cell in ("1.5", "7", "007", "True", "", "DE")]
    [1.5, 7, '007', True, None, 'DE']
    """
    if not cell:
        return None
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return _TRUTHS.get(cell.lower(), cell)
    if match[2] is None and match[3] is None:
        return int(cell)
    value = float(cell)
    return value if math.isfinite(value) else cell


def _encoded(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogateescape"
    )


def lines_of(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    return iter(file.readline, b"")
