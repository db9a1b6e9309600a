"""What an engine remembers beside the states of its mechanisms, and a journal restores: keyed hashes (private).

`Memory` is the form of a memory. `UserMemory`: how many events of each user count in each public window. `SeenMemory`:
the identifiers that came earlier in their window. `TotalMemory`: how much each user has added to a sum in the window,
and `SharedTotalMemory` to all that share a total.
`NetMemory`: what a user's amounts of both signs come to in it.
`OpenIdentifiers`: the identifiers, and amounts, of ticks that are still open.

Rules: a memory stands at the cut. A commit holds, in its `parts` under the memory's kind, what its ticks, or the
messages before it, added to the memory. A start loads what a checkpoint saved, if there is one, and replays all commits
after it in order, which gives the memory of an uninterrupted run. Records read behind the cut leave no trace: `rewind`
removes them before they are read again. A window is forgotten when its last tick has closed and for no other reason:
neither other users nor want of room evict it. A count depends on the identifiers of its tick and of the earlier ticks
of its window, not on partitions, batches or the order within a tick.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.history import Remembering
from stream_dp.engine.tick_assembler import ClosedTick, Cut
from stream_dp.engine.user_table import (
    Arrivals,
    ByColumn,
    Counted,
    Hashes,
    Used,
    UserTable,
    has_amounts,
    in_order,
    read_identifiers,
    write_identifiers,
)
from stream_dp.errors import FailClosed
from stream_dp.journal.checkpoint import KIND as CHECKPOINT
from stream_dp.journal.checkpoint import PRUNED
from stream_dp.journal.commit import Commit, part, part_in

_BY_WINDOW = msgspec.msgpack.Decoder(dict[int, bytes])
_BY_TWO = msgspec.msgpack.Decoder(dict[int, dict[int, bytes]])
_SHARED_BITS = 32  # `MOST_UNITS` fit
_UNIT_BITS = 40  # a table of units is for one window; see `MOST_UNITS`
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("events", "<u4")])
_MOST = (1 << 32) - 1  # events, or units, in an entry


class Memory(Remembering, Protocol):
    """Remembers what happened before the cut; a start loads it from a checkpoint, or replays every commit into it."""

    @property
    def kind(self) -> str:
        """The kind of its part in commits."""

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Move the cut behind these ticks, which come next; without ticks (a commit of messages) stay at the cut.
        Return the ticks with rows as they count, and this memory's part of the commit (None: nothing was added).
        """

    def rewind(self, cut: Cut) -> Cut:
        """Forget records read behind the cut; return the cut with what this memory knows of open ticks."""

    def save(self) -> bytes | None:
        """Return, right after `record` with ticks, what this memory holds at the cut (None: nothing)."""

    def load(self, commit: Commit) -> None:
        """Become, from an empty memory, the one that was saved after this commit, whose part of this kind is what was
        saved; `FailClosed` as `replay`.
        """


class Memories:
    """The memories of an engine; each gets the ticks that the memory before it returned."""

    def __init__(self, *memories: Memory) -> None:
        self._memories = memories

    def replay(self, commit: Commit) -> None:
        """See `Memory`; raises `FailClosed` if the commit has a part of a kind that no memory reads."""
        self._require_known(commit)
        for memory in self._memories:
            memory.replay(commit)

    def save(self) -> dict[str, bytes]:
        """Return what each memory holds at the cut, by kind; see `Memory`."""
        saved = {memory.kind: memory.save() for memory in self._memories}
        return {kind: written for kind, written in saved.items() if written is not None}

    def load(self, saved: Mapping[str, bytes], commit: Commit) -> None:
        """See `Memory`; raises `FailClosed` as `replay`."""
        standing = msgspec.structs.replace(commit, parts=dict(saved))
        self._require_known(standing)
        for memory in self._memories:
            memory.load(standing)

    def _require_known(self, commit: Commit) -> None:
        known = {CHECKPOINT, PRUNED, *(memory.kind for memory in self._memories)}
        unknown = sorted(commit.parts.keys() - known)
        if unknown:
            raise FailClosed(
                f"commit {commit.sequence} of the journal holds a part of the kind {unknown[0]!r}, "
                "which this engine cannot read. Run the version of the code, and the pipeline file, "
                "that wrote it"
            )

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], dict[str, bytes]]:
        """Return the ticks with rows as they count, and the parts of the commit by kind; see `Memory`."""
        parts = dict[str, bytes]()
        for memory in self._memories:
            ticks, written = memory.record(ticks)
            if written is not None:
                parts[memory.kind] = written
        return ticks, parts

    def rewind(self, cut: Cut) -> Cut:
        for memory in self._memories:
            cut = memory.rewind(cut)
        return cut


OF_RELEASES = "fired"
"""The kind of a memory that commits do not restore: what public releases show."""


def same_memories(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> bool:
    """Return whether two results of `Memories.save` hold the same of commits, in whatever order users stand there."""
    kinds = (one.keys() | other.keys()) - {OF_RELEASES}
    return kinds <= one.keys() & other.keys() and all(
        one[kind] == other[kind] or _in_order(one[kind]) == _in_order(other[kind]) for kind in kinds
    )


def _in_order(held: bytes) -> object:
    def sorted_in(value: Any) -> object:
        if isinstance(value, dict):
            return {key: sorted_in(within) for key, within in value.items()}
        if isinstance(value, bytes) and len(value) % _ENTRY.itemsize == 0:
            entries = np.frombuffer(value, _ENTRY)
            return entries[np.lexsort((entries["low"], entries["high"]))].tobytes()
        return value

    return sorted_in(msgspec.msgpack.decode(held, strict=False))


class UserMemory:
    """How many events of each user count, at most `cap` in each window of `window` ticks (None: for ever), in each of
    so many `entries`, which have windows of their own.

    Events read behind the cut of the last commit are pending. A tick takes them and its commit records them, or they
    are given back when reading begins again at the cut.
    """

    kind: str = "users"

    def __init__(
        self, cap: int, window: int | None, entries: int = 1, table: UserTable | None = None
    ) -> None:
        self._cap, self._window, self._entries = cap, window, entries
        self._table = UserTable() if table is None else table
        self._pending: dict[int, Used] = {}
        self._number = self._open = 0

    def windows(self, ticks: IntArray) -> IntArray:
        """Return the public window of each tick, counted from tick 0; the first of those of several entries."""
        if self._window is None:
            return np.zeros_like(ticks)
        return ticks // self._window * self._entries

    def admit(self, users: Hashes, windows: IntArray) -> tuple[NDArray[np.bool_], Used | None]:
        """Admit records of these users in these windows, in this order, as far as their caps allow. Return which
        records are admitted, of shape (records,), and what they use of the caps (None: nothing).
        """
        kept, counted = self._table.first(users, windows, self._cap)
        return kept, self._used(counted)

    def _used(self, counted: Counted) -> Used | None:
        if not len(counted.users):
            return None
        used = self._pending[self._number] = Used(self._number, counted, self.kind)
        self._number += 1
        return used

    def room(self, users: Hashes, windows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the number of each record's cell, which is a user in a window, of shape (records,); and of each cell
        how many events count, and for how many more there is room, both of shape (cells,).
        """
        order, begins = in_order(users, windows)
        cells = np.empty(len(order), np.int64)
        cells[order] = np.cumsum(begins) - 1
        first = order[begins]
        counted = self._table.events(users[first], windows[first])
        return cells, counted, self._cap - counted

    def rewind(self, cut: Cut) -> Cut:
        for used in self._pending.values():
            self._table.give_back(used.counted.since(self._open))
        self._pending.clear()
        return cut

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        if not ticks:
            return ticks, None
        every = chain.from_iterable(closed.used for closed in ticks)
        taken = (used for used in every if used.kind == self.kind)
        used = self.settle(taken, ticks[-1].tick + 1)
        return ticks, part(used) if used else None

    def settle(self, taken: Iterable[Used], next_tick: int) -> dict[int, bytes]:
        """Move to the cut before `next_tick`, whose ticks took these events; return what the commit records."""
        return written_by_window(Counted.together(self.take(taken, next_tick)).since(self._open))

    def take(self, taken: Iterable[Used], next_tick: int) -> Sequence[Counted]:
        """Move to the cut before `next_tick`, whose ticks took these events; return the events."""
        parts = []
        for used in taken:
            del self._pending[used.number]
            parts.append(used.counted)
        self._forget(next_tick)
        return parts

    def count(self, counted: Counted) -> Used | None:
        """Add events that a memory of the same caps admitted in another process, of partitions that it alone reads;
        return None where the cap does not allow them.
        """
        return self._used(counted) if self._table.add(counted, self._cap) else None

    def become(self, held: Mapping[int, bytes], next_tick: int) -> None:
        """Become, from an empty memory, one that stands before `next_tick` and of which this was `held`."""
        standing = Commit(0, b"", ticks=(next_tick - 1,) if next_tick else ())
        self.recall(held, standing)

    def replay(self, commit: Commit) -> None:
        recorded = part_in(commit, self.kind, _BY_WINDOW, _OTHERS)
        self.recall(recorded or {}, commit)

    def save(self) -> bytes | None:
        held = self.held()
        return part(held) if held else None

    def held(self) -> dict[int, bytes]:
        """Return the entries at the cut, without those that are pending, by window."""
        pending = [used.counted.since(self._open) for used in self._pending.values()]
        for counted in pending:
            self._table.give_back(counted)
        held = held_by_window(self._table.content().since(self._open))
        for counted in pending:
            self._table.add(counted, self._cap)
        return held

    def load(self, commit: Commit) -> None:
        self.replay(commit)

    def recall(self, recorded: Mapping[int, bytes], commit: Commit) -> None:
        """Add the entries that a commit recorded for this memory, by window; `FailClosed` if it did not write them."""
        for window, entries in recorded.items():
            if not self._table.add(_read(window, entries, commit), self._cap):
                raise _foreign(commit)
        if commit.ticks:
            self._forget(commit.ticks[-1] + 1)

    def _forget(self, next_tick: int) -> None:
        if self._window is None:
            return
        begins = next_tick // self._window * self._entries
        if begins > self._open:
            self._open = begins
            self._table.forget(begins)


class TickCapMemory(UserMemory):
    """How many events of each user count in each tick that is still open, beside the cap of a window."""

    kind = "users by tick"


class KeyCapMemory(UserMemory):
    """How many events of each user count of each key in the window, under the keyed hash of the pair."""

    kind = "users by key"


class KeysMemory(UserMemory):
    """Of how many different keys events of each user count in the window."""

    kind = "keys of users"


class SharedTotalMemory(UserMemory):
    """How many units of a total that series share each user has added in each public window."""

    kind = "shared total"

    def __init__(self, most: int, window: int | None, of: str = "") -> None:
        """`most` is the most units of a user; in a table a window has as many bits as units have. `of`: the amount,
        where users have several totals.
        """
        super().__init__(most, window, table=UserTable(_SHARED_BITS))
        self.kind = f"{type(self).kind} of {of}" if of else type(self).kind

    def add(self, users: Hashes, windows: IntArray, units: IntArray) -> Used | None:
        """Add units of these users, for which there is room (`room`); return what that uses (None: nothing)."""
        some = units > 0
        counted = Counted(users[some], windows[some], units[some])
        self._table.add(counted, self._cap)
        return self._used(counted)


def written_by_window(counted: Counted) -> dict[int, bytes]:
    """Return the events by window, with each user once, sorted by hash."""
    order, begins = in_order(counted.users, counted.windows)
    events = counted.events[order]
    if len(order):
        events = np.add.reduceat(events, np.flatnonzero(begins))
    first = order[begins]
    return held_by_window(Counted(counted.users[first], counted.windows[first], events))


def held_by_window(counted: Counted) -> dict[int, bytes]:
    """Return the events by window, of users who stand there once, in their order. It sorts nothing: 60 ms for a million
    users.
    """
    entries = np.empty(len(counted.users), _ENTRY)
    entries["high"], entries["low"], entries["events"] = *counted.users.T, counted.events
    windows = np.unique(counted.windows).tolist()
    return {window: entries[counted.windows == window].tobytes() for window in windows}


def counted_in(by_window: Mapping[int, bytes]) -> Counted:
    """Return the events that `written_by_window` wrote."""
    nowhere = Commit(0, b"")
    return Counted.together([_read(at, entries, nowhere) for at, entries in by_window.items()])


_OTHERS, _OTHER_TOTALS = (
    f"{what}: restore the journal, or run the version of the code and of the file that wrote it"
    for what in (
        "a memory of users that this guard has not written",
        "totals of users that this file does not ask for",
    )
)


def _read(window: int, entries: bytes, commit: Commit, otherwise: str = _OTHERS) -> Counted:
    if len(entries) % _ENTRY.itemsize:
        raise _foreign(commit, otherwise)
    read = np.frombuffer(entries, _ENTRY)
    users = np.stack([read["high"], read["low"]], axis=1).astype(np.uint64)
    return Counted(users, np.full(len(read), window), read["events"].astype(np.int64))


def _foreign(commit: Commit, otherwise: str = _OTHERS) -> FailClosed:
    return FailClosed(f"commit {commit.sequence} of the journal holds {otherwise}")


class SeenMemory:
    """The identifiers that each column has counted in its window of so many ticks (None: for ever).

    Columns of one series, from a first one to an end, have one table, where an identifier stands once for each. A
    commit records them by the first column, each with one event, in the form of `UserMemory`.
    """

    kind: ClassVar[str] = "arrived"

    def __init__(self, windows: Mapping[tuple[int, int], int | None] | None = None) -> None:
        items = (windows or {}).items()
        self._columns = {at: UserMemory(1, window, end - at) for (at, end), window in items}
        self._first = {column: at for (at, end), _ in items for column in range(at, end)}

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Return the ticks with rows that count identifiers seen first in their window; else see `Memory`."""
        if not (self._columns and ticks):
            return ticks, None
        used: dict[int, list[Used]] = {column: [] for column in self._columns}
        counted = [self._counted(closed, used) for closed in ticks]
        settled = {
            column: memory.settle(used[column], ticks[-1].tick + 1)
            for column, memory in self._columns.items()
        }
        arrived = {column: entries for column, entries in settled.items() if entries}
        return counted, part(arrived) if arrived else None

    def rewind(self, cut: Cut) -> Cut:
        """Records behind the cut never reach this memory."""
        return cut

    def replay(self, commit: Commit) -> None:
        arrived = part_in(commit, self.kind, _BY_TWO, _OTHERS) or {}
        for column, memory in self._columns.items():
            memory.recall(arrived.get(column, {}), commit)

    def save(self) -> bytes | None:
        held = {column: memory.held() for column, memory in self._columns.items()}
        held = {column: entries for column, entries in held.items() if entries}
        return part(held) if held else None

    def load(self, commit: Commit) -> None:
        self.replay(commit)

    def _counted(self, closed: ClosedTick, used: dict[int, list[Used]]) -> ClosedTick:
        row: IntArray = closed.row.copy()
        for column, hashes in closed.arrived.items():
            if has_amounts(hashes):  # for `TotalMemory`
                continue
            at = self._first[column]
            memory = self._columns[at]
            windows = memory.windows(np.full(len(hashes), closed.tick)) + (column - at)
            first, use = memory.admit(hashes, windows)
            row[column] = np.count_nonzero(first)
            used[at] += [] if use is None else [use]
        row.flags.writeable = False
        return replace(closed, row=row)


class TotalMemory:
    """How many units each user has added in the open public window of `window` ticks (None: for ever), for each slice
    of columns that share a total. A commit records what its ticks added, in the form of `UserMemory`.

    Rules: a user who has added S of a total of C, and whose records in a tick amount to v, adds min(C, S + v) - S. Of a
    tick's columns the first ones come first. So all that a user adds in a window is at most C, and depends on the sums
    of that user's own records by tick and column, whatever order and partitions they come in.
    """

    kind: ClassVar[str] = "totals"

    def __init__(self, totals: Mapping[tuple[int, int], int], window: int | None) -> None:
        """`totals` has the most units of a user by the first and the end of the columns that share them.

        Raises ValueError for a total that the form of commits cannot hold.
        """
        if any(most > _MOST for most in totals.values()):
            raise ValueError(f"a commit holds at most {_MOST:,} units of a user")
        self._most = totals
        self._window = window
        self._open = 0
        self._tables = dict[int, UserTable]()
        self._begin()

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Return the ticks with rows that hold what users add; else see `Memory`."""
        if not (self._most and ticks):
            return ticks, None
        added: dict[int, list[Counted]] = {start: [] for start, _ in self._most}
        counted = [self._counted(closed, added) for closed in ticks]
        self._enter(ticks[-1].tick + 1)
        settled = {
            start: written_by_window(Counted.together(parts).since(self._open))
            for start, parts in added.items()
        }
        recorded = {start: entries for start, entries in settled.items() if entries}
        return counted, part(recorded) if recorded else None

    def rewind(self, cut: Cut) -> Cut:
        """Records behind the cut never reach this memory."""
        return cut

    def replay(self, commit: Commit) -> None:
        recorded = part_in(commit, self.kind, _BY_TWO, _OTHER_TOTALS) or {}
        most = {start: most for (start, _), most in self._most.items()}
        if not recorded.keys() <= most.keys():
            raise _foreign(commit, _OTHER_TOTALS)
        if commit.ticks:
            self._enter(commit.ticks[-1] + 1)
        for start, entries in recorded.items():
            for window, written in entries.items():
                counted = _read(window, written, commit, _OTHER_TOTALS)
                one_window = counted._replace(windows=np.zeros_like(counted.windows))
                if window != self._open or not self._tables[start].add(one_window, most[start]):
                    raise _foreign(commit, _OTHER_TOTALS)

    def save(self) -> bytes | None:
        held = dict[int, dict[int, bytes]]()
        for start, table in self._tables.items():
            content = table.content()
            windows = np.full_like(content.windows, self._open)
            held[start] = held_by_window(content._replace(windows=windows))
        held = {start: entries for start, entries in held.items() if entries}
        return part(held) if held else None

    def load(self, commit: Commit) -> None:
        self.replay(commit)

    def _counted(self, closed: ClosedTick, added: dict[int, list[Counted]]) -> ClosedTick:
        self._enter(closed.tick)
        row: IntArray = closed.row.copy()
        for (start, stop), most in self._most.items():
            for column in sorted(c for c in closed.arrived if start <= c < stop):
                users, amounts = closed.arrived[column][:, :2], closed.arrived[column][:, 2]
                units = self._tables[start].up_to(users, amounts.astype(np.int64), most)
                row[column] = units.sum()
                some = units > 0
                windows = np.full(np.count_nonzero(some), self._open)
                added[start].append(Counted(users[some], windows, units[some]))
        row.flags.writeable = False
        return replace(closed, row=row)

    def _enter(self, tick: int) -> None:
        """Forget the window before where the tick is in another one."""
        if self._window is not None and tick // self._window != self._open:
            self._open = tick // self._window
            self._begin()

    def _begin(self) -> None:
        self._tables = {start: UserTable(_UNIT_BITS) for start, _ in self._most}  # in its window 0


class NetMemory:
    """What each user's amounts, of both signs, add up to in the open public window of `window` ticks, for each slice of
    columns that share a total. A commit records what its ticks added, in the form of `OpenIdentifiers`, by window.

    Rules: rows tell nothing of a window before its last tick. There, column by column, of a user's sum v counts as much
    as is left of the total C: v clamped to -left .. left, which then is less by that. So all that a user changes in a
    window is at most C, and depends on that user's own sums by column, whatever order and ticks they come in.
    """

    kind: ClassVar[str] = "net totals"

    def __init__(self, totals: Mapping[tuple[int, int], int], window: int | None) -> None:
        """`totals` as for `TotalMemory` (ValueError: it has some, and windows never end)."""
        if totals and window is None:
            raise ValueError(
                "amounts that can be positive and negative need windows that end: add the key "
                "`every`"
            )
        self._most, self._window = totals, window or 1
        self._open = 0
        self._sums = Arrivals()

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        """Return the ticks with rows that tell what users' windows come to; else see `Memory`."""
        if not (self._most and ticks):
            return ticks, None
        counted = [self._counted(closed) for closed in ticks]
        added = self._sums.fresh()
        return counted, part(write_identifiers({self._open: added})) if added else None

    def rewind(self, cut: Cut) -> Cut:
        """Records behind the cut never reach this memory."""
        return cut

    def replay(self, commit: Commit) -> None:
        recorded = part_in(commit, self.kind, _BY_TWO, _OTHER_TOTALS)
        if commit.ticks:
            self._enter(commit.ticks[-1] + 1)
        for window, columns in read_identifiers(recorded or {}).items():
            if window != self._open or not all(map(self._shares, columns)):
                raise _foreign(commit, _OTHER_TOTALS)
            self._sums.add(columns)
            self._sums.fresh()  # so that no later commit records them again

    def save(self) -> bytes | None:
        sums = self._sums.once()
        return part(write_identifiers({self._open: sums})) if sums else None

    def load(self, commit: Commit) -> None:
        self.replay(commit)

    def _shares(self, column: int) -> bool:
        return any(start <= column < stop for start, stop in self._most)

    def _counted(self, closed: ClosedTick) -> ClosedTick:
        self._sums.add({at: arrived for at, arrived in closed.arrived.items() if self._shares(at)})
        following = closed.tick + 1
        if following % self._window:
            return closed
        row: IntArray = closed.row.copy()
        sums = self._sums.once()
        for (start, stop), most in self._most.items():
            table = UserTable(_UNIT_BITS)
            for column in sorted(at for at in sums if start <= at < stop):
                users, amounts = sums[column][:, :2], sums[column][:, 2].astype(np.int64)
                units = table.up_to(users, np.abs(amounts), most)
                row[column] = (units * np.sign(amounts)).sum()
        row.flags.writeable = False
        self._enter(following)
        return replace(closed, row=row)

    def _enter(self, tick: int) -> None:
        """Forget the window before where the tick is in another one."""
        if tick // self._window != self._open:
            self._open = tick // self._window
            self._sums = Arrivals()


class OpenIdentifiers:
    """The identifiers of ticks behind the last commit, by tick and column.

    A commit holds the identifiers that its own cut added, so the chain holds each identifier of a tick and column once,
    however long the tick stays open, and each user's amounts once for every cut that adds some. The commit with the
    tick drops them.
    """

    kind: ClassVar[str] = "arriving"

    def __init__(self) -> None:
        self._parts: dict[int, Arrivals] = {}
        self._next_tick = 0

    def replay(self, commit: Commit) -> None:
        """Add the identifiers of the next commit, and drop those of ticks that are over with it."""
        recorded = part_in(commit, self.kind, _BY_TWO, _OTHERS)
        if commit.ticks:
            self._next_tick = commit.ticks[-1] + 1
        arriving = read_identifiers(recorded or {})
        if any(tick < self._next_tick for tick in arriving):
            raise _foreign(
                commit,
                "the journal holds identifiers of a tick that had already closed. Restore the "
                "journal, or run the version of the code that wrote it",
            )
        self._add(arriving)

    def save(self) -> bytes | None:
        content = self.content()
        return part(write_identifiers(content)) if content else None

    def load(self, commit: Commit) -> None:
        self.replay(commit)

    def record(self, ticks: Sequence[ClosedTick]) -> tuple[Sequence[ClosedTick], bytes | None]:
        if not ticks:
            return ticks, None
        self._next_tick = ticks[-1].tick + 1
        arriving = added_behind(ticks[-1].tick, (closed.arriving for closed in ticks))
        self._add(arriving)
        return ticks, part(write_identifiers(arriving)) if arriving else None

    def rewind(self, cut: Cut) -> Cut:
        return replace(cut, arriving=self.content())

    def content(self) -> dict[int, ByColumn]:
        return {tick: arrivals.once() for tick, arrivals in sorted(self._parts.items())}

    def _add(self, arriving: Mapping[int, ByColumn]) -> None:
        for tick, columns in arriving.items():
            self._parts.setdefault(tick, Arrivals()).add(columns)
        for tick in [open_tick for open_tick in self._parts if open_tick < self._next_tick]:
            del self._parts[tick]


def added_behind(last: int, cuts: Iterable[Mapping[int, ByColumn]]) -> dict[int, ByColumn]:
    """Return the distinct identifiers that these cuts added to ticks after `last`, by tick and column."""
    later: dict[int, Arrivals] = {}
    for cut in cuts:
        for tick, columns in cut.items():
            if tick > last:
                later.setdefault(tick, Arrivals()).add(columns)
    return {tick: arrivals.once() for tick, arrivals in sorted(later.items())}
