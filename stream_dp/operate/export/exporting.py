"""Exports: write new releases, group by group, into CSV or Parquet files, or into a table of PostgreSQL or DuckDB."""

import asyncio
import csv
import fcntl
import hashlib
import io
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from stream_dp import __version__
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.threads import sync_folder
from stream_dp.journal.public_sequence import RELEASES
from stream_dp.operate.export.rows import COLUMNS, KINDS, UNIQUE, Row, rows_of
from stream_dp.operate.observe.lifecycle_log import TellEvent, silent
from stream_dp.operate.published_bodies import published
from stream_dp.pipeline.yaml import load

_PLACES = [COLUMNS.index(name) for name in UNIQUE]


class Newest(NamedTuple):
    """The last release of a target: its sequence number, -1 before the first, and the digest of its bytes."""

    sequence: int = -1
    digest: str = "-"

    @classmethod
    def at(cls, sequence: int, body: bytes) -> "Newest":
        return cls(sequence, hashlib.sha256(body).hexdigest())


class RowTarget(Protocol):
    """A table in which writing the same rows again changes nothing; only one export at a time writes to it."""

    @property
    def place(self) -> str:
        """The target's name for people, without any secret."""
        ...

    async def open(self) -> int:
        """Make missing parts; return the sequence number of the last completely stored release, -1 if none.

        Raises:
            UsageError: something else is stored there, or another export writes to it.
            WorldError: the target cannot be reached or written.
        """
        ...

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Return whether the last release, as `open` found it, has this sequence number and these bytes.

        Raises:
            WorldError: the target cannot be reached or read.
        """
        ...

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write all rows or none, replacing rows with the same key; the last one is of release `last`.

        Raises:
            WorldError: the rows could not be written; the caller may write the same rows again.
        """
        ...

    async def close(self) -> None: ...


def each_place_once(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; among rows with the same key (`UNIQUE`), only the last one."""
    return list({tuple(row[place] for place in _PLACES): row for row in rows}.values())


def arrow() -> Any:
    """Return the module `pyarrow`; raise UsageError if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise UsageError(
            "Parquet and DuckDB need pyarrow: pip install 'stream_dp[export]'"
        ) from None
    return pyarrow


def arrow_table(rows: Sequence[Row]) -> Any:
    """Return the rows as a `pyarrow.Table`; Parquet and DuckDB read it a hundred times faster than single rows."""
    pyarrow = arrow()
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    return pyarrow.table({name: columns.get(name, ()) for name in COLUMNS}, schema=_schema(pyarrow))


def _schema(pyarrow: Any) -> Any:
    types = {
        "text": pyarrow.string(), "bigint": pyarrow.int64(), "integer": pyarrow.int32(),
        "double precision": pyarrow.float64(), "timestamptz": pyarrow.timestamp("ms", "UTC"),
    }  # fmt: skip
    return pyarrow.schema([(name, types[kind]) for name, kind in KINDS.items()])


_REACHED = b"stream_dp_reached"
_END = COLUMNS.index("tick_end")


class _Folder:
    """A folder with the files of a pipeline; a lock keeps a second export away. Blocking calls run on threads."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._folder, self._pipeline = folder, pipeline
        self._lock = -1
        self._reached = Newest()

    @property
    def place(self) -> str:
        return str(self._folder)

    async def holds(self, sequence: int, body: bytes) -> bool:
        return self._reached == Newest.at(sequence, body)

    async def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _make(self) -> None:
        """Make the folder and lock it for this pipeline; raise UsageError if another export holds the lock."""
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
    """`PIPELINE.csv` in a folder, with a header line; times in UTC, an empty cell for a missing number.

    After a crash, the CSV is cut back to the size in its position file, so readers never see half a group. The
    position file is made before the CSV.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        super().__init__(folder, pipeline)
        self._csv = folder / f"{pipeline}.csv"
        self._position = folder / f"{pipeline}.csv.position"

    @property
    def place(self) -> str:
        return str(self._csv)

    async def open(self) -> int:
        """Cut off the rest of an interrupted export."""
        return await asyncio.to_thread(self._open)

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
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
    """Files `PIPELINE-FIRST-LAST.parquet` in a folder, named by the sequences of their releases.

    A file gets its name only when it is whole, so readers never see half a group.
    """

    @property
    def place(self) -> str:
        return str(self._folder / f"{self._pipeline}-*.parquet")

    async def open(self) -> int:
        """Find the newest file by its name."""
        return await asyncio.to_thread(self._open)

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
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
    """Return the digest in a file that this command wrote; raise UsageError if the file has none."""
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
    """A table reached through a client library; it must have the columns of this version.

    A group of rows is one statement and one transaction, all or none; an existing row is overwritten. Errors of the
    library become `WorldError`s that name the table, never a password.
    """

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
        query = f"select {_NAMES} {_AT.format('$1', '$2')}"
        with self._telling():
            found = await self._client.fetch(query, self._pipeline, sequence)
        return _same(found, for_postgresql(rows_of(self._pipeline, body)))

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Copy rows; if some exist already, or COPY is not allowed, insert them."""
        if not rows:
            return
        taken = for_postgresql(rows)
        with self._telling():
            try:
                await self._client.copy_records_to_table(TABLE, records=taken, columns=COLUMNS)
            except self._no_copy:
                await self._client.execute(_WRITE, *zip(*each_place_once(taken), strict=True))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close(timeout=10)

    def _words(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"


class DuckdbTable(_Table):
    """The table in a DuckDB file, which only one process at a time can write.

    Times are read as milliseconds, because DuckDB's own time type needs one more library.
    """

    def __init__(self, path: Path, pipeline: str) -> None:
        super().__init__(pipeline)
        self._path = path

    @property
    def place(self) -> str:
        return f"table {TABLE} of {self._path}"

    async def open(self) -> int:
        try:
            import duckdb
        except ImportError:
            raise UsageError("DuckDB needs duckdb: pip install 'stream_dp[export]'") from None
        self._errors = (duckdb.Error,)
        return await asyncio.to_thread(self._opened, duckdb)

    async def holds(self, sequence: int, body: bytes) -> bool:
        found = await asyncio.to_thread(self._at, sequence)
        return _same(found, [_with_ms(row) for row in rows_of(self._pipeline, body)])

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        if rows:
            await asyncio.to_thread(self._write, each_place_once(rows))

    async def close(self) -> None:
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


_ROWS = 10_000
FORMS = "postgresql://USER@HOST/DATABASE, duckdb:FILE, parquet:FOLDER or csv:FOLDER"


def target_named(address: str, pipeline: str) -> RowTarget:
    """Return the target at an address; raise UsageError if the address has none of the `FORMS`."""
    kind, _, rest = address.partition(":")
    if kind in ("postgresql", "postgres") and rest.startswith("//"):
        return PostgresqlTable(address, pipeline)
    if rest and kind == "duckdb":
        return DuckdbTable(Path(rest), pipeline)
    if rest and kind == "parquet":
        return ParquetFolder(Path(rest), pipeline)
    if rest and kind == "csv":
        return CsvFolder(Path(rest), pipeline)
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
        FailClosed: the target holds other releases than the published ones; or as `published`.
        WorldError: as `published` and `RowTarget`.
    """
    spec = load(pipeline)
    target = target_named(address, spec.name)
    try:
        tell("starting", pipeline=spec.name, version=__version__)
        beyond = await target.open()
        group, continued = _Group(target, told), Continued(target, spec.name, beyond)
        async for bodies in published(spec, beyond - 1, every):
            for body in bodies:
                number = await continued.taken(body)
                if number > beyond:
                    group.add(rows_of(spec.name, body), Newest.at(number, body))
            if not bodies:
                continued.all_seen()
            if not bodies or len(group.rows) >= _ROWS:
                await group.hand_over()
    finally:
        await target.close()


class Continued:
    """Checks that the published releases follow the target's: the topic may be a new one, or its name used twice."""

    def __init__(self, target: RowTarget, pipeline: str, beyond: int) -> None:
        self._target, self._pipeline, self._beyond = target, pipeline, beyond
        self._last = -1

    async def taken(self, body: bytes) -> int:
        """Return the sequence number of the next body.

        Raises:
            FailClosed: the body does not follow the body before, or the target's release of its sequence differs.
        """
        number = RELEASES.number_of(body, self._pipeline)
        known = number == self._beyond
        if number <= self._last or (known and not await self._target.holds(number, body)):
            raise self._other()
        self._last = number
        return number

    def all_seen(self) -> None:
        """Note that all published releases were read; raise FailClosed if the target is ahead of them."""
        if 0 <= self._last < self._beyond:
            raise self._other()

    def _other(self) -> FailClosed:
        return FailClosed(
            f"{self._target.place}: its releases of {self._pipeline} are not those that are published now: they are of "
            "another pipeline of this name, or of a topic that was made anew; choose another target, or move that away"
        )


class _Group:
    """Rows that are written together."""

    def __init__(self, target: RowTarget, told: Callable[[str, int, int], None]) -> None:
        self._target, self._told = target, told
        self._releases = self._rows = 0
        self._empty()

    def _empty(self) -> None:
        self.rows: list[Row] = []
        self.releases, self._last = 0, Newest()

    def add(self, rows: list[Row], last: Newest) -> None:
        self.rows += rows
        self.releases += 1
        self._last = last

    async def hand_over(self) -> None:
        if self.releases:
            await self._target.write(self.rows, self._last)
        self._releases += self.releases
        self._rows += len(self.rows)
        self._told(self._target.place, self._releases, self._rows)
        self._empty()
