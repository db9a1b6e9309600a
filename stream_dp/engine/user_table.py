"""Users and identifiers by keyed hash: how many events of each user count, and which identifiers open ticks have.

`UserTable` holds how many events of each user count in each public window, in an open-addressing table. Rules: a hash
has 128 bits, so two of n users share a row only with a chance of n^2 / 2^129. A row has 24 bytes; with the room that
the table keeps free, a user takes at most 62 bytes in each window, beside 50 kB for the whole table. A user's row
depends on what was added for that user alone, never on the order or on other users. Private: nothing here is printed.

`Arrivals` holds the distinct identifiers of a tick that is still open, by the column that counts them. A column of
amounts has, beside each hash, how many units its records add in the tick: a third word, and amounts of one hash are
added up where identifiers are kept once. Rules: identifiers are kept as a set and amounts as sums, so the order and the
batches in which they come play no part. Private: in sealed commits only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.errors import FailClosed

Hashes: TypeAlias = NDArray[np.uint64]
"""Shape (users, 2)."""
Rows: TypeAlias = NDArray[np.uint64]
"""Shape (rows, 3)."""
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_APART = np.uint64(0x9E3779B1)  # odd, so that the windows of one user begin their search apart
_SMALLEST = 1 << 11
_ROOM = 1 << 10
_WHOLE = np.dtype("V24")


class Counted(NamedTuple):
    """Events by user and public window: three arrays of one length; a user may appear several times."""

    users: Hashes
    windows: IntArray
    events: IntArray

    @classmethod
    def nothing(cls) -> "Counted":
        none = np.empty(0, np.int64)
        return cls(np.empty((0, 2), np.uint64), none, none)

    @classmethod
    def together(cls, parts: Sequence["Counted"]) -> "Counted":
        users, windows, events = zip(cls.nothing(), *parts, strict=True)
        return cls(np.concatenate(users), np.concatenate(windows), np.concatenate(events))

    def since(self, window: int) -> "Counted":
        """Return the events of this window and later ones."""
        kept = self.windows >= window
        return Counted(self.users[kept], self.windows[kept], self.events[kept])

    def __repr__(self) -> str:
        return "<Counted>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


@dataclass(frozen=True, slots=True, repr=False)
class Used:
    """What some records used of their users' caps; `number` is the count of such admissions of the memory `kind`."""

    number: int
    counted: Counted
    kind: str = "users"


class UserTable:
    """Events by user and window, below 2^`bits` each; a user who is not in the table has no events. A row has three
    words: two for the hash, and a third one for window + 1 and the number of events; 0 marks a free row.
    """

    def __init__(self, bits: int = 16) -> None:
        self._bits = np.uint64(bits)
        self._most = np.uint64((1 << bits) - 1)
        self._make(_SMALLEST)

    def __len__(self) -> int:
        """The number of pairs of user and window that have events."""
        return int(np.count_nonzero(self._rows[:, 2] & self._most))

    def first(
        self, users: Hashes, windows: IntArray, cap: int
    ) -> tuple[NDArray[np.bool_], Counted]:
        """Add one event for each of these users in its window, in this order, as far as `cap` allows. Return which
        events were added, of shape (users,), and the added events by user and window.
        """
        kept = np.empty(len(users), np.bool_)
        parts: list[Counted] = []
        for chunk in self._in_parts(len(users)):
            kept[chunk], used = self._first(users[chunk], windows[chunk], cap)
            parts.append(used)
        return kept, Counted.together(parts)

    def events(self, users: Hashes, windows: IntArray) -> IntArray:
        """Return the number of events of each user in its window, of shape (users,)."""
        events = np.empty(len(users), np.int64)
        for chunk in self._in_parts(len(users)):
            events[chunk] = self._events(self._slots(users[chunk], windows[chunk]))
        return events

    def content(self) -> Counted:
        """Return all events, in no particular order."""
        rows = self._rows[(self._rows[:, 2] & self._most).nonzero()[0]]
        windows = (rows[:, 2] >> self._bits).astype(np.int64) - 1
        return Counted(rows[:, :2], windows, (rows[:, 2] & self._most).astype(np.int64))

    def up_to(self, users: Hashes, amounts: IntArray, cap: int) -> IntArray:
        """Add the amount of each of these different users in window 0, as far as `cap` allows; return what was added,
        of shape (users,).
        """
        added = np.empty(len(users), np.int64)
        for chunk in self._in_parts(len(users)):
            slots = self._slots(users[chunk], np.zeros(chunk.stop - chunk.start, np.int64))
            added[chunk] = np.minimum(amounts[chunk], cap - self._events(slots))
            self._rows[slots, 2] += added[chunk].astype(np.uint64)
        return added

    def add(self, counted: Counted, cap: int) -> bool:
        """Add these events; return whether `cap` allows all of them."""
        if (counted.events > cap).any():
            return False
        within = True
        if (
            not self._taken
        ):  # rows in the order of another table would crowd in one that has still to grow
            self._make(_enough_for(len(counted.users)))
        for chunk in self._in_parts(len(counted.users)):
            slots = self._slots(counted.users[chunk], counted.windows[chunk])
            np.add.at(self._rows[:, 2], slots, counted.events[chunk].astype(np.uint64))
            within = within and bool((self._events(slots) <= cap).all())
        return within

    def give_back(self, counted: Counted) -> None:
        """Subtract events that were added before."""
        for chunk in self._in_parts(len(counted.users)):
            slots = self._slots(counted.users[chunk], counted.windows[chunk])
            np.subtract.at(self._rows[:, 2], slots, counted.events[chunk].astype(np.uint64))

    def forget(self, before: int) -> None:
        marks = self._rows[:, 2]
        marks[marks >> self._bits <= np.uint64(before)] &= ~self._most
        if 2 * len(self) < self._taken:
            self._renew()

    def _first(
        self, users: Hashes, windows: IntArray, cap: int
    ) -> tuple[NDArray[np.bool_], Counted]:
        slots = self._slots(users, windows)
        order = np.argsort(slots * len(slots) + np.arange(len(slots)))
        ordered = slots[order]
        begins = np.flatnonzero(np.diff(ordered, prepend=-1))
        rows, numbers = ordered[begins], np.diff(begins, append=len(ordered))
        added = np.minimum(numbers, cap - self._events(rows))
        self._rows[rows, 2] += added.astype(np.uint64)
        kept = np.empty(len(users), np.bool_)
        kept[order] = np.arange(len(order)) - np.repeat(begins, numbers) < np.repeat(added, numbers)
        counting = order[begins][added > 0]
        return kept, Counted(users.take(counting, axis=0), windows[counting], added[added > 0])

    def _make(self, size: int) -> None:
        self._rows = np.zeros((size, 3), np.uint64)
        self._whole = self._rows.view(_WHOLE).reshape(-1)
        self._taken = 0

    def _in_parts(self, number: int) -> Iterator[slice]:
        """Yield slices of `number` users that fit into the table at their turn; grow the table where needed. The table
        is at most two thirds full, and right after it has grown more than a third.
        """
        begin = 0
        while begin < number:
            size = len(self._rows)
            room = 2 * size // 3 - self._taken
            if room < min(number - begin, max(_ROOM, size // 12)):
                self._renew()
                continue
            yield slice(begin, begin := min(number, begin + room))

    def _renew(self) -> None:
        """Move all rows with events to a new table that has room to grow."""
        kept = self._whole.take((self._rows[:, 2] & self._most).nonzero()[0])
        self._make(_enough_for(len(kept)))
        at = self._begin(_rows_of(kept))
        order = at.argsort(kind="stable")  # nearly sorted: every table orders rows alike
        at, counted = at.take(order), np.arange(len(order))
        at -= counted
        np.maximum.accumulate(at, out=at)
        at += counted
        inside = int(np.searchsorted(at, len(self._rows)))
        kept = kept.take(order)
        self._whole[at[:inside]] = kept[:inside]
        self._taken = inside
        self._placed(_rows_of(kept[inside:]))

    def _events(self, slots: IntArray) -> IntArray:
        events: IntArray = (self._rows[slots, 2] & self._most).astype(np.int64)
        return events

    def _slots(self, users: Hashes, windows: IntArray) -> IntArray:
        """Return the row number of each user in its window; missing rows are added."""
        wanted = np.empty((len(users), 3), np.uint64)
        wanted[:, :2] = users
        wanted[:, 2] = (windows.astype(np.uint64) + np.uint64(1)) << self._bits
        return self._placed(wanted)

    def _placed(self, wanted: Rows) -> IntArray:
        """Return the place of each wanted row, adding rows that are missing; a row may be wanted several times."""
        slots, left = self._begin(wanted), np.arange(len(wanted))
        while left.size:
            at = slots[left]
            there = self._rows.take(at, axis=0)
            (free,) = (there[:, 2] == 0).nonzero()
            if free.size:
                self._put(wanted.take(free, axis=0), at[free])
                there[free] = self._rows.take(at[free], axis=0)
            there ^= wanted
            there[:, 2] &= ~self._most
            (on,) = (there[:, 0] | there[:, 1] | there[:, 2]).nonzero()
            left, wanted = left[on], wanted.take(on, axis=0)
            slots[left] = (at[on] + 1) % len(self._rows)
        return slots

    def _put(self, wanted: Rows, at: IntArray) -> None:
        """Write rows to free places; if several rows want one place, one of them gets it."""
        asking = np.arange(1, len(at) + 1, dtype=np.uint64)
        self._rows[at, 2] = asking
        (won,) = (self._rows[at, 2] == asking).nonzero()
        self._whole[at[won]] = wanted.view(_WHOLE).reshape(-1)[won]
        self._taken += len(won)

    def _begin(self, wanted: Rows) -> IntArray:
        """Return where the search for each row begins."""
        spread = (wanted[:, 0] + (wanted[:, 2] >> self._bits) * _APART) & _LOW
        begins: IntArray = ((spread * np.uint64(len(self._rows))) >> _HALF).astype(np.int64)
        return begins


def _enough_for(rows: int) -> int:
    """Return a size of which these rows take little more than a third."""
    return _SMALLEST + 18 * rows // 7


def in_order(users: Hashes, under: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the order by the numbers `under`, then by hash, and where in it each distinct pair begins."""
    order = np.lexsort((users[:, 1], users[:, 0], under))
    users, under = users[order], under[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (users[1:] != users[:-1]).any(axis=1) | (under[1:] != under[:-1])
    return order, begins


def _rows_of(whole: NDArray[np.void]) -> Rows:
    return whole.view(np.uint64).reshape(-1, 3)


ByColumn: TypeAlias = Mapping[int, Hashes]
"""Identifiers by the column of the row that counts them; of a column of amounts, of shape (users, 3)."""

_WITH_AMOUNTS = 3
_FEW = 1 << 12


class Arrivals:
    """The distinct identifiers of one tick, by column: the `known` ones, and those added since.

    Known ones lie in runs, each sorted by hash and at least twice as long as the next: each of n identifiers is copied
    about log n times, however many calls bring them.
    """

    def __init__(self, known: ByColumn | None = None) -> None:
        self._known = {column: [each_once([hashes])] for column, hashes in (known or {}).items()}
        self._parts: dict[int, list[Hashes]] = {}
        self._kept: dict[int, int] = {}
        self._bound: dict[int, int] = {}

    def add(self, columns: ByColumn) -> None:
        """Add identifiers; duplicates take room until the entries of their column have doubled."""
        for column, hashes in columns.items():
            parts = self._parts.setdefault(column, [])
            parts.append(hashes)
            self._kept[column] = self._kept.get(column, 0) + len(hashes)
            if self._kept[column] > self._bound.get(column, _FEW):
                parts[:] = [each_once(parts)]
                self._kept[column] = len(parts[0])
                self._bound[column] = 2 * self._kept[column] + _FEW

    def fresh(self) -> dict[int, Hashes]:
        """Return the identifiers seen for the first time, by column, sorted by hash, and remember them. Of amounts it
        is all that was added since.
        """
        first: dict[int, Hashes] = {}
        for column, parts in sorted(self._parts.items()):
            hashes = each_once(parts)
            for run in () if has_amounts(hashes) else self._known.get(column, ()):
                hashes = hashes[~_among(run, hashes)]
            if len(hashes):
                first[column] = hashes
                _append(self._known.setdefault(column, []), hashes)
        for kept in (self._parts, self._kept, self._bound):
            kept.clear()
        return first

    def once(self) -> dict[int, Hashes]:
        """Return the distinct identifiers by column, in no particular order."""
        every: dict[int, Hashes] = {}
        for column in sorted(self._known.keys() | self._parts.keys()):
            parts = [*self._known.get(column, ()), *self._parts.get(column, ())]
            every[column] = parts[0] if len(parts) == 1 else each_once(parts)
        return every


def _append(runs: list[Hashes], fresh: Hashes) -> None:
    """Append a run, merged with the earlier runs that are not twice as long as all that follows them."""
    first, size = len(runs), len(fresh)
    while first and len(runs[first - 1]) < 2 * size:
        first -= 1
        size += len(runs[first])
    runs[first:] = [each_once([*runs[first:], fresh])] if first < len(runs) else [fresh]


def _among(known: Hashes, hashes: Hashes) -> NDArray[np.bool_]:
    """Return for each of `hashes` whether `known` holds it; `known` is sorted by first word."""
    member = np.zeros(len(hashes), np.bool_)
    at = np.searchsorted(known[:, 0], hashes[:, 0])
    left = np.flatnonzero(at < len(known))
    while len(left := left[known[at[left], 0] == hashes[left, 0]]):
        member[left] |= known[at[left], 1] == hashes[left, 1]
        at[left] += 1
        left = left[at[left] < len(known)]
    return member


def each_once(parts: Sequence[Hashes]) -> Hashes:
    """Return the distinct identifiers of all parts, sorted by hash, with the sums of their amounts if they have any."""
    every = np.concatenate(parts)
    every = every[np.lexsort((every[:, 1], every[:, 0]))]
    first = np.ones(len(every), np.bool_)
    first[1:] = (every[1:, :2] != every[:-1, :2]).any(axis=1)
    once = every[first]
    if has_amounts(every) and len(every):
        once[:, 2] = np.add.reduceat(every[:, 2], np.flatnonzero(first))
    return once


def has_amounts(hashes: Hashes) -> bool:
    return bool(hashes.shape[1] == _WITH_AMOUNTS)


def write_identifiers(arriving: Mapping[int, ByColumn]) -> dict[int, dict[int, bytes]]:
    """Return identifiers by tick and column as bytes; a column c of amounts is written as ~c, which is negative."""
    return {
        tick: {
            ~column if has_amounts(hashes) else column: hashes.astype("<u8").tobytes()
            for column, hashes in columns.items()
        }
        for tick, columns in arriving.items()
    }


def read_identifiers(arriving: Mapping[int, Mapping[int, bytes]]) -> dict[int, ByColumn]:
    """Return the identifiers that `write_identifiers` wrote; raise `FailClosed` for other bytes."""
    every = [item for columns in arriving.values() for item in columns.items()]
    if any(len(entries) % (8 * _words(column)) for column, entries in every):
        raise FailClosed(
            "the journal holds identifiers that this engine did not write. Restore the journal, "
            "or run the version of the code that wrote it"
        )
    return {
        tick: {
            max(column, ~column): np.frombuffer(entries, "<u8")
            .reshape(-1, _words(column))
            .astype(np.uint64)
            for column, entries in columns.items()
        }
        for tick, columns in arriving.items()
    }


def _words(column: int) -> int:
    return _WITH_AMOUNTS if column < 0 else 2
