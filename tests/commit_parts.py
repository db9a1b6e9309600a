"""Parts of commits, for tests that look at what a memory wrote or holds, or write it."""

from typing import Any

import msgspec
import numpy as np

from stream_dp.engine.memories import SeenMemory, UserMemory, written_by_window
from stream_dp.engine.user_table import Counted, UserTable
from stream_dp.journal.commit import Commit, part


def part_of(commit: Commit, kind: str) -> dict[int, Any]:
    """Return the entries of a part, by window, column or tick; empty if the commit has no such part."""
    return msgspec.msgpack.decode(commit.parts[kind]) if kind in commit.parts else {}


def parts(**entries: Any) -> dict[str, bytes]:
    """Return the parts that hold these entries, as memories write them."""
    return {kind: part(value) for kind, value in entries.items()}


def place_of(commit: Commit) -> int:
    """Return the place up to which the queue of messages was read with a commit; -1 where it is that of before."""
    written = commit.parts.get("messages")
    place: int = msgspec.msgpack.decode(written)[0] if written else -1
    return place


def events_in(table: UserTable) -> Counted:
    kept = table._rows[table._rows[:, 2] % 2**16 > 0]
    windows, events = np.divmod(kept[:, 2].astype(np.int64), 2**16)
    return Counted(kept[:, :2], windows - 1, events)


def held(memory: UserMemory) -> dict[int, bytes]:
    """Return what a memory holds, by window, in the form of its part of a commit."""
    return written_by_window(events_in(memory._table))


def seen_in(memory: SeenMemory) -> dict[int, dict[int, bytes]]:
    """Return what a memory of identifiers holds, by column and window."""
    return {column: held(part) for column, part in sorted(memory._columns.items())}
