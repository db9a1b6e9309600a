"""The rows of a Parquet file, cell by cell.

Rules: a cell that cannot be converted (bad UTF-8, a date after the year 9999) affects only its own row, which
becomes None. A timestamp with a zone becomes text in UTC, one without becomes text without an offset, both in whole
milliseconds, floored, also before 1970. The library is imported on first use. Error texts name the file's columns,
never a cell.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

from stream_dp.core.moments import moment_text

Row: TypeAlias = Sequence[object] | None
_BAD: Final = object()
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


class UnreadableParquet(Exception):
    """The file as a whole cannot be read; the text needs only the path."""


class ParquetCells:
    """The columns of one file, and its rows."""

    def __init__(self, data: bytes) -> None:
        """Read the file's schema.

        Raises:
            UnreadableParquet: pyarrow is not installed, or this is not a Parquet file.
        """
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
            raise _unreadable() from None

    def rows(self, wanted: Sequence[str], text_of: Callable[[int], object]) -> Iterator[Row]:
        """Yield the cells of the wanted columns, row by row, in the file's order; None for a row with a bad cell.

        `text_of` writes a timestamp with a zone, given in milliseconds; if it raises OverflowError, the cell is
        bad.

        Raises:
            UnreadableParquet: the file is damaged.
        """
        try:
            for batch in self._file.iter_batches(columns=list(wanted)):
                by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
                columns = [self._column(by_name[name], text_of) for name in wanted]
                for row in zip(*columns, strict=True):
                    yield None if any(cell is _BAD for cell in row) else row
        except self._broken:
            raise _unreadable() from None

    def _column(self, column: Any, text_of: Callable[[int], object]) -> list[object]:
        """Return the cells of one column; a bad cell is `_BAD`."""
        if self._arrow.types.is_timestamp(column.type):
            return self._moments(column, text_of)
        try:
            cells: list[object] = column.to_pylist()
        except self._no_value:
            return [self._cell(one) for one in column]
        return cells

    def _moments(self, column: Any, text_of: Callable[[int], object]) -> list[object]:
        """Convert timestamps from their integers, so that no unit or zone makes the conversion of a column fail."""
        times, over = _PER_MS[column.type.unit]
        write = _local_text if column.type.tz is None else text_of

        def cell(count: int | None) -> object:
            try:
                return None if count is None else write(count * times // over)
            except OverflowError:
                return _BAD

        return [cell(count) for count in column.cast(self._arrow.int64()).to_pylist()]

    def _cell(self, scalar: Any) -> object:
        try:
            return scalar.as_py()
        except self._no_value:
            return _BAD


def _local_text(moment: int) -> str:
    return moment_text(moment).removesuffix("Z")


def _unreadable() -> UnreadableParquet:
    return UnreadableParquet("not a Parquet file that pyarrow can read")
