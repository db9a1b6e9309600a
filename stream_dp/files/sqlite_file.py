"""Common parts of a pipeline's SQLite files: their application, transactions and errors.

This file knows no table.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_dp.errors import FailClosed, UnknownFormat, WorldError

_OF_THE_WORLD = ("PERM", "BUSY", "LOCKED", "NOMEM", "READONLY", "IOERR", "FULL", "CANTOPEN")


def is_ours(
    database: sqlite3.Connection, application: int, version: int, what: str, foreign: str
) -> bool:
    """Return True for a file of this application and version, False for an empty file.

    Raises:
        FailClosed: the file is another program's; `foreign` is the text.
        UnknownFormat: `what` has tables of another version.
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
    """Commit everything done in the context, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


@contextmanager
def failures(path: Path, what: str, damaged: FailClosed) -> Iterator[None]:
    """Translate SQLite errors: the disk of `what` failed, or the file is damaged.

    Raises:
        WorldError: the disk or the folder failed.
        FailClosed: `damaged`, for anything else.
    """
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
