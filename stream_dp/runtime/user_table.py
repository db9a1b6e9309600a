"""How many events of each user count, by the user's keyed hash: an open-addressing table in numpy arrays.

Rules: a hash has 128 bits, so that no two users share a row (for n users with a chance of n^2 / 2^129). A user takes
20 bytes, and at most 60 with the room that the table keeps free; it only grows. What stands there for one user depends
on what was added for that user alone, never on the order or on others. Private: nothing here is printed.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray

Hashes: TypeAlias = NDArray[np.uint64]
"""Of shape (users, 2)."""
_FREE = -1
_SMALLEST = 1 << 6
_AT_ONCE = 1 << 14


class UserTable:
    """Events by user; of a user that is not there none count."""

    def __init__(self) -> None:
        self._make(_SMALLEST)

    def __len__(self) -> int:
        """Of how many users events count."""
        return int(np.count_nonzero(self._events > 0))

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self._keys.nbytes + self._events.nbytes

    def items(self) -> tuple[Hashes, IntArray]:
        """Return the users of whom events count, and how many of each."""
        kept = np.flatnonzero(self._events > 0)
        return self._keys[kept], self._events[kept].astype(np.int64)

    def take(self, users: Hashes, events: IntArray, cap: int) -> IntArray:
        """Add so many events of each user, as far as all of that user's stay within `cap`; return how many that were.

        Each user is given once, with one event at least.
        """
        slots = self._find(users)
        known = slots >= 0
        taken: IntArray = np.minimum(events, cap - np.where(known, self._events[slots], 0)).astype(
            np.int64
        )
        self._events[slots[known]] += taken[known].astype(np.int32)
        if not known.all():
            self._reserve(len(users) - int(known.sum()))
            self._put(users[~known], taken[~known])
        return taken

    def give_back(self, users: Hashes, events: IntArray) -> None:
        """Take away what was added."""
        self._events[self._find(users)] -= events.astype(np.int32)

    def _make(self, size: int) -> None:
        self._keys = np.zeros((size, 2), np.uint64)
        self._events = np.full(size, _FREE, np.int32)
        self._taken = 0

    def _reserve(self, more: int) -> None:
        """Make room: a table is at most two thirds full, and right after it has grown at least one third."""
        size = len(self._events)
        if 3 * (self._taken + more) <= 2 * size:
            return
        users, events = self.items()
        wanted = 3 * (len(users) + more) // 2
        if 4 * len(users) > 3 * self._taken:  # few have gone, so it would soon be full again
            wanted = max(wanted, size)
        self._make(max(_SMALLEST, 1 << wanted.bit_length()))
        self._put(users, events)

    def _first(self, users: Hashes) -> IntArray:
        """The slot where each user's search begins."""
        return (users[:, 0] & np.uint64(len(self._events) - 1)).astype(np.int64)

    def _find(self, users: Hashes) -> IntArray:
        """The slot of each user, -1 where there is none."""
        parts = [self._probe(users[at : at + _AT_ONCE]) for at in range(0, len(users), _AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _probe(self, users: Hashes) -> IntArray:
        found = np.full(len(users), -1, np.int64)
        left, at = np.arange(len(users)), self._first(users)
        while left.size:
            taken = self._events[at] != _FREE
            there = self._keys[at]
            same = taken & (there[:, 0] == users[:, 0]) & (there[:, 1] == users[:, 1])
            found[left[same]] = at[same]
            on = taken & ~same
            left, users, at = left[on], users[on], self._next(at[on])
        return found

    def _put(self, users: Hashes, events: IntArray) -> None:
        """Give a slot to users who have none."""
        self._taken += len(users)
        for at in range(0, len(users), _AT_ONCE):
            self._place(users[at : at + _AT_ONCE], events[at : at + _AT_ONCE])

    def _place(self, users: Hashes, events: IntArray) -> None:
        at = self._first(users)
        while at.size:
            free = np.flatnonzero(self._events[at] == _FREE)
            won = free[np.unique(at[free], return_index=True)[1]]
            self._keys[at[won]], self._events[at[won]] = users[won], events[won]
            on = np.ones(len(at), np.bool_)
            on[won] = False
            users, events, at = users[on], events[on], self._next(at[on])

    def _next(self, at: IntArray) -> IntArray:
        return (at + 1) & (len(self._events) - 1)
