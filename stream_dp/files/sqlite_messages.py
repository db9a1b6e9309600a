"""Messages and answers of an embedded pipeline: two tables of the SQLite file `JOURNAL.messages`.

Rules: everybody with write access to the file may put a message there (`put_question`); its signature decides
whether it counts. The file is made with the first message or answer and is private to its owner (mode 0600).
Answers are durable when `publish` returns. A file that is not a sound file of this program is never written to.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, TypeVar

from stream_dp.engine.ports import Question
from stream_dp.errors import FailClosed
from stream_dp.files.sqlite_file import failures, is_ours, transaction
from stream_dp.files.threads import OneThread, sync_folder
from stream_dp.journal.commit import Answer
from stream_dp.journal.public_sequence import ANSWERS

_T = TypeVar("_T")
_APPLICATION = 0x7364_706D  # "sdpm"
_VERSION = 1
_PER_READ = 64
_POLL_S = 0.1
_SCHEMA = (
    "CREATE TABLE questions (place INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL, stamp INTEGER NOT NULL)",
    "CREATE TABLE answers (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


class SqliteQuestions:
    """The `Questions` port over one file; a message is seen within a tenth of a second."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, "stream-dp-questions")
        self._place = -1

    async def open(self) -> None:
        """Start a thread; the file need not exist."""
        await self._file.open()

    async def seek(self, place: int) -> None:
        """Continue at this place."""
        self._place = place

    async def read(self) -> Sequence[Question]:
        """Wait for the next messages and return 64 of them at most.

        Raises:
            FailClosed, WorldError: see `SqliteAnswers.publish`.
        """
        while not (found := await self._file.run(self._next)):  # noqa: ASYNC110 - others write
            await asyncio.sleep(_POLL_S)
        self._place = found[-1].place + 1
        return found

    async def close(self) -> None:
        """End the thread."""
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
        """Start a thread; the file need not exist."""
        await self._file.open()

    async def last(self) -> bytes | None:
        """Return the body of the last answer, or None."""
        rows = await self._file.run(
            lambda: self._file.rows("SELECT body FROM answers ORDER BY number DESC LIMIT 1", ())
        )
        return bytes(rows[0][0]) if rows else None

    async def read(self, beyond: int = -1) -> AsyncIterator[bytes]:
        """Yield the bodies of all answers after `beyond`, oldest first."""
        statement = "SELECT number, body FROM answers WHERE number > ? ORDER BY number LIMIT ?"
        after = beyond
        while rows := await self._chunk(statement, after):
            for number, body in rows:
                after = number
                if ANSWERS.after(body, beyond, self._place):
                    yield body

    async def publish(self, answers: Sequence[Answer]) -> None:
        """Add all new answers at once; durable on return.

        Raises:
            FailClosed: an answer is there with other bytes; or the file is damaged or another program's.
            WorldError: the disk failed; the same answers may be published again.
        """
        fresh = ANSWERS.not_yet_visible(answers, await self.last(), self._place)
        if fresh:
            rows = [(answer.number, answer.body) for answer in fresh]
            await self._file.run(
                lambda: self._file.write("INSERT INTO answers VALUES (?, ?)", rows)
            )

    async def close(self) -> None:
        """End the thread."""
        await self._file.close()

    async def _chunk(self, statement: str, after: int) -> list[Any]:
        return await self._file.run(lambda: self._file.rows(statement, (after, _PER_READ)))


def put_question(path: Path, value: bytes) -> None:
    """Add one message to the file with the present time; blocks.

    Raises:
        FailClosed, WorldError: see `SqliteAnswers.publish`.
    """
    with _failures(path), closing(_connected(path)) as database:
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
        with _failures(self._path):
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
    """Open the file, or make it."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        with transaction(database):  # if two processes make the file, one of them does
            if not _recognise(database, path):
                for statement in _SCHEMA:
                    database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def _recognise(database: sqlite3.Connection, path: Path) -> bool:
    """Return True for a file of this program, False for an empty file."""
    return is_ours(
        database, _APPLICATION, _VERSION, f"the file {path}",
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


def _failures(path: Path) -> AbstractContextManager[None]:
    damaged = FailClosed(f"{path}: the file of messages is damaged; bring it back")
    return failures(path, "messages", damaged)
