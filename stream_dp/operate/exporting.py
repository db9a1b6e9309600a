"""Exports: write new releases, group by group, into CSV or Parquet files, or into a table of PostgreSQL or DuckDB.

Rules: a release is rows of one long table, one for each of its numbers, made from published bytes alone. A row is
identified by pipeline, series, tick, window and key; writing it again changes nothing. Targets of former versions of
stream_dp have no column `version`.
"""

import asyncio
import csv
import fcntl
import hashlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from stream_dp import __version__
from stream_dp.client.frames import (
    COLUMNS,
    HAS_VERSION,
    KINDS,
    TABLE,
    Row,
    arrow_table,
    library,
    rows_of,
)
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.threads import replace_file
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.journal.release import KeysUnknown, ReleaseReader, read, read_head
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.published_bodies import all_published, find_keys, published
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.yaml import load

UNIQUE = ("pipeline", "series", "tick", "time_window", "key")
"""The columns that identify a row."""
_T = TypeVar("_T")

_FORMER = COLUMNS[: COLUMNS.index("version")]
_PLACES = [COLUMNS.index(name) for name in UNIQUE]
_END = COLUMNS.index("tick_end")


class Newest(NamedTuple):
    """The last release of a target: its sequence number, -1 before the first, and the digest of its bytes."""

    sequence: int = -1
    digest: str = "-"

    @classmethod
    def at(cls, sequence: int, body: bytes) -> "Newest":
        return cls(sequence, hashlib.sha256(body).hexdigest())


class RowTarget(Protocol):
    """A table in which writing the same rows again changes nothing; only one export at a time writes to it.

    Every method raises WorldError if the target cannot be reached, read or written.
    """

    @property
    def place(self) -> str:
        """The target's name for people, without any secret."""
        ...

    async def open(self) -> int:
        """Make missing parts; return the sequence number of the last completely stored release, -1 if none.

        Raises:
            UsageError: something else is stored there, or another export writes to it.
        """
        ...

    async def holds(self, sequence: int, body: bytes, rows: Sequence[Row]) -> bool:
        """Return whether the last release, as `open` found it, has this number, these bytes and these rows."""
        ...

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write all rows or none, replacing rows with the same key; the last one is of release `last`.

        After a WorldError the caller may write the same rows again.
        """
        ...

    async def close(self) -> None: ...


def each_place_once(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; among rows with the same key (`UNIQUE`), only the last one."""
    return list({tuple(row[place] for place in _PLACES): row for row in rows}.values())


def _with_end(row: Row, end: object) -> tuple[object, ...]:
    return (*row[:_END], end, *row[_END + 1 :])


class _Blocking(ABC):
    """A target whose calls block: they run on threads, and `_errors` become `WorldError`s in its own words."""

    _errors: tuple[type[Exception], ...] = (OSError,)

    async def open(self) -> int:
        return await self._on_thread(self._open)

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        await self._on_thread(self._write, rows, last)

    async def _on_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        try:
            return await asyncio.to_thread(work, *arguments)
        except self._errors as error:
            raise WorldError(self._words(error)) from None

    @abstractmethod
    def _open(self) -> int: ...

    @abstractmethod
    def _write(self, rows: Sequence[Row], last: Newest) -> None: ...

    @abstractmethod
    def _words(self, error: Any) -> str: ...


_DIGEST_KEY = b"stream_dp_reached"


class _Folder(_Blocking):
    """A folder with the files of a pipeline; a lock keeps a second export away."""

    def __init__(self, folder: Path, pipeline: str, files: str) -> None:
        self.place = str(folder / files)
        self._folder, self._pipeline = folder, pipeline
        self._lock = -1
        self._reached = Newest()
        self._former = False  # whether its files have the columns `_FORMER`

    async def holds(self, sequence: int, body: bytes, rows: Sequence[Row]) -> bool:
        return self._reached == Newest.at(sequence, body)

    async def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = self._folder / f".{self._pipeline}.lock"
        self._lock = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.place}: another export of {self._pipeline} writes there; wait until it ends, or choose another "
                "folder"
            ) from None
        self._look()
        return self._reached.sequence

    @abstractmethod
    def _look(self) -> None:
        """Remove the rest of an interrupted export, and note the last release in the files."""

    def _words(self, error: OSError) -> str:
        return f"{error.filename or self.place}: {error.strerror}"


class CsvFolder(_Folder):
    """`PIPELINE.csv` in a folder, with a header line; times in UTC, an empty cell for a missing number.

    After a crash, the CSV is cut back to the size in its position file, so readers never see half a group. The
    position file is made before the CSV.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        super().__init__(folder, pipeline, f"{pipeline}.csv")
        self._csv = folder / f"{pipeline}.csv"
        self._position = folder / f"{pipeline}.csv.position"

    def _look(self) -> None:
        if not self._position.exists():
            if self._csv.exists():
                raise UsageError(
                    f"{self._csv} exists without {self._position.name}, so this command did not write "
                    "it; move it away or choose another folder"
                )
            self._set_position(Newest(), 0)
        try:
            sequence, cut, digest = self._position.read_text().split()
            self._reached, size = Newest(int(sequence), digest), int(cut)
        except ValueError:
            raise UsageError(
                f"{self._position} was not written by this command: move it and {self._csv} away"
            ) from None
        if size > (self._csv.stat().st_size if self._csv.exists() else 0):
            raise UsageError(
                f"{self._csv} is shorter than at the last export: remove {self._position}, too, and "
                "export again"
            )
        with self._csv.open("ab") as file:
            file.truncate(size)
        if not size:
            self._append(_lines([COLUMNS]), self._reached)
        with self._csv.open("rb") as file:
            self._former = file.readline() == _lines([_FORMER])

    def _write(self, rows: Sequence[Row], last: Newest) -> None:
        lines = _in_utc(rows)
        if self._former:
            if changed := next((row for row in rows if row.version > 1), None):
                raise UsageError(
                    f"{self._csv} has no column for versions, but series {changed.series} has version "
                    f"{changed.version} now: move it and {self._position.name} away and export again"
                )
            lines = (line[: len(_FORMER)] for line in lines)
        self._append(_lines(lines), last)

    def _append(self, lines: bytes, last: Newest) -> None:
        with self._csv.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        self._set_position(last, size)

    def _set_position(self, last: Newest, size: int) -> None:
        replace_file(self._position, f"{last.sequence} {size} {last.digest}".encode())


class ParquetFolder(_Folder):
    """Files `PIPELINE-FIRST-LAST.parquet` in a folder, named by the sequences of their releases.

    A file gets its name only when it is whole, so readers never see half a group. Behind files of a former version of
    stream_dp, the first file with the column `version` is that in which a series has a version other than 1.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        super().__init__(folder, pipeline, f"{pipeline}-*.parquet")

    def _look(self) -> None:
        library("pyarrow", "export")
        digits = "[0-9]" * 12
        files = f"{self._pipeline}-{digits}-{digits}.parquet"
        for half in self._folder.glob(f".{files}.part"):
            half.unlink()
        paths = {int(path.stem.rpartition("-")[2]): path for path in self._folder.glob(files)}
        if paths:
            last = max(paths)
            digest, names = _digest_and_columns(paths[last])
            self._reached, self._former = Newest(last, digest), "version" not in names

    def _write(self, rows: Sequence[Row], last: Newest) -> None:
        from pyarrow import parquet

        table = arrow_table(rows).replace_schema_metadata({_DIGEST_KEY: last.digest})
        self._former = self._former and all(row.version == 1 for row in rows)
        if self._former:
            table = table.select(_FORMER)
        first = self._reached.sequence + 1
        path = self._folder / f"{self._pipeline}-{first:012}-{last.sequence:012}.parquet"
        whole = io.BytesIO()
        parquet.write_table(table, whole)
        replace_file(path, whole.getvalue())
        self._reached = last


def _digest_and_columns(path: Path) -> tuple[str, list[str]]:
    """Return what is in a file that this command wrote; raise UsageError if the file has no digest."""
    from pyarrow import ArrowException, parquet

    try:
        schema = parquet.read_schema(path)
        return (schema.metadata or {})[_DIGEST_KEY].decode(), schema.names
    except (ArrowException, KeyError, OSError):
        raise UsageError(
            f"{path} was not written by this command: move it away or choose another folder"
        ) from None


def _lines(rows: Iterable[Sequence[object]]) -> bytes:
    """Return CSV lines that end with a newline; cells with a line feed or a carriage return are quoted."""
    lines: list[str] = []
    csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n").writerows(rows)
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines).encode()


def _in_utc(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    for at, same in groupby(rows, attrgetter("tick_end")):
        end = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        yield from (_with_end(row, end) for row in same)


_NULLABLE = ("value", "low", "high", "band", "name", "rank", "tied")
_NAMES, _KEY = ", ".join(COLUMNS), ", ".join(UNIQUE)
_REST = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in UNIQUE)
_COLUMNS = ", ".join(
    f"{name} {KINDS[name]}{'' if name in _NULLABLE else ' not null'}" for name in _FORMER
)
_CREATE = f"create table if not exists {TABLE} ({_COLUMNS}, primary key ({_KEY}))"
_ADD = f"alter table {TABLE} add column if not exists version integer default 1"
"""For tables of former versions and new ones; former versions go on in a table that has the column."""
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


def _same(stored: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> bool:
    """Return whether rows are the same but for their version, which an export of a former version left out."""
    kept = len(_FORMER)
    return {tuple(row)[:kept] for row in stored} == {tuple(row)[:kept] for row in wanted}


def for_postgresql(rows: Sequence[Row]) -> list[Row]:
    """Return rows that PostgreSQL accepts: without NUL in texts, and with keys short enough for an index.

    A shortened key ends in a digest of the whole key, so different keys stay different.
    """
    return [_accepted(row) for row in rows]


def _accepted(row: Row) -> Row:
    key, name = row.key, row.name
    if "\0" in key or len(key.encode()) > _LONGEST_KEY:
        kept = key.replace("\0", "\N{SYMBOL FOR NULL}").encode()[: _LONGEST_KEY - 100]
        key = f"{kept.decode(errors='ignore')}… {hashlib.sha256(row.key.encode()).hexdigest()}"
    if name is not None:
        name = name.replace("\0", "\N{SYMBOL FOR NULL}")
    return row if (key, name) == (row.key, row.name) else row._replace(key=key, name=name)


class PostgresqlTable:
    """The table in a PostgreSQL database; missing parts of the address come from PGPASSWORD, PGPASSFILE, ...

    It must have the columns of this version; only `version` is added where it is missing. A group of rows is one
    statement and one transaction, all or none; an existing row is overwritten. Errors name the table, never a password.
    """

    def __init__(self, address: str, pipeline: str) -> None:
        self._address, self._pipeline = address, pipeline
        self._client: Any = None

    @property
    def place(self) -> str:
        parts = urlsplit(self._address)
        return f"table {TABLE} of {parts.hostname or 'localhost'}{parts.path}"

    async def open(self) -> int:
        try:
            import asyncpg
        except ImportError:
            raise UsageError("PostgreSQL needs asyncpg: pip install 'stream_dp[export]'") from None
        self._errors = (
            asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError,
            OverflowError,
        )  # fmt: skip
        not_allowed = asyncpg.InsufficientPrivilegeError
        self._no_copy = (asyncpg.UniqueViolationError, asyncpg.FeatureNotSupportedError)
        with self._naming_the_table():
            try:
                self._client = await asyncpg.connect(self._address, timeout=30)
            except ValueError:
                raise UsageError(
                    "--to: must be the address of a database, such as postgresql://user@host:5432/name"
                ) from None
            if not await self._client.fetchval(_MADE):
                await self._client.execute(f"{_CREATE}; {_SEQUENCES}")
            if not await self._client.fetchval(HAS_VERSION):
                try:
                    await self._client.execute(_ADD)
                except not_allowed:
                    raise UsageError(
                        f"{self.place} has no column version, and this user may not add it: let the owner of the "
                        f"table run `{_ADD}`, then export again"
                    ) from None
            return int(await self._client.fetchval(f"{_LAST}$1", self._pipeline))

    async def holds(self, sequence: int, body: bytes, rows: Sequence[Row]) -> bool:
        query = f"select {_NAMES} {_AT.format('$1', '$2')}"
        with self._naming_the_table():
            stored = await self._client.fetch(query, self._pipeline, sequence)
        return _same(stored, for_postgresql(rows))

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Copy rows; if some exist already, or COPY is not allowed, insert them."""
        if not rows:
            return
        accepted = for_postgresql(rows)
        with self._naming_the_table():
            try:
                await self._client.copy_records_to_table(TABLE, records=accepted, columns=COLUMNS)
            except self._no_copy:
                columns = zip(*each_place_once(accepted), strict=True)
                await self._client.execute(_WRITE, *columns)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close(timeout=10)

    @contextmanager
    def _naming_the_table(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise WorldError(f"{self.place}: {type(error).__name__}: {error}") from None


class DuckdbTable(_Blocking):
    """The same table in a DuckDB file, which only one process at a time can write.

    Times are read as milliseconds, because DuckDB's own time type needs one more library.
    """

    def __init__(self, path: Path, pipeline: str) -> None:
        self.place = f"table {TABLE} of {path}"
        self._path, self._pipeline = path, pipeline
        self._client: Any = None

    async def open(self) -> int:
        try:
            import duckdb
        except ImportError:
            raise UsageError("DuckDB needs duckdb: pip install 'stream_dp[export]'") from None
        self._errors, self._connect = (duckdb.Error,), duckdb.connect
        return await super().open()

    async def holds(self, sequence: int, body: bytes, rows: Sequence[Row]) -> bool:
        query = f"select {_MOMENTS} {_AT.format('?', '?')}"
        stored = await self._on_thread(self._query, query, (self._pipeline, sequence))
        return _same(
            stored, [_with_end(row, round(row.tick_end.timestamp() * 1000)) for row in rows]
        )

    async def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _open(self) -> int:
        self._client = self._connect(str(self._path))
        for query in ("set timezone = 'UTC'", _CREATE, _ADD):
            self._query(query)
        return int(self._query(f"{_LAST}?", (self._pipeline,))[0][0])

    def _query(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of the answer: a result that is not read to its end blocks the next query."""
        return list(self._client.execute(query, list(values)).fetchall())

    def _write(self, rows: Sequence[Row], last: Newest) -> None:
        if rows:
            self._client.register("told", arrow_table(each_place_once(rows)))
            self._query(_WRITE_ARROW)
            self._client.unregister("told")

    def _words(self, error: Exception) -> str:
        return f"{self.place}: {str(error).splitlines()[0]}"


_ROWS = 10_000
FORMS = "postgresql://USER@HOST/DATABASE, duckdb:FILE, parquet:FOLDER or csv:FOLDER"
_IN_FILES: dict[str, Callable[[Path, str], RowTarget]] = {
    "duckdb": DuckdbTable,
    "parquet": ParquetFolder,
    "csv": CsvFolder,
}


def target_named(address: str, pipeline: str) -> RowTarget:
    """Return the target at an address; raise UsageError if the address has none of the `FORMS`."""
    kind, _, rest = address.partition(":")
    if kind in ("postgresql", "postgres") and rest.startswith("//"):
        return PostgresqlTable(address, pipeline)
    if rest and kind in _IN_FILES:
        return _IN_FILES[kind](Path(rest), pipeline)
    raise UsageError(f"--to: must be {FORMS}")


async def export_releases(
    pipeline: Path,
    address: str,
    every: float | None = None,
    told: Callable[[str, int, int], None] = lambda place, releases, rows: None,
    tell: TellEvent = silent,
) -> None:
    """Write the releases of PIPELINE.yaml to the target at `address`, continuing after the target's last release.

    With `every`, continue for ever and look for new releases after that many seconds. After each group, `told`
    receives the target's place and the numbers of releases and rows written so far; `tell` receives phases only.

    Raises:
        UsageError: the address is not a target, or the pipeline has no releases yet.
        FailClosed: the published releases do not continue the target's: the topic may be a new one, or its name used
        twice; or as `published`.
        WorldError: as `published` and `RowTarget`.
    """
    built = build(load(pipeline))
    spec = built.spec
    target = target_named(address, spec.name)
    releases = written = 0
    last, rows, newest = -1, list[Row](), Newest()
    reader = ReleaseReader(built.keys)

    async def rows_in(body: bytes) -> list[Row]:
        try:
            return rows_of(spec.name, body, reader.read)
        except KeysUnknown:
            await find_keys(reader, body, all_published(spec))
            return rows_of(spec.name, body, reader.read)

    try:
        tell("starting", pipeline=spec.name, version=__version__)
        beyond = await target.open()
        await _learn_keys(reader, built, beyond)
        async for bodies in published(spec, beyond - 1, every):
            for body in bodies:
                number = RELEASES.number_of(body, spec.name)
                known = number != beyond or await target.holds(number, body, await rows_in(body))
                if number <= last or not known:
                    raise _foreign(target, spec.name)
                last = number
                if number > beyond:
                    rows += await rows_in(body)
                    releases, newest = releases + 1, Newest.at(number, body)
            if not bodies and 0 <= last < beyond:
                raise _foreign(target, spec.name)
            if not bodies or len(rows) >= _ROWS:
                if newest.sequence >= 0:
                    await target.write(rows, newest)
                written += len(rows)
                told(target.place, releases, written)
                rows, newest = [], Newest()
    finally:
        await target.close()


async def _learn_keys(reader: ReleaseReader, built: Built, beyond: int) -> None:
    """Read the first release of each series of the file, up to the sequence `beyond`, for its keys.

    The file names the keys of the newest version of a series, and releases of an older version may have others.
    """
    unread = set(built.keys) if beyond >= 0 and built.spec.in_order else set[str]()
    if not unread:
        return
    async for body in all_published(built.spec):
        head = read_head(body)
        if head.series in unread:
            unread.remove(head.series)
            if read(body).keys:
                reader.read(body)
        if not unread or head.sequence >= beyond:
            return


def _foreign(target: RowTarget, pipeline: str) -> FailClosed:
    return FailClosed(
        f"{target.place}: its releases of {pipeline} are not those that are published now: they are of "
        "another pipeline of this name, or of a topic that was made anew; choose another target, or move that away"
    )
