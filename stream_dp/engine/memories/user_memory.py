"""The memory of the guard for users: how many events of each user count in each public window.

Rules: events read behind the cut of the last commit are pending. A tick takes them and its commit records them, or
they are given back when reading begins again at the cut. So the memory at the cut holds what the commits have
recorded, and the journal restores it. A window is forgotten when its last tick has closed and for no other reason:
neither other users nor want of room evict it. Private: hashes and numbers are in sealed commits only.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.engine.memories.user_table import Counted, Hashes, Used, UserTable
from stream_dp.engine.ticks.tick_assembler import ClosedTick, Cut
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit

_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("events", "<u4")])


class UserMemory:
    """How many events of each user count, at most `cap` in each window of `window` ticks (None: for ever)."""

    def __init__(self, cap: int, window: int | None) -> None:
        self._cap = cap
        self._window = window
        self._table = UserTable()
        self._pending: dict[int, Used] = {}
        self._number = 0
        self._open = 0

    @property
    def size(self) -> int:
        """The size of its table in bytes (private)."""
        return self._table.size

    def windows(self, ticks: IntArray) -> IntArray:
        """Return the public window of each tick, counted from tick 0."""
        return np.zeros_like(ticks) if self._window is None else ticks // self._window

    def admit(self, users: Hashes, windows: IntArray) -> tuple[NDArray[np.bool_], Used | None]:
        """Admit records of these users in these windows, in this order, as far as their caps allow.

        Return which records are admitted, of shape (records,), and what they use of the caps (None: nothing).
        """
        kept, counted = self._table.first(users, windows, self._cap)
        if not len(counted.users):
            return kept, None
        used = self._pending[self._number] = Used(self._number, counted)
        self._number += 1
        return kept, used

    def rewind(self, cut: Cut) -> Cut:
        """Forget events read behind the cut, and return the cut."""
        for used in self._pending.values():
            self._table.give_back(used.counted.since(self._open))
        self._pending.clear()
        return cut

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], Mapping[str, Any]]:
        """See `Memory`."""
        if not ticks:
            return ticks, {}
        taken = chain.from_iterable(closed.used for closed in ticks)
        return ticks, {"users": self.settle(taken, ticks[-1].tick + 1)}

    def settle(self, taken: Iterable[Used], next_tick: int) -> dict[int, bytes]:
        """Move on to the cut before `next_tick`, whose ticks took these events; return what the commit records.

        Windows that are over are not recorded.
        """
        parts = []
        for used in taken:
            del self._pending[used.number]
            parts.append(used.counted)
        self._forget(next_tick)
        return _written(Counted.together(parts).since(self._open))

    def replay(self, commit: Commit) -> None:
        """Add what a commit recorded.

        Raises:
            FailClosed: this guard has not written the entries.
        """
        self.recall(commit.users, commit)

    def recall(self, recorded: Mapping[int, bytes], commit: Commit) -> None:
        """Add the entries that a commit recorded for this memory, by window; raises like `replay`."""
        for window, entries in recorded.items():
            if not self._table.add(_read(window, entries, commit.sequence), self._cap):
                raise _foreign(commit.sequence)
        if commit.ticks:
            self._forget(commit.ticks[-1] + 1)

    def content(self) -> dict[int, bytes]:
        """Return all entries, in the form of commits (private)."""
        return _written(self._table.items())

    def _forget(self, next_tick: int) -> None:
        """Forget the windows whose last tick lies before `next_tick`."""
        if self._window is not None and next_tick // self._window > self._open:
            self._open = next_tick // self._window
            self._table.forget(self._open)


def _written(counted: Counted) -> dict[int, bytes]:
    """Return the events by window, with each user once, sorted by hash."""
    users, windows, events = counted
    order = np.lexsort((users[:, 1], users[:, 0], windows))
    users, windows, events = users[order], windows[order], events[order]
    begins = np.ones(len(users), np.bool_)
    begins[1:] = (users[1:] != users[:-1]).any(axis=1) | (windows[1:] != windows[:-1])
    entries = np.empty(int(begins.sum()), _ENTRY)
    entries["high"], entries["low"] = users[begins].T
    entries["events"] = np.add.reduceat(events, np.flatnonzero(begins)) if len(users) else events
    found, ends = np.unique(windows[begins], return_index=True)
    parts = np.split(entries, ends[1:])
    return {window: part.tobytes() for window, part in zip(found.tolist(), parts, strict=False)}


def _read(window: int, entries: bytes, sequence: int) -> Counted:
    if len(entries) % _ENTRY.itemsize:
        raise _foreign(sequence)
    read = np.frombuffer(entries, _ENTRY)
    users = np.stack([read["high"], read["low"]], axis=1).astype(np.uint64)
    return Counted(users, np.full(len(read), window), read["events"].astype(np.int64))


def _foreign(sequence: int) -> FailClosed:
    return FailClosed(
        f"commit {sequence} of the journal holds a memory of users that this guard has not written: restore the "
        "journal, or run the version of the code and of the file that wrote it"
    )
