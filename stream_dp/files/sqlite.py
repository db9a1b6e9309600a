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
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from stream_dp.engine.ports import Positions, Question
from stream_dp.errors import FailClosed, UnknownFormat, UsageError, WorldError
from stream_dp.files.threads import OneThread, sync_folder
from stream_dp.journal.checkpoint import KEPT, known_after
from stream_dp.journal.commit import Answer, Commit
from stream_dp.journal.public_sequence import ANSWERS

_P = ParamSpec("_P")
_T = TypeVar("_T")
_OF_THE_WORLD = ("PERM", "BUSY", "LOCKED", "NOMEM", "READONLY", "IOERR", "FULL", "CANTOPEN")
_PER_READ = 64
_POLL_S = 0.1
# made at each start, for a journal of a former version has none
_CHECKPOINTS = "CREATE TABLE IF NOT EXISTS checkpoints (after_commit INTEGER PRIMARY KEY)"
_KNOWN = "SELECT after_commit FROM checkpoints ORDER BY after_commit DESC LIMIT ?"
_COMMITS = "SELECT sequence, sealed FROM commits WHERE sequence >= ? ORDER BY sequence LIMIT ?"
_QUESTIONS = "SELECT place, value, stamp FROM questions WHERE place >= ? ORDER BY place LIMIT ?"
_ANSWERS = "SELECT number, body FROM answers WHERE number > ? ORDER BY number LIMIT ?"


@dataclass(frozen=True, slots=True)
class _Form:
    """One kind of file: its application id, version and tables, and the words of its errors."""

    application: int
    version: int
    tables: tuple[str, ...]
    name: str
    noun: str
    remedy: str
    damage: str

    def is_ours(self, database: sqlite3.Connection, path: Path) -> bool:
        """Return True for a file of this form, False for an empty file.

        Raises `FailClosed` for another program's, `UnknownFormat` for another version.
        """
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return False
        if application != self.application:
            raise FailClosed(f"{path}: this SQLite file belongs to another program; {self.remedy}")
        if version != self.version:
            what = f"the {self.name} {path}"
            raise UnknownFormat(what, f"tables of version {version}", str(self.version))
        return True

    def make(self, database: sqlite3.Connection) -> None:
        for statement in self.tables:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {self.application}")
        database.execute(f"PRAGMA user_version = {self.version}")

    def damaged(self, path: Path) -> FailClosed:
        return FailClosed(f"{path}: {self.damage}")

    @contextmanager
    def failures(self, path: Path) -> Iterator[None]:
        """Translate SQLite errors: `WorldError` if the disk or folder failed, else `FailClosed`: it is damaged."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
            if name.split("_")[1] not in _OF_THE_WORLD:
                raise self.damaged(path) from None
            what = f"the disk or folder of the {self.noun} failed ({name})"
            raise WorldError(f"{path}: {what}") from None
        except OSError as error:
            what = f"{error.strerror}; check the folder and its permissions"
            raise WorldError(f"{path}: {what}") from None


_JOURNAL = _Form(
    0x7364_706A,  # "sdpj"
    2,
    ("CREATE TABLE commits (sequence INTEGER PRIMARY KEY, sealed BLOB NOT NULL)",),
    name="journal",
    noun="journal",
    remedy="name another path",
    damage="the journal is damaged. Bring back its newest copy; "
    "delete it only if nothing was ever published from it",
)
_MESSAGES = _Form(
    0x7364_706D,  # "sdpm"
    1,
    (
        "CREATE TABLE questions (place INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, stamp INTEGER NOT NULL)",
        "CREATE TABLE answers (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    ),
    name="file",
    noun="messages",
    remedy="move it away",
    damage="the file of messages is damaged; bring it back",
)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


class SqliteJournal:
    """The `Journal` port over one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        closed = FailClosed(f"{path}: the journal is not open")
        self._thread = OneThread("stream-dp-journal", closed)
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None
        self._checkpoints: tuple[int, ...] = ()
        self._begin = 0
        self._file: os.stat_result | None = None

    async def open(self) -> None:
        """Take the lock, then open or create the file; `check_file` checks all of it, which takes time."""
        self._thread.start()
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    @property
    def begin(self) -> int:
        return self._begin

    def checkpoints(self) -> Sequence[int]:
        return self._checkpoints

    async def read(self, begin: int = 0) -> AsyncIterator[bytes]:
        start, chunk = begin or self._begin, [b""]
        while chunk:
            chunk = await self._run(self._chunk, start)
            start += len(chunk)
            for sealed in chunk:
                yield sealed

    async def verify(self, positions: Positions) -> None:
        """Nothing outside this file knows the journal; the engine compares it with the sink."""

    async def append(self, commit: Commit, sealed: bytes) -> None:
        await self._run(self._append, commit, sealed)

    async def prune(self, before: int) -> None:
        await self._run(self._prune, before)

    async def close(self) -> None:
        with _JOURNAL.failures(self._path):
            await self._thread.stop(self._close)

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with _JOURNAL.failures(self._path):
            return await self._thread.run(call, *args, **kwargs)

    def _open(self) -> None:
        path = self._path
        self._lock = _locked(path)
        _create(path)
        self._file = path.stat()
        self._database = database = _connect(path)
        if not _JOURNAL.is_ours(database, path):
            with _transaction(database):
                _JOURNAL.make(database)
        if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise WorldError(f"{path}: this file system cannot hold a journal (no WAL)")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA fullfsync = ON")
        path.chmod(0o600)
        database.execute(_CHECKPOINTS)
        self._checkpoints = tuple(after for (after,) in database.execute(_KNOWN, (KEPT,)))
        self._begin = _bounds(database)[0]

    def _chunk(self, start: int) -> list[bytes]:
        rows = self._connection().execute(_COMMITS, (start, _PER_READ))
        return _sealed(rows, start, self._path)

    def _append(self, commit: Commit, sealed: bytes) -> None:
        database, path, file = self._connection(), self._path, self._file
        if file is None or not path.exists() or not os.path.samestat(path.stat(), file):
            raise FailClosed(f"{path}: the journal was moved or replaced; bring it back")
        with _transaction(database):
            (last,) = database.execute("SELECT max(sequence) FROM commits").fetchone()
            if commit.sequence != (0 if last is None else last + 1):
                raise FailClosed(
                    f"{path}: this is not the next commit; another engine wrote to the journal"
                )
            database.execute("INSERT INTO commits VALUES (?, ?)", (commit.sequence, sealed))
            known = known_after(commit, self._checkpoints)
            if known != self._checkpoints:
                database.execute("INSERT INTO checkpoints VALUES (?)", known[:1])
        self._checkpoints = known

    def _prune(self, before: int) -> None:
        database = self._connection()
        with _transaction(database):
            database.execute("DELETE FROM commits WHERE sequence < ?", (before,))
            database.execute("DELETE FROM checkpoints WHERE after_commit < ?", (before,))
        self._begin = before

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
    """Return `most` sealed commits (-1: all) from number `start` on, without a lock: an engine may run meanwhile.

    Raises `UsageError` if there is no journal, `FailClosed` if it is damaged or another program's.
    """
    with _read_only(path) as database:
        return _sealed(database.execute(_COMMITS, (start, most)), start, path)


def check_file(path: Path) -> None:
    """Check every page of a journal, without a lock; raises as `read_sealed`."""
    with _read_only(path) as database:
        if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise _JOURNAL.damaged(path)


def add_sealed(path: Path, begin: int, sealed: Sequence[bytes]) -> None:
    """Write sealed commits from number `begin` on into a read-only copy, which is made if there is none."""
    with _JOURNAL.failures(path):
        _create(path)
        with closing(_connect(path)) as database, _transaction(database):
            if not _JOURNAL.is_ours(database, path):
                _JOURNAL.make(database)
            database.executemany("INSERT INTO commits VALUES (?, ?)", enumerate(sealed, begin))


def checkpoints_in(path: Path) -> tuple[int, ...]:
    """Return the commits after which the last checkpoints stand, newest first; raises as `read_sealed`."""
    with _read_only(path) as database:
        made = "SELECT count(*) FROM sqlite_master WHERE name = 'checkpoints'"
        (there,) = database.execute(made).fetchone()
        return tuple(after for (after,) in database.execute(_KNOWN, (KEPT,))) if there else ()


def bounds_of(path: Path) -> tuple[int, int]:
    """Return the number of the first commit and that of the next one, without a lock; raises as `read_sealed`."""
    with _read_only(path) as database:
        return _bounds(database)


def _bounds(database: sqlite3.Connection) -> tuple[int, int]:
    ends = "SELECT (SELECT min(sequence) FROM commits), (SELECT max(sequence) FROM commits)"
    first, last = database.execute(ends).fetchone()
    return (0, 0) if last is None else (int(first), int(last) + 1)


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    with _JOURNAL.failures(path):
        if not path.is_file():
            raise UsageError(
                f"{path}: there is no journal here; the first run of its pipeline creates it"
            )
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as database:
            if not _JOURNAL.is_ours(database, path):
                raise FailClosed(f"{path}: the journal is empty")
            yield database


def _locked(path: Path) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FailClosed(
            f"{path}: another engine uses this journal; stop that engine first"
        ) from None
    return lock


def _create(path: Path) -> None:
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _sealed(rows: sqlite3.Cursor, start: int, path: Path) -> list[bytes]:
    """Return the blobs of rows, which must be numbered from `start` on without gaps."""
    pairs = rows.fetchall()
    numbered = [sequence for sequence, _ in pairs] == list(range(start, start + len(pairs)))
    if not numbered or not all(isinstance(sealed, bytes) for _, sealed in pairs):
        raise _JOURNAL.damaged(path)
    return [sealed for _, sealed in pairs]


class _MessageFile:
    """A connection to the file of messages on a thread of its own, made once the file exists."""

    def __init__(self, path: Path, thread: str) -> None:
        self._path = path
        self._thread = OneThread(thread, FailClosed(f"{path}: the file of messages is not open"))
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        self._thread.start()

    async def _run(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with _MESSAGES.failures(self._path):
            return await self._thread.run(call, *args, **kwargs)

    async def close(self) -> None:
        await self._thread.stop(self._close)

    def _rows(self, statement: str, *values: int) -> list[Any]:
        """Return the result rows; empty if there is no file."""
        if self._database is None and not self._path.exists():
            return []
        return self._connection().execute(statement, values).fetchall()

    def _write(self, statement: str, rows: Sequence[tuple[int, bytes]]) -> None:
        database = self._connection()
        with _transaction(database):
            database.executemany(statement, rows)

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = _connected(self._path)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class SqliteQuestions(_MessageFile):
    """The `Questions` port over one file; a message is seen within a tenth of a second."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "stream-dp-questions")
        self._place = -1

    async def seek(self, place: int) -> None:
        self._place = place

    async def read(self) -> Sequence[Question]:
        query = partial(self._rows, _QUESTIONS, self._place, _PER_READ)
        while not (rows := await self._run(query)):  # noqa: ASYNC110 - others write
            await asyncio.sleep(_POLL_S)
        questions = [Question(place, *_sound(value, stamp)) for place, value, stamp in rows]
        self._place = questions[-1].place + 1
        return questions


class SqliteAnswers(_MessageFile):
    """The `Answers` port over one file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "stream-dp-answers")

    async def last(self) -> bytes | None:
        statement = "SELECT body FROM answers ORDER BY number DESC LIMIT 1"
        rows = await self._run(self._rows, statement)
        return bytes(rows[0][0]) if rows else None

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        after = beyond
        while rows := await self._run(self._rows, _ANSWERS, after, _PER_READ):
            for number, body in rows:
                after = number
                if ANSWERS.after(body, beyond, str(self._path)):
                    yield body

    async def publish(self, answers: Sequence[Answer]) -> None:
        fresh = ANSWERS.not_yet_visible(answers, await self.last(), str(self._path))
        if fresh:
            rows = [(answer.number, answer.body) for answer in fresh]
            await self._run(self._write, "INSERT INTO answers VALUES (?, ?)", rows)


def put_question(path: Path, value: bytes) -> None:
    """Add one message to the file with the present time; blocks. Raises `FailClosed` or `WorldError`."""
    row = (value, time.time_ns() // 1_000_000)
    with _MESSAGES.failures(path), closing(_connected(path)) as database, _transaction(database):
        database.execute("INSERT INTO questions (value, stamp) VALUES (?, ?)", row)


def _connected(path: Path) -> sqlite3.Connection:
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    database = _connect(path)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        with _transaction(database):  # if two processes make the file, one of them does
            if not _MESSAGES.is_ours(database, path):
                _MESSAGES.make(database)
    except BaseException:
        database.close()
        raise
    return database


def _sound(value: object, stamp: object) -> tuple[bytes, int]:
    """Return a row's value and stamp; for other types an empty message of 1970."""
    if isinstance(value, bytes) and isinstance(stamp, int):
        return value, stamp
    return b"", 0
