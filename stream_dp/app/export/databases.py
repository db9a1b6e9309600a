"""Rows in a table of PostgreSQL or DuckDB.

Rules: a group of rows is one transaction; a row that is there already is written over. Errors name the place, never a
password. A table that is there must have the columns of this version.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stream_dp.app.export.rows import COLUMNS, UNIQUE, Row
from stream_dp.errors import UsageError, WorldError

TABLE = "stream_dp_releases"
_KINDS = {
    "tick": "bigint", "tick_end": "timestamptz", "value": "double precision", "low": "double precision",
    "high": "double precision", "band": "double precision", "confidence": "double precision", "rank": "integer",
    "sequence": "bigint",
}  # fmt: skip
_NULLABLE = ("value", "low", "high", "band", "name", "rank", "tied")
_NAMES, _KEY = ", ".join(COLUMNS), ", ".join(UNIQUE)
_REST = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in UNIQUE)
_COLUMNS = ", ".join(
    f"{name} {_KINDS.get(name, 'text')}{'' if name in _NULLABLE else ' not null'}"
    for name in COLUMNS
)
_CREATE = f"create table if not exists {TABLE} ({_COLUMNS}, primary key ({_KEY}))"
_LAST = f"select coalesce(max(sequence), -1) from {TABLE} where pipeline = "  # noqa: S608 - ours
_SEQUENCES = f"create index if not exists {TABLE}_sequence on {TABLE} (pipeline, sequence)"


def insert(places: Sequence[str]) -> str:
    """Return the statement that writes a row, whose values stand at these places of it."""
    values = f"({', '.join(places)})"
    return (
        f"insert into {TABLE} ({_NAMES}) values {values} on conflict ({_KEY}) do update set {_REST}"  # noqa: S608 - ours
    )


class PostgresqlTable:
    """The table in a PostgreSQL database; what the address leaves out is taken from PGPASSWORD, PGPASSFILE, ..."""

    def __init__(self, address: str, pipeline: str) -> None:
        self._address, self._pipeline = address, pipeline
        self._client: Any = None

    @property
    def place(self) -> str:
        """The table and its database."""
        parts = urlsplit(self._address)
        return f"table {TABLE} of {parts.hostname or 'localhost'}{parts.path}"

    async def open(self) -> int:
        """Connect; make the table where there is none; see `RowTarget.open`."""
        try:
            import asyncpg
        except ImportError:
            raise UsageError("PostgreSQL needs asyncpg: pip install 'stream_dp[export]'") from None
        self._errors = (
            asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError,
        )  # fmt: skip
        try:
            self._client = await asyncpg.connect(self._address, timeout=30)
            await self._client.execute(f"{_CREATE}; {_SEQUENCES}")
            return int(await self._client.fetchval(f"{_LAST}$1", self._pipeline))
        except ValueError:
            raise UsageError(
                "--to: is no address of a database, such as postgresql://user@host:5432/name"
            ) from None
        except self._errors as error:
            raise self._failed(error) from None

    async def write(self, rows: Sequence[Row], last: int) -> None:
        """Write rows in one transaction; see `RowTarget.write`."""
        try:
            async with self._client.transaction():
                await self._client.executemany(
                    insert([f"${place}" for place in range(1, len(COLUMNS) + 1)]), rows
                )
        except self._errors as error:
            raise self._failed(error) from None

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.close(timeout=10)

    def _failed(self, error: Exception) -> WorldError:
        return WorldError(f"{self.place}: {type(error).__name__}: {error}")


class DuckdbTable:
    """The table in a DuckDB file, which one process at a time may write."""

    def __init__(self, path: Path, pipeline: str) -> None:
        self._path, self._pipeline = path, pipeline
        self._client: Any = None

    @property
    def place(self) -> str:
        """The table and its file."""
        return f"table {TABLE} of {self._path}"

    async def open(self) -> int:
        """Open or make the file and the table; see `RowTarget.open`."""
        try:
            import duckdb
        except ImportError:
            raise UsageError("DuckDB needs duckdb: pip install 'stream_dp[export]'") from None
        self._errors = duckdb.Error
        return await asyncio.to_thread(self._opened, duckdb)

    async def write(self, rows: Sequence[Row], last: int) -> None:
        """Write rows in one transaction; see `RowTarget.write`."""
        await asyncio.to_thread(self._write, rows)

    async def close(self) -> None:
        """Close the file."""
        if self._client is not None:
            self._client.close()

    def _opened(self, duckdb: Any) -> int:
        try:
            self._client = duckdb.connect(str(self._path))
            self._client.execute(_CREATE)
            found = self._client.execute(f"{_LAST}?", [self._pipeline]).fetchone()
        except self._errors as error:
            raise self._failed(error) from None
        return int(found[0])

    def _write(self, rows: Sequence[Row]) -> None:
        try:
            self._client.begin()
            if rows:
                self._client.executemany(insert("?" * len(COLUMNS)), [list(row) for row in rows])
            self._client.commit()
        except self._errors as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> WorldError:
        return WorldError(f"{self.place}: {str(error).splitlines()[0]}")
