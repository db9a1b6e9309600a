"""Rows in files: one CSV that grows, or a Parquet file for each group of releases.

Rules: readers never see a half-written group after a crash: a CSV is cut back to the size in its position file, and
a Parquet file gets its name only when it is whole. The position file is made before the CSV. A lock keeps a second
export away. Blocking calls run on threads.
"""

import asyncio
import csv
import fcntl
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

from stream_dp.errors import UsageError, WorldError
from stream_dp.files.threads import sync_folder
from stream_dp.operate.export.arrow_rows import arrow, arrow_table
from stream_dp.operate.export.row_target import Newest
from stream_dp.operate.export.rows import COLUMNS, Row

_REACHED = b"stream_dp_reached"
_END = COLUMNS.index("tick_end")


class _Folder:
    """A folder with the files of a pipeline; only one export at a time writes to it."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._folder, self._pipeline = folder, pipeline
        self._lock = -1
        self._reached = Newest()

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Compare digests; see `RowTarget.holds`."""
        return self._reached == Newest.at(sequence, body)

    async def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _make(self) -> None:
        """Make the folder and lock it for this pipeline.

        Raises:
            UsageError: another export holds the lock.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        name = self._folder / f".{self._pipeline}.lock"
        self._lock = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.place}: another export of {self._pipeline} writes there; let it, or choose another folder"
            ) from None

    def _failed(self, error: OSError) -> WorldError:
        return WorldError(f"{error.filename or self.place}: {error.strerror}")


class CsvFolder(_Folder):
    """`PIPELINE.csv` in a folder, with a header line; times in UTC, an empty cell for a missing number."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        super().__init__(folder, pipeline)
        self._csv = folder / f"{pipeline}.csv"
        self._position = folder / f"{pipeline}.csv.position"

    @property
    def place(self) -> str:
        """The file."""
        return str(self._csv)

    async def open(self) -> int:
        """Cut off the rest of an interrupted export; see `RowTarget.open`."""
        return await asyncio.to_thread(self._open)

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Append rows; see `RowTarget.write`."""
        await asyncio.to_thread(self._write, rows, last)

    def _open(self) -> int:
        try:
            self._make()
            if not self._position.exists():
                if self._csv.exists():
                    raise UsageError(
                        f"{self._csv} is there without {self._position.name}: it was not written by this command; move "
                        "it away or choose another folder"
                    )
                self._say(Newest(), 0)
            self._reached, size = self._said()
            if size > (self._csv.stat().st_size if self._csv.exists() else 0):
                raise UsageError(
                    f"{self._csv} is shorter than it was: remove {self._position}, too"
                )
            with self._csv.open("ab") as file:
                file.truncate(size)
            if not size:
                self._append(_lines([COLUMNS]), self._reached)
        except OSError as error:
            raise self._failed(error) from None
        return self._reached.sequence

    def _write(self, rows: Sequence[Row], last: Newest) -> None:
        try:
            self._append(_lines(_in_utc(rows)), last)
        except OSError as error:
            raise self._failed(error) from None

    def _append(self, lines: bytes, last: Newest) -> None:
        with self._csv.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self._say(last, size)

    def _say(self, last: Newest, size: int) -> None:
        _replace(self._position, f"{last.sequence} {size} {last.digest}".encode())

    def _said(self) -> tuple[Newest, int]:
        try:
            sequence, size, digest = self._position.read_text().split()
            return Newest(int(sequence), digest), int(size)
        except ValueError:
            raise UsageError(
                f"{self._position} was not written by this command: move it and {self._csv} away"
            ) from None


class ParquetFolder(_Folder):
    """Files `PIPELINE-FIRST-LAST.parquet` in a folder, named by the sequences of their releases."""

    @property
    def place(self) -> str:
        """The files, as a pattern."""
        return str(self._folder / f"{self._pipeline}-*.parquet")

    async def open(self) -> int:
        """Find the newest file by its name; see `RowTarget.open`."""
        return await asyncio.to_thread(self._open)

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write one file; see `RowTarget.write`."""
        await asyncio.to_thread(self._write, rows, last)

    def _open(self) -> int:
        arrow()
        try:
            self._make()
            for half in self._folder.glob(f".{self._files}.part"):
                half.unlink()
        except OSError as error:
            raise self._failed(error) from None
        found = {_sequence(each): each for each in self._folder.glob(self._files)}
        if found:
            last = max(found)
            self._reached = Newest(last, _digest_in(found[last]))
        return self._reached.sequence

    @property
    def _files(self) -> str:
        digits = "[0-9]" * 12
        return f"{self._pipeline}-{digits}-{digits}.parquet"

    def _write(self, rows: Sequence[Row], last: Newest) -> None:
        from pyarrow import parquet

        table = arrow_table(rows).replace_schema_metadata({_REACHED: last.digest})
        first = self._reached.sequence + 1
        path = self._folder / f"{self._pipeline}-{first:012}-{last.sequence:012}.parquet"
        whole = io.BytesIO()
        parquet.write_table(table, whole)
        try:
            _replace(path, whole.getvalue())
        except OSError as error:
            raise self._failed(error) from None
        self._reached = last


def _sequence(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _digest_in(path: Path) -> str:
    """Return the digest stored in a file that this command wrote.

    Raises:
        UsageError: the file has no such digest.
    """
    from pyarrow import ArrowException, parquet

    try:
        return str((parquet.read_schema(path).metadata or {})[_REACHED].decode())
    except (ArrowException, KeyError, OSError):
        raise UsageError(
            f"{path} was not written by this command: move it away or choose another folder"
        ) from None


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically; while it is written, it has a name that readers ignore."""
    half = path.with_name(f".{path.name}.part")
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    sync_folder(path.parent)


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    """Return CSV lines that end with a newline; cells with a line feed or a carriage return are quoted."""
    lines: list[str] = []
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines).encode()


def _in_utc(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    """Yield the cells of each row, with times in UTC."""
    for at, same in groupby(rows, attrgetter("tick_end")):
        end = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        yield from ((*row[:_END], end, *row[_END + 1 :]) for row in same)
