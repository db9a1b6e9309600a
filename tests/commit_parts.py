"""Parts of commits, for tests that look at what a memory wrote, or write it."""

from typing import Any

import msgspec

from stream_dp.journal.commit import Commit, part


def part_of(commit: Commit, kind: str) -> dict[int, Any]:
    """Return the entries of a part, by window, column or tick; empty if the commit has no such part."""
    return msgspec.msgpack.decode(commit.parts[kind]) if kind in commit.parts else {}


def parts(**entries: Any) -> dict[str, bytes]:
    """Return the parts that hold these entries, as memories write them."""
    return {kind: part(value) for kind, value in entries.items()}


def place_of(commit: Commit) -> int:
    """Return the place up to which the queue of messages was read with a commit."""
    place: int = msgspec.msgpack.decode(commit.parts["messages"])[0] if commit.parts else -1
    return place
