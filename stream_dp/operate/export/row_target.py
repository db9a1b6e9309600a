"""Targets of rows. Only one export at a time writes to a target."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from stream_dp.operate.export.rows import COLUMNS, UNIQUE, Row

_PLACES = [COLUMNS.index(name) for name in UNIQUE]


class Newest(NamedTuple):
    """The last release of a target: its sequence number, -1 before the first, and the digest of its bytes."""

    sequence: int = -1
    digest: str = "-"

    @classmethod
    def at(cls, sequence: int, body: bytes) -> "Newest":
        """Return the position after this release."""
        return cls(sequence, hashlib.sha256(body).hexdigest())


class RowTarget(Protocol):
    """A table in which writing the same rows again changes nothing."""

    @property
    def place(self) -> str:
        """The target's name for people, without any secret."""
        ...

    async def open(self) -> int:
        """Make missing parts; return the sequence number of the last completely stored release, -1 if none.

        Raises:
            UsageError: something else is stored there, or another export writes to it.
            WorldError: the target cannot be reached or written.
        """
        ...

    async def holds(self, sequence: int, body: bytes) -> bool:
        """Return whether the last release, as `open` found it, has this sequence number and these bytes.

        Raises:
            WorldError: the target cannot be reached or read.
        """
        ...

    async def write(self, rows: Sequence[Row], last: Newest) -> None:
        """Write all rows or none, replacing rows with the same key; the last one is of release `last`.

        Raises:
            WorldError: the rows could not be written; the caller may write the same rows again.
        """
        ...

    async def close(self) -> None:
        """Release the target."""
        ...


def each_place_once(rows: Iterable[Row]) -> list[Row]:
    """Return the rows; among rows with the same key (`UNIQUE`), only the last one."""
    return list({tuple(row[place] for place in _PLACES): row for row in rows}.values())
