"""The memory of the guard for users: how many events of each user count in each public window.

Rules: what was read behind the cut of the last commit is pending: a tick takes it, and its commit records it, or it is
given back where reading begins again at the cut. So the memory at the cut is what the commits have recorded, and the
journal gives it back. A window is forgotten when its last tick has closed, and by nothing else: neither by other users
nor for want of room. Private: hashes and numbers are in sealed commits only.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.errors import FailClosed
from stream_dp.runtime.commit import Commit
from stream_dp.runtime.user_table import Hashes, UserTable

_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("events", "<u4")])


class Used(NamedTuple):
    """Events that count, by user, all in one public window; a user stands there once.

    `number` counts what a memory has admitted.
    """

    number: int
    window: int
    users: Hashes
    events: IntArray

    def __repr__(self) -> str:
        return "<Used>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class UserMemory:
    """How many events count, of at most `cap` a user in each window of `window` ticks (None: for ever)."""

    def __init__(self, cap: int, window: int | None) -> None:
        self._cap = cap
        self._window = window
        self._tables: dict[int, UserTable] = {}
        self._pending: dict[int, Used] = {}
        self._number = 0

    @property
    def size(self) -> int:
        """How many bytes its tables take (private)."""
        return sum(table.size for table in self._tables.values())

    def windows(self, ticks: IntArray) -> IntArray:
        """Return the public window of each tick, counted from tick 0."""
        return np.zeros_like(ticks) if self._window is None else ticks // self._window

    def admit(self, window: int, users: Hashes, events: IntArray) -> tuple[IntArray, Used]:
        """Admit so many further events of each user as the cap allows; return how many, and what that uses.

        Each user is given once, with one event at least.
        """
        taken = self._table(window).take(users, events, self._cap)
        some = taken > 0
        used = Used(self._number, window, users[some], taken[some])
        if some.any():
            self._pending[self._number] = used
            self._number += 1
        return taken, used

    def rewind(self) -> None:
        """Forget what was read behind the cut."""
        for used in self._pending.values():
            self._tables[used.window].give_back(used.users, used.events)
        self._pending.clear()

    def settle(self, taken: Iterable[Used], next_tick: int) -> dict[int, bytes]:
        """Move on to the cut before `next_tick`, whose ticks took this; return what the commit records of it.

        Nothing is recorded of windows that are over.
        """
        parts: dict[int, list[Used]] = {}
        for used in taken:
            del self._pending[used.number]
            parts.setdefault(used.window, []).append(used)
        self._forget(next_tick)
        return {each: _written(parts[each]) for each in sorted(parts) if each in self._tables}

    def replay(self, commit: Commit) -> None:
        """Take what a commit recorded.

        Raises:
            FailClosed: it is nothing that this guard has written.
        """
        for window, entries in commit.users.items():
            users, events = _read(entries, commit.sequence)
            if not np.array_equal(self._table(window).take(users, events, self._cap), events):
                raise _foreign(commit.sequence)
        if commit.ticks:
            self._forget(commit.ticks[-1] + 1)

    def content(self) -> dict[int, bytes]:
        """Return all that it holds, in the form of commits (private)."""
        found = {w: Used(0, w, *table.items()) for w, table in sorted(self._tables.items())}
        return {window: _written([used]) for window, used in found.items() if len(used.users)}

    def _table(self, window: int) -> UserTable:
        if window not in self._tables:
            self._tables[window] = UserTable()
        return self._tables[window]

    def _forget(self, next_tick: int) -> None:
        """Forget the windows whose last tick lies before `next_tick`."""
        if self._window is not None:
            for window in [each for each in self._tables if each < next_tick // self._window]:
                del self._tables[window]


def _written(parts: Sequence[Used]) -> bytes:
    """Each user once, in the order of the hashes."""
    users = np.concatenate([part.users for part in parts])
    events = np.concatenate([part.events for part in parts])
    order = np.lexsort((users[:, 1], users[:, 0]))
    users, events = users[order], events[order]
    begins = np.ones(len(users), np.bool_)
    begins[1:] = (users[1:] != users[:-1]).any(axis=1)
    entries = np.empty(int(begins.sum()), _ENTRY)
    entries["high"], entries["low"] = users[begins].T
    entries["events"] = np.add.reduceat(events, np.flatnonzero(begins)) if len(users) else events
    return entries.tobytes()


def _read(entries: bytes, sequence: int) -> tuple[Hashes, IntArray]:
    if len(entries) % _ENTRY.itemsize:
        raise _foreign(sequence)
    read = np.frombuffer(entries, _ENTRY)
    users = np.stack([read["high"], read["low"]], axis=1).astype(np.uint64)
    return users, read["events"].astype(np.int64)


def _foreign(sequence: int) -> FailClosed:
    return FailClosed(
        f"commit {sequence} of the journal holds a memory of users that this guard has not written: restore the "
        "journal, or run the version of the code and of the file that wrote it"
    )
