"""The embedded journal, and messages and answers beside it, as SQLite files (WAL, synchronous=FULL), one thread each.

Rules: a commit is one transaction, durable when `append` returns. A lock on `FILE.lock` (`flock`) excludes a second
engine while the first one lives. The system releases the lock however the process ends, and the lock file stays. If
somebody removes it, the sequence number is a second fence: a commit that is not the next one is refused. A file that is
not a sound file of this program and version (`user_version`) is never written to and never replaced. The files are
private (mode 0600). Everybody with write access to the file of messages may put a message there; its signature decides
whether it counts.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from stream_dp.engine.ports import Positions, Question
from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.files.threads import OneThread, sync_folder
from stream_dp.journal.commit import Answer, Commit
from stream_dp.journal.public_sequence import ANSWERS

_OF_THE_WORLD = ("PERM", "BUSY", "LOCKED", "NOMEM", "READONLY", "IOERR", "FULL", "CANTOPEN")


def is_ours(
    database: sqlite3.Connection, application: int, version: int, what: str, foreign: str
) -> bool:
    """Return True for a file of this application and version, False for an empty file.

    Raises `FailClosed` (with the text `foreign`) for another program's, `UnknownFormat` if `what` has another version.
    """
    (found,) = database.execute("PRAGMA application_id").fetchone()
    (form,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (found, form, tables) == (0, 0, 0):
        return False
    if found != application:
        raise FailClosed(foreign)
    if form != version:
        raise UnknownFormat(what, f"tables of version {form}", str(version))
    return True


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


@contextmanager
def failures(path: Path, what: str, damaged: FailClosed) -> Iterator[None]:
    """Translate SQLite errors: `WorldError` if the disk of `what` or its folder failed, else `damaged`."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        if name.split("_")[1] not in _OF_THE_WORLD:
            raise damaged from None
        raise WorldError(f"{path}: the disk or folder of the {what} failed ({name})") from None
    except OSError as error:
        raise WorldError(
            f"{path}: {error.strerror}; check the folder and its permissions"
        ) from None


_T = TypeVar("_T")
_SQLITE_MESSAGES_APPLICATION = 0x7364_706D  # "sdpm"
_SQLITE_MESSAGES_VERSION = 1
_PER_READ = 64
_POLL_S = 0.1
_SQLITE_MESSAGES_SCHEMA = (
    "CREATE TABLE questions (place INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, stamp INTEGER NOT NULL)",
    "CREATE TABLE answers (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    f"PRAGMA application_id = {_SQLITE_MESSAGES_APPLICATION}",
    f"PRAGMA user_version = {_SQLITE_MESSAGES_VERSION}",
)


class SqliteQuestions:
    """The `Questions` port over one file; a message is seen within a tenth of a second."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, "stream-dp-questions")
        self._place = -1

    async def open(self) -> None:
        await self._file.open()

    async def seek(self, place: int) -> None:
        self._place = place

    async def read(self) -> Sequence[Question]:
        while not (found := await self._file.run(self._next)):  # noqa: ASYNC110 - others write
            await asyncio.sleep(_POLL_S)
        self._place = found[-1].place + 1
        return found

    async def close(self) -> None:
        await self._file.close()

    def _next(self) -> list[Question]:
        statement = (
            "SELECT place, value, stamp FROM questions WHERE place >= ? ORDER BY place LIMIT ?"
        )
        rows = self._file.rows(statement, (self._place, _PER_READ))
        return [Question(place, *_sound(value, stamp)) for place, value, stamp in rows]


class SqliteAnswers:
    """The `Answers` port over one file."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, "stream-dp-answers")
        self._place = str(path)

    async def open(self) -> None:
        await self._file.open()

    async def last(self) -> bytes | None:
        rows = await self._file.run(
            lambda: self._file.rows("SELECT body FROM answers ORDER BY number DESC LIMIT 1", ())
        )
        return bytes(rows[0][0]) if rows else None

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        statement = "SELECT number, body FROM answers WHERE number > ? ORDER BY number LIMIT ?"
        after = beyond
        while rows := await self._chunk(statement, after):
            for number, body in rows:
                after = number
                if ANSWERS.after(body, beyond, self._place):
                    yield body

    async def publish(self, answers: Sequence[Answer]) -> None:
        fresh = ANSWERS.not_yet_visible(answers, await self.last(), self._place)
        if fresh:
            rows = [(answer.number, answer.body) for answer in fresh]
            await self._file.run(
                lambda: self._file.write("INSERT INTO answers VALUES (?, ?)", rows)
            )

    async def close(self) -> None:
        await self._file.close()

    async def _chunk(self, statement: str, after: int) -> list[Any]:
        return await self._file.run(lambda: self._file.rows(statement, (after, _PER_READ)))


def put_question(path: Path, value: bytes) -> None:
    """Add one message to the file with the present time; blocks. Raises `FailClosed` or `WorldError`."""
    with _sqlite_messages_failures(path), closing(_connected(path)) as database:
        _write(
            database,
            "INSERT INTO questions (value, stamp) VALUES (?, ?)",
            [(value, time.time_ns() // 1_000_000)],
        )


class _File:
    """A connection on a thread of its own, made once the file exists."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._thread: OneThread | None = None
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        self._thread = OneThread(self._name)

    async def run(self, call: Callable[[], _T]) -> _T:
        if self._thread is None:
            raise FailClosed(f"{self._path}: the file of messages is not open")
        with _sqlite_messages_failures(self._path):
            return await self._thread.run(call)

    async def close(self) -> None:
        if self._thread is not None:
            await self._thread.run(self._close)
            self._thread.stop()
            self._thread = None

    def rows(self, statement: str, values: tuple[int, ...]) -> list[Any]:
        """Return the result rows; empty if there is no file."""
        if self._database is None and not self._path.exists():
            return []
        return self._connection().execute(statement, values).fetchall()

    def write(self, statement: str, rows: Sequence[tuple[int, bytes]]) -> None:
        _write(self._connection(), statement, rows)

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _connected(self._path)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _connected(path: Path) -> sqlite3.Connection:
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        with transaction(database):  # if two processes make the file, one of them does
            if not _sqlite_messages_recognise(database, path):
                for statement in _SQLITE_MESSAGES_SCHEMA:
                    database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def _sqlite_messages_recognise(database: sqlite3.Connection, path: Path) -> bool:
    return is_ours(
        database, _SQLITE_MESSAGES_APPLICATION, _SQLITE_MESSAGES_VERSION, f"the file {path}",
        f"{path}: an SQLite file of another program; move it away",
    )  # fmt: skip


def _sound(value: object, stamp: object) -> tuple[bytes, int]:
    """Return a row's value and stamp; for other types an empty message of 1970."""
    if isinstance(value, bytes) and isinstance(stamp, int):
        return value, stamp
    return b"", 0


def _write(
    database: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]
) -> None:
    with transaction(database):
        database.executemany(statement, rows)


def _sqlite_messages_failures(path: Path) -> AbstractContextManager[None]:
    damaged = FailClosed(f"{path}: the file of messages is damaged; bring it back")
    return failures(path, "messages", damaged)


_P = ParamSpec("_P")

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
        """Take the lock, then open or create the file and check all of it."""
        self._thread = OneThread("stream-dp-journal")
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    async def read(self) -> AsyncIterator[bytes]:
        start, chunk = 0, [b""]
        while chunk:
            chunk = await self._run(self._chunk, start)
            start += len(chunk)
            for sealed in chunk:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        """Nothing outside this file knows the journal; the engine compares it with the sink."""

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self._run(self._append, commit, sealed)

    async def close(self) -> None:
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

    Raises `UsageError` if there is no journal, `FailClosed` if it is damaged or another program's.
    """
    with _failures(path), _read_only(path) as database:
        return _sealed(database.execute(_COMMITS, (start, most)), start, path)


def add_sealed(path: Path, begin: int, sealed: Sequence[bytes]) -> None:
    """Write sealed commits from number `begin` on into a read-only copy; number 0 makes the file."""
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
