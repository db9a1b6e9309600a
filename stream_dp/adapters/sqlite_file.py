"""What the SQLite files of a pipeline have in common: whose a file is, and one change at a time.

This file knows no table.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from stream_dp.errors import FailClosed, UnknownFormat


def is_ours(
    database: sqlite3.Connection, application: int, version: int, what: str, foreign: str
) -> bool:
    """Return whether it is a file of this application and version, and not an empty one.

    Raises:
        FailClosed: it is another program's, which `foreign` says.
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
    """Do all that is done within, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
