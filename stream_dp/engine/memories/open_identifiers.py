"""The identifiers of ticks that are still open, as a chain of commits adds them up.

Rules: a commit holds those that its own cut added, so the chain holds each of a tick and column once, however long the
tick stays open; a commit with the tick drops them. An engine adds up what it commits, a start what it reads, by the
same code. Snapshots do not repeat them: a start reads the chain from its first commit on. Private: keyed hashes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from stream_dp.engine.memories.identifiers import ByColumn, Came, read_identifiers
from stream_dp.engine.memories.user_table import Hashes
from stream_dp.errors import FailClosed
from stream_dp.journal.commit import Commit


class OpenIdentifiers:
    """What has come in the ticks behind the last commit, by tick and column."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, list[Hashes]]] = {}
        self._next_tick = 0

    def replay(self, commit: Commit) -> None:
        """Take what the next commit added; the ticks that it holds are over.

        Raises:
            FailClosed: it adds to a tick that is over, or holds nothing of the kind.
        """
        if commit.ticks:
            self._next_tick = commit.ticks[-1] + 1
        for tick, found in read_identifiers(commit.arriving).items():
            if tick < self._next_tick:
                raise FailClosed(
                    f"commit {commit.sequence} of the journal holds identifiers of a tick that was over: restore the "
                    "journal, or run the version of the code that wrote it"
                )
            for column, hashes in found.items():
                self._parts.setdefault(tick, {}).setdefault(column, []).append(hashes)
        for tick in [each for each in self._parts if each < self._next_tick]:
            del self._parts[tick]

    def content(self) -> dict[int, ByColumn]:
        """Return all of them (private)."""
        return {
            tick: {column: np.concatenate(parts) for column, parts in sorted(found.items())}
            for tick, found in sorted(self._parts.items())
        }

    def __repr__(self) -> str:
        return "<OpenIdentifiers>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


def added_behind(last: int, cuts: Iterable[Mapping[int, ByColumn]]) -> dict[int, ByColumn]:
    """Return what these cuts added to ticks behind `last`, which is over with them."""
    came: dict[int, Came] = {}
    for cut in cuts:
        for tick, found in cut.items():
            if tick > last:
                came.setdefault(tick, Came()).add(found)
    return {tick: each.once() for tick, each in sorted(came.items())}
