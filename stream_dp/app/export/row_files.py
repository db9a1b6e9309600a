"""Rows in files: one CSV that grows, or a Parquet file for each group of releases.

Rules: what is half written when a process dies is never seen: a CSV is cut back to what its position says, a Parquet
file has its name only when it is whole. Blocking calls run on threads.
"""

import asyncio
import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stream_dp.adapters.threads import sync_folder
from stream_dp.app.export.rows import COLUMNS, Row
from stream_dp.errors import UsageError, WorldError


class CsvFolder:
    """`PIPELINE.csv` in a folder, with a head line; times in UTC, nothing where there is no number."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._folder = folder
        self._csv = folder / f"{pipeline}.csv"
        self._position = folder / f"{pipeline}.csv.position"

    @property
    def place(self) -> str:
        """The file."""
        return str(self._csv)

    async def open(self) -> int:
        """Cut off what an interrupted export left; see `RowTarget.open`."""
        return await asyncio.to_thread(self._open)

    async def write(self, rows: Sequence[Row], last: int) -> None:
        """Append rows; see `RowTarget.write`."""
        await asyncio.to_thread(self._write, rows, last)

    async def close(self) -> None:
        """Nothing is open between two groups."""

    def _open(self) -> int:
        _made(self._folder)
        if not self._position.exists():
            if self._csv.exists():
                raise UsageError(
                    f"{self._csv} is there without {self._position.name}: it was not written by this command; move "
                    "it away or choose another folder"
                )
            self._append(_line(COLUMNS), -1)
        last, size = map(int, self._position.read_text().split())
        if self._csv.stat().st_size < size:
            raise UsageError(f"{self._csv} is shorter than it was: remove it with {self._position}")
        os.truncate(self._csv, size)
        return last

    def _write(self, rows: Sequence[Row], last: int) -> None:
        self._append(b"".join(_line(_cells(row)) for row in rows), last)

    def _append(self, lines: bytes, last: int) -> None:
        try:
            with self._csv.open("ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            _replace(self._position, f"{last} {size}".encode())
        except OSError as error:
            raise WorldError(f"{self._csv}: {error.strerror}") from None


class ParquetFolder:
    """Files `PIPELINE-FIRST-LAST.parquet` in a folder, named by the sequences of their releases."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._folder, self._pipeline = folder, pipeline

    @property
    def place(self) -> str:
        """The files, as a pattern."""
        return str(self._folder / f"{self._pipeline}-*.parquet")

    async def open(self) -> int:
        """Look at the names that are there; see `RowTarget.open`."""
        await asyncio.to_thread(_made, self._folder)
        self._last = max((int(each.stem.rpartition("-")[2]) for each in self._files()), default=-1)
        return self._last

    async def write(self, rows: Sequence[Row], last: int) -> None:
        """Write one file; see `RowTarget.write`."""
        await asyncio.to_thread(self._write, rows, last)

    async def close(self) -> None:
        """Nothing is open between two groups."""

    def _files(self) -> list[Path]:
        digits = "[0-9]" * 12
        return list(self._folder.glob(f"{self._pipeline}-{digits}-{digits}.parquet"))

    def _write(self, rows: Sequence[Row], last: int) -> None:
        pyarrow, parquet = _pyarrow()
        columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
        table = pyarrow.table(
            {name: columns.get(name, ()) for name in COLUMNS}, schema=_schema(pyarrow)
        )
        path = self._folder / f"{self._pipeline}-{self._last + 1:012}-{last:012}.parquet"
        whole = io.BytesIO()
        parquet.write_table(table, whole)
        try:
            _replace(path, whole.getvalue())
        except OSError as error:
            raise WorldError(f"{path}: {error.strerror}") from None
        self._last = last


def _schema(pyarrow: Any) -> Any:
    text, number, whole = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    kinds = {
        "tick": whole, "tick_end": pyarrow.timestamp("ms", "UTC"), "value": number, "low": number, "high": number,
        "band": number, "confidence": number, "rank": pyarrow.int32(), "sequence": whole,
    }  # fmt: skip
    return pyarrow.schema([(name, kinds.get(name, text)) for name in COLUMNS])


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError("Parquet needs pyarrow: pip install 'stream_dp[export]'") from None
    return pyarrow, pyarrow.parquet


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorldError(f"{folder}: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    half = path.with_name(path.name + ".part")
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    sync_folder(path.parent)


def _cells(row: Row) -> list[str]:
    cells = row._replace(tick_end=row.tick_end.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))  # type: ignore[arg-type]
    return ["" if cell is None else str(cell) for cell in cells]


def _line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
