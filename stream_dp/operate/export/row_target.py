"""Where rows go. A target is written to by one export at a time."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from stream_dp.operate.export.rows import COLUMNS, UNIQUE, Row

_PLACES = [COLUMNS.index(name) for name in UNIQUE]


class Newest(NamedTuple):
    """How far a target is: the sequence of a release, -1 before the first, and what tells its bytes from others."""

    sequence: int = -1
    digest: str = "-"

    @classmethod
    def at(cls, sequence: int, body: bytes) -> "Newest":
        """Return that it has this release and all before."""
        return cls(sequence, hashlib.sha256(body).hexdigest())


class RowTarget(Protocol):
    """A table that takes rows again without changing."""

    @property
    def place(self) -> str:
        """What people call it, without any secret."""
        ...

    async def open(self) -> int:
        """Make what is missing, and return the sequence of the last release that is wholly there; -1: none.

        Raises:
            UsageError: something else is there, or another export writes to it.
            WorldError: it cannot be reached or written.
        """
        ...

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Say whether the release that `open` found to be the last is this one, of this sequence.

        Raises:
            WorldError: it cannot be reached or read.
        """
        ...

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write rows, all or none, in place of what is there of the same; they go up to `last`.

        Raises:
            WorldError: they could not be written; the same rows may be written again.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


def each_place_once(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, of those that stand in one place of the table the last one."""
    return list({tuple(row[place] for place in _PLACES): row for row in rows}.values())
