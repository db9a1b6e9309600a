"""The embedded journal: one SQLite file (WAL, synchronous=FULL), one writer, one thread.

Rules: a commit is one transaction, durable when `append` returns. A lock on `FILE.lock` (`flock`) excludes a second
engine while the first one lives. The system releases the lock however the process ends, and the lock file stays. If
somebody removes it, the sequence number is a second fence: a commit that is not the next one is refused. A file
that is not a sound journal of this program and version (`user_version`) is never written to and never replaced. The
file is private (mode 0600).
"""

import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from stream_dp.engine.ports import Positions
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.files.sqlite_file import failures, is_ours, transaction
from stream_dp.files.threads import OneThread, sync_folder
from stream_dp.journal.commit import Commit

_P = ParamSpec("_P")
_T = TypeVar("_T")
_APPLICATION = 0x7364_706A  # "sdpj"
_VERSION = 2
_ROWS_PER_READ = 64
_SCHEMA = (
    "CREATE TABLE commits (sequence INTEGER PRIMARY KEY, sealed BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_COMMITS = "SELECT sequence, sealed FROM commits WHERE sequence >= ? ORDER BY sequence LIMIT ?"


class SqliteJournal:
    """The `Journal` port over one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: OneThread | None = None
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None

    async def open(self) -> None:
        """Take the lock, then open or create the file and check all of it.

        Raises:
            FailClosed: another engine runs on it, or it is damaged or another program's.
            WorldError: the folder is missing, or the file cannot be written.
        """
        self._thread = OneThread("stream-dp-journal")
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[bytes]:
        """Yield all sealed commits, oldest first.

        Raises:
            FailClosed: one is missing.
        """
        start, chunk = 0, [b""]
        while chunk:
            chunk = await self._run(self._chunk, start)
            start += len(chunk)
            for sealed in chunk:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        """Do nothing: nothing outside this file knows the journal. The engine compares it with the sink."""

    async def append(self, commit: Commit, sealed: bytes) -> None:
        """Make the commit durable.

        Raises:
            FailClosed: this commit is not the next one, or the file was moved away.
            WorldError: the disk failed; the next open shows whether the commit is durable.
        """
        await self._run(self._append, commit, sealed)

    async def close(self) -> None:
        """Close the file and release the lock, once running calls are done."""
        if self._thread is not None:
            await self._run(self._close)
            self._thread.stop()
            self._thread = None

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self._thread is None:
            raise FailClosed(f"{self._path}: the journal is not open")
        with _failures(self._path):
            return await self._thread.run(call, *args, **kwargs)

    def _open(self) -> None:
        self._lock = _locked(self._path)
        _create(self._path)
        self._file = self._path.stat()
        self._database = database = sqlite3.connect(self._path, isolation_level=None)
        if not _recognise(database, self._path):
            with transaction(database):
                for statement in _SCHEMA:
                    database.execute(statement)
        if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise _damaged(self._path)
        if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise WorldError(f"{self._path}: this file system cannot hold a journal (no WAL)")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA fullfsync = ON")
        self._path.chmod(0o600)

    def _chunk(self, start: int) -> list[bytes]:
        rows = self._connection().execute(_COMMITS, (start, _ROWS_PER_READ))
        return _sealed(rows, start, self._path)

    def _append(self, commit: Commit, sealed: bytes) -> None:
        database = self._connection()
        if not _is_still(self._path, self._file):
            raise FailClosed(f"{self._path}: the journal was moved or replaced; bring it back")
        with transaction(database):
            (last,) = database.execute("SELECT max(sequence) FROM commits").fetchone()
            if commit.sequence != (0 if last is None else last + 1):
                raise FailClosed(f"{self._path}: not the next commit; another engine wrote to it")
            database.execute("INSERT INTO commits VALUES (?, ?)", (commit.sequence, sealed))

    def _close(self) -> None:
        database, self._database = self._database, None
        lock, self._lock = self._lock, None
        try:
            if database is not None:
                database.close()
        finally:
            if lock is not None:
                os.close(lock)

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise FailClosed(f"{self._path}: the journal is not open")
        return self._database


def read_sealed(path: Path, most: int = -1, start: int = 0) -> list[bytes]:
    """Return `most` sealed commits (-1: all) from number `start` on, without a lock: an engine may be running.

    Raises:
        UsageError: there is no journal.
        FailClosed: it is damaged, or another program's.
    """
    with _failures(path), _read_only(path) as database:
        return _sealed(database.execute(_COMMITS, (start, most)), start, path)


def add_sealed(path: Path, begin: int, sealed: Sequence[bytes]) -> None:
    """Write sealed commits from number `begin` on into a read-only copy; number 0 makes the file.

    Raises:
        WorldError: the file cannot be written.
    """
    with _failures(path):
        if begin == 0:
            _create(path)
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as database,
            transaction(database),
        ):
            for statement in _SCHEMA if begin == 0 else ():
                database.execute(statement)
            database.executemany("INSERT INTO commits VALUES (?, ?)", enumerate(sealed, begin))


def count_sealed(path: Path) -> int:
    """Return the number of commits, without a lock; raises as `read_sealed`."""
    with _failures(path), _read_only(path) as database:
        (last,) = database.execute("SELECT max(sequence) FROM commits").fetchone()
        return 0 if last is None else int(last) + 1


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise UsageError(f"{path}: no journal here; it begins with the first run of its pipeline")
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
        if not _recognise(database, path):
            raise FailClosed(f"{path}: the journal is empty")
        yield database


def _failures(path: Path) -> AbstractContextManager[None]:
    return failures(path, "journal", _damaged(path))


def _damaged(path: Path) -> FailClosed:
    return FailClosed(
        f"{path}: the journal is damaged. Bring back its newest copy; "
        "delete it only if nothing was ever published from it"
    )


def _locked(path: Path) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FailClosed(f"{path}: another engine is running on it; stop that first") from None
    return lock


def _create(path: Path) -> None:
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)


def _is_still(path: Path, file: os.stat_result | None) -> bool:
    return file is not None and path.exists() and os.path.samestat(path.stat(), file)


def _recognise(database: sqlite3.Connection, path: Path) -> bool:
    """Return True for a journal of this program, False for an empty file."""
    return is_ours(
        database, _APPLICATION, _VERSION, f"the journal {path}",
        f"{path}: an SQLite file of another program; name another path",
    )  # fmt: skip


def _sealed(rows: sqlite3.Cursor, start: int, path: Path) -> list[bytes]:
    """Return the blobs of rows, which must be numbered from `start` on without gaps."""
    found = rows.fetchall()
    numbered = [sequence for sequence, _ in found] == list(range(start, start + len(found)))
    if not numbered or not all(isinstance(sealed, bytes) for _, sealed in found):
        raise _damaged(path)
    return [sealed for _, sealed in found]
