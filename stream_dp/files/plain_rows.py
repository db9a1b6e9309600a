"""The rows of a CSV or of JSON lines, without a schema: for `send` and `init`.

Rules: as in `records`, every line is one row, and a bad line affects no other. Cells of a CSV are texts; an empty
cell is None. Columns without a name, or with a name that occurs twice, are left out, because their names do not
identify them. Error texts contain no cell.
"""

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec

from stream_dp.files.records import Fields, cell_reader, csv_rows

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_TRUTHS = {"true": True, "false": False}
_BOM = "\ufeff"


class PlainRow(NamedTuple):
    """One line: its number and its values by name; None if it is not a complete row or not a JSON object."""

    line: int
    value: Mapping[str, Any] | None

    def __repr__(self) -> str:
        return f"PlainRow(line={self.line})"


def json_rows(lines: Iterable[bytes]) -> Iterator[PlainRow]:
    """Yield the objects of JSON lines; blank lines are skipped."""
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(_BOM.encode()) if number == 1 else line
        if not text.strip():
            continue
        yield PlainRow(number, json_object(text))


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a payload; None for anything else."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def cell_rows(lines: Iterable[bytes]) -> Iterator[PlainRow]:
    """Yield the rows below the first line of a CSV, with cells by column name."""
    rows = csv_rows(_texts(lines))
    header = next(rows, (0, None))[1] or []
    once = set(nameable(header))
    for number, row in rows:
        if row is None or len(row) != len(header):
            yield PlainRow(number, None)
            continue
        cells = zip(header, row, strict=True)
        yield PlainRow(number, {name: cell or None for name, cell in cells if name in once})


def nameable(header: Sequence[str]) -> list[str]:
    """Return the names that occur exactly once in a header."""
    counts = Counter(header)
    return [name for name in header if name and counts[name] == 1]


def plain_rows(lines: Iterable[bytes], *, cells: bool) -> Iterator[PlainRow]:
    """Yield the rows of a CSV (`cells`), or of JSON lines."""
    return (cell_rows if cells else json_rows)(lines)


def looks_like_json(begin: bytes) -> bool:
    """Return whether a text begins with a JSON object, and so has no CSV header."""
    return begin.removeprefix(_BOM.encode()).lstrip().startswith(b"{")


def plain_reader(fields: Fields | None, *, cells: bool) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function that encodes a row as JSON; JSON lines are sent unchanged.

    A CSV's row contains the declared `fields` by their types, or, without `fields`, all columns by their look.
    """
    if not cells:
        return msgspec.json.encode
    if fields is None:
        return lambda row: _encoded({name: as_it_looks(cell) for name, cell in row.items()})
    readers = {name: cell_reader(kind) for name, kind in fields.items()}
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


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines as text; bad UTF-8 passes through unchanged."""
    for number, line in enumerate(lines):
        text = line.decode("utf-8", "surrogateescape")
        yield text.removeprefix(_BOM) if number == 0 else text


def _encoded(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogateescape"
    )


def lines_of(file: BinaryIO | io.BufferedIOBase) -> Iterator[bytes]:
    """Yield the lines of an open file as they arrive."""
    return iter(file.readline, b"")
