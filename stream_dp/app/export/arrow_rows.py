"""Rows as a table of Arrow, which Parquet files and DuckDB take whole: row by row they are a hundred times slower."""

from collections.abc import Sequence
from typing import Any

from stream_dp.app.export.rows import COLUMNS, Row
from stream_dp.errors import UsageError


def arrow() -> Any:
    """Return the library.

    Raises:
        UsageError: it is not there.
    """
    try:
        import pyarrow
    except ImportError:
        raise UsageError(
            "Parquet and DuckDB need pyarrow: pip install 'stream_dp[export]'"
        ) from None
    return pyarrow


def arrow_table(rows: Sequence[Row]) -> Any:
    """Return these rows as a `pyarrow.Table` with the columns of every export."""
    pyarrow = arrow()
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    return pyarrow.table({name: columns.get(name, ()) for name in COLUMNS}, schema=_schema(pyarrow))


def _schema(pyarrow: Any) -> Any:
    text, number, whole = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    kinds = {
        "tick": whole, "tick_end": pyarrow.timestamp("ms", "UTC"), "value": number, "low": number, "high": number,
        "band": number, "confidence": number, "rank": pyarrow.int32(), "sequence": whole,
    }  # fmt: skip
    return pyarrow.schema([(name, kinds.get(name, text)) for name in COLUMNS])
