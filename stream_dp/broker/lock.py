"""One broker per data folder.

Rules: the lock is an flock on an open file, so the system releases it with the processes that hold it, and it can
never be stale. The Java processes inherit it: as long as one of them lives, even without its parent, the folder is
locked.
"""

import asyncio
import fcntl
import os
import time
from io import TextIOWrapper
from pathlib import Path

from stream_dp.errors import WorldError

_PATIENCE_SECONDS = 3.0  # after kill -9 of the parent, Java needs a moment to end


class FolderLock:
    """The held lock of a data folder."""

    def __init__(self, file: TextIOWrapper) -> None:
        self._file = file

    def fileno(self) -> int:
        """Return the descriptor that holds the lock."""
        return self._file.fileno()

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


async def take(folder: Path, patience: float = _PATIENCE_SECONDS) -> FolderLock:
    """Take the lock of a folder; make the folder if needed.

    Raises:
        WorldError: another broker holds the lock, or the folder cannot be used.
    """
    file = _open(folder)
    end = time.monotonic() + patience
    try:
        while not _try(file):
            if time.monotonic() > end:
                raise _taken(folder, file)  # noqa: TRY301 (the file is closed below)
            await asyncio.sleep(0.1)
    except BaseException:
        file.close()
        raise
    _sign(file)
    return FolderLock(file)


def held(lock: Path) -> bool:
    """Return whether a process holds this lock file, of a data folder or any other flock."""
    if not lock.exists():
        return False
    with lock.open("a+", encoding="ascii") as file:
        return not _try(file)


def _open(folder: Path) -> TextIOWrapper:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise WorldError(f"{folder}: cannot keep broker data here: {error.strerror}") from error


def _try(file: TextIOWrapper) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return False
    return True


def _taken(folder: Path, file: TextIOWrapper) -> WorldError:
    holder = file.read().strip() or "unknown"
    return WorldError(
        f"{folder}: another Kafka uses this data folder (process {holder}); "
        "stop it or take another folder"
    )


def _sign(file: TextIOWrapper) -> None:
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
