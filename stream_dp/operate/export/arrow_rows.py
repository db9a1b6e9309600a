"""Rows as an Arrow table, which Parquet and DuckDB read a hundred times faster than single rows."""

from collections.abc import Sequence
from typing import Any

from stream_dp.errors import UsageError
from stream_dp.operate.export.rows import COLUMNS, KINDS, Row


def arrow() -> Any:
    """Return the module `pyarrow`.

    Raises:
        UsageError: pyarrow is not installed.
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
    types = {
        "text": pyarrow.string(), "bigint": pyarrow.int64(), "integer": pyarrow.int32(),
        "double precision": pyarrow.float64(), "timestamptz": pyarrow.timestamp("ms", "UTC"),
    }  # fmt: skip
    return pyarrow.schema([(name, types[kind]) for name, kind in KINDS.items()])
