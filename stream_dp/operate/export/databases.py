"""Rows in a table of PostgreSQL or DuckDB.

Rules: a group of rows is one statement and one transaction, all or none; an existing row is overwritten. Errors
name the place, never a password. An existing table must have the columns of this version. DuckDB's times are read
as milliseconds, because its own time type needs one more library. A key that is too long for a PostgreSQL index is
cut.
"""

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stream_dp.errors import UsageError, WorldError
from stream_dp.operate.export.arrow_rows import arrow_table
from stream_dp.operate.export.row_target import Newest, each_place_once
from stream_dp.operate.export.rows import COLUMNS, KINDS, UNIQUE, Row, rows_of

TABLE = "stream_dp_releases"
_NULLABLE = ("value", "low", "high", "band", "name", "rank", "tied")
_NAMES, _KEY = ", ".join(COLUMNS), ", ".join(UNIQUE)
_REST = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in UNIQUE)
_COLUMNS = ", ".join(
    f"{name} {kind}{'' if name in _NULLABLE else ' not null'}" for name, kind in KINDS.items()
)
_CREATE = f"create table if not exists {TABLE} ({_COLUMNS}, primary key ({_KEY}))"
_LAST = f"select coalesce(max(sequence), -1) from {TABLE} where pipeline = "  # noqa: S608 - ours
_SEQUENCES = f"create index if not exists {TABLE}_sequence on {TABLE} (pipeline, sequence)"

_MADE = f"select to_regclass('{TABLE}') is not null and to_regclass('{TABLE}_sequence') is not null"


def _all_of(source: str) -> str:
    """Return the statement that writes all rows of a source."""
    return (
        f"insert into {TABLE} ({_NAMES}) select {_NAMES} from {source} "  # noqa: S608 - ours
        f"on conflict ({_KEY}) do update set {_REST}"
    )


_ARRAYS = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(KINDS.values(), 1))
_WRITE = _all_of(f"unnest({_ARRAYS}) as told ({_NAMES})")
_WRITE_ARROW = _all_of("told")
_AT = f"from {TABLE} where pipeline = {{}} and sequence = {{}}"
_MOMENTS = _NAMES.replace("tick_end", "epoch_ms(tick_end)")
_LONGEST_KEY = 2_000  # bytes


def _same(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> bool:
    return {tuple(row) for row in found} == {tuple(row) for row in wanted}


def _with_ms(row: Row) -> tuple[Any, ...]:
    place, ms = COLUMNS.index("tick_end"), round(row.tick_end.timestamp() * 1000)
    return (*row[:place], ms, *row[place + 1 :])


def for_postgresql(rows: Sequence[Row]) -> list[Row]:
    """Return rows that PostgreSQL accepts: without NUL in texts, and with keys short enough for an index.

    A shortened key ends in a digest of the whole key, so different keys stay different.
    """
    return [_taken(row) for row in rows]


def _taken(row: Row) -> Row:
    key, name = row.key, row.name
    if "\0" in key or len(key.encode()) > _LONGEST_KEY:
        kept = key.replace("\0", "\N{SYMBOL FOR NULL}").encode()[: _LONGEST_KEY - 100]
        key = f"{kept.decode(errors='ignore')}… {hashlib.sha256(row.key.encode()).hexdigest()}"
    if name is not None:
        name = name.replace("\0", "\N{SYMBOL FOR NULL}")
    return row if (key, name) == (row.key, row.name) else row._replace(key=key, name=name)


class _Table:
    """A table reached through a client library; errors of the library become `WorldError`s that name the table."""

    _errors: tuple[type[Exception], ...]

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._client: Any = None

    @property
    @abstractmethod
    def place(self) -> str:
        """See `RowTarget.place`."""

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise WorldError(f"{self.place}: {self._words(error)}") from None

    def _words(self, error: Exception) -> str:
        return str(error).splitlines()[0]


class PostgresqlTable(_Table):
    """The table in a PostgreSQL database; missing parts of the address come from PGPASSWORD, PGPASSFILE, ..."""

    def __init__(self, address: str, pipeline: str) -> None:
        super().__init__(pipeline)
        self._address = address

    @property
    def place(self) -> str:
        """The table and its database."""
        parts = urlsplit(self._address)
        return f"table {TABLE} of {parts.hostname or 'localhost'}{parts.path}"

    async def open(self) -> int:
        """Connect and make the table if it is missing; see `RowTarget.open`."""
        try:
            import asyncpg
        except ImportError:
            raise UsageError("PostgreSQL needs asyncpg: pip install 'stream_dp[export]'") from None
        self._errors = (
            asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError,
            OverflowError,
        )  # fmt: skip
        self._no_copy = (asyncpg.UniqueViolationError, asyncpg.FeatureNotSupportedError)
        with self._telling():
            try:
                self._client = await asyncpg.connect(self._address, timeout=30)
            except ValueError:
                raise UsageError(
                    "--to: is no address of a database, such as postgresql://user@host:5432/name"
                ) from None
            if not await self._client.fetchval(_MADE):
                await self._client.execute(f"{_CREATE}; {_SEQUENCES}")
            return int(await self._client.fetchval(f"{_LAST}$1", self._pipeline))

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Compare the rows; see `RowTarget.holds`."""
        query = f"select {_NAMES} {_AT.format('$1', '$2')}"
        with self._telling():
            found = await self._client.fetch(query, self._pipeline, sequence)
        return _same(found, for_postgresql(rows_of(self._pipeline, body)))

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Copy rows; if some exist already, or COPY is not allowed, insert them. See `RowTarget.write`."""
        if not rows:
            return
        taken = for_postgresql(rows)
        with self._telling():
            try:
                await self._client.copy_records_to_table(TABLE, records=taken, columns=COLUMNS)
            except self._no_copy:
                await self._client.execute(_WRITE, *zip(*each_place_once(taken), strict=True))

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.close(timeout=10)

    def _words(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"


class DuckdbTable(_Table):
    """The table in a DuckDB file, which only one process at a time can write."""

    def __init__(self, path: Path, pipeline: str) -> None:
        super().__init__(pipeline)
        self._path = path

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
        self._errors = (duckdb.Error,)
        return await asyncio.to_thread(self._opened, duckdb)

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Compare the rows; see `RowTarget.holds`."""
        found = await asyncio.to_thread(self._at, sequence)
        return _same(found, [_with_ms(row) for row in rows_of(self._pipeline, body)])

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write rows in one transaction; see `RowTarget.write`."""
        if rows:
            await asyncio.to_thread(self._write, each_place_once(rows))

    async def close(self) -> None:
        """Close the file."""
        if self._client is not None:
            self._client.close()

    def _opened(self, duckdb: Any) -> int:
        with self._telling():
            self._client = duckdb.connect(str(self._path))
            for query in ("set timezone = 'UTC'", _CREATE):
                self._asked(query)
            return int(self._asked(f"{_LAST}?", [self._pipeline])[0][0])

    def _at(self, sequence: int) -> list[tuple[Any, ...]]:
        query = f"select {_MOMENTS} {_AT.format('?', '?')}"
        with self._telling():
            return self._asked(query, [self._pipeline, sequence])

    def _asked(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of the answer: a result that is not read to its end blocks the next query."""
        return list(self._client.execute(query, list(values)).fetchall())

    def _write(self, rows: Sequence[Row]) -> None:
        with self._telling():
            self._client.register("told", arrow_table(rows))
            self._asked(_WRITE_ARROW)
            self._client.unregister("told")
