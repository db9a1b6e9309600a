"""Where rows go. A target is written to by one export at a time."""

from collections.abc import Sequence
from typing import Protocol

from stream_dp.app.export.rows import Row


class RowTarget(Protocol):
    """A table that takes rows again without changing."""

    @property
    def place(self) -> str:
        """What people call it, without any secret."""
        ...

    async def open(self) -> int:
        """Make what is missing, and return the sequence of the last release that is wholly there; -1: none.

        Raises:
            UsageError: something else is there.
            WorldError: it cannot be reached or written.
        """
        ...

    async def write(self, rows: Sequence[Row], last: int) -> None:
        """Write rows, all or none, in place of what is there of the same; `last` is the sequence they go up to.

        Raises:
            WorldError: they could not be written; the same rows may be written again.
        """
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...
