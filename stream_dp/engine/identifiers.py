"""The distinct identifiers of ticks that are still open, by the column that counts them, as keyed hashes.

Rules: identifiers are kept as a set, so the order and the batches in which they come play no part. Private: in
sealed commits only. This file knows no window and no memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.engine.user_table import Hashes
from stream_dp.errors import FailClosed

ByColumn: TypeAlias = Mapping[int, Hashes]
"""Identifiers by the column of the row that counts them."""

_FEW = 1 << 12


class Came:
    """The distinct identifiers of one tick, by column: the `known` ones, and those added since.

    Known identifiers lie in runs. Each run is sorted by hash and at least twice as long as the next one: each of n
    identifiers is copied about log n times, however many calls bring them.
    """

    def __init__(self, known: ByColumn | None = None) -> None:
        self._known = {column: [each_once([found])] for column, found in (known or {}).items()}
        self._parts: dict[int, list[Hashes]] = {}
        self._kept: dict[int, int] = {}
        self._bound: dict[int, int] = {}

    def add(self, found: ByColumn) -> None:
        """Add identifiers; duplicates take room until the entries of their column have doubled."""
        for column, hashes in found.items():
            parts = self._parts.setdefault(column, [])
            parts.append(hashes)
            self._kept[column] = self._kept.get(column, 0) + len(hashes)
            if self._kept[column] > self._bound.get(column, _FEW):
                self._merge(column)
                self._bound[column] = 2 * self._kept[column] + _FEW

    def fresh(self) -> dict[int, Hashes]:
        """Return the identifiers seen for the first time, by column, sorted by hash, and remember them."""
        found: dict[int, Hashes] = {}
        for column, parts in sorted(self._parts.items()):
            some = each_once(parts)
            for run in self._known.get(column, ()):
                some = some[~_among(run, some)]
            if len(some):
                found[column] = some
                _append(self._known.setdefault(column, []), some)
        for kept in (self._parts, self._kept, self._bound):
            kept.clear()
        return found

    def once(self) -> dict[int, Hashes]:
        every: dict[int, Hashes] = {}
        for column in sorted(self._known.keys() | self._parts.keys()):
            parts = [*self._known.get(column, ()), *self._parts.get(column, ())]
            every[column] = parts[0] if len(parts) == 1 else each_once(parts)
        return every

    def _merge(self, column: int) -> None:
        found = each_once(self._parts[column])
        self._parts[column], self._kept[column] = [found], len(found)


def _append(runs: list[Hashes], some: Hashes) -> None:
    """Append a run, merged with the earlier runs that are not twice as long as all that follows them."""
    first, size = len(runs), len(some)
    while first and len(runs[first - 1]) < 2 * size:
        first -= 1
        size += len(runs[first])
    runs[first:] = [each_once([*runs[first:], some])] if first < len(runs) else [some]


def _among(known: Hashes, some: Hashes) -> NDArray[np.bool_]:
    """Return for each of `some` whether `known` holds it; `known` is sorted by first word."""
    found = np.zeros(len(some), np.bool_)
    at = np.searchsorted(known[:, 0], some[:, 0])
    left = np.flatnonzero(at < len(known))
    while len(left := left[known[at[left], 0] == some[left, 0]]):
        found[left] |= known[at[left], 1] == some[left, 1]
        at[left] += 1
        left = left[at[left] < len(known)]
    return found


def each_once(parts: Sequence[Hashes]) -> Hashes:
    """Return the distinct identifiers of all parts, sorted by hash."""
    every = np.concatenate(parts)
    every = every[np.lexsort((every[:, 1], every[:, 0]))]
    first = np.ones(len(every), np.bool_)
    first[1:] = (every[1:] != every[:-1]).any(axis=1)
    return every[first]


def write_identifiers(came: Mapping[int, ByColumn]) -> dict[int, dict[int, bytes]]:
    return {
        tick: {column: hashes.astype("<u8").tobytes() for column, hashes in found.items()}
        for tick, found in came.items()
    }


def read_identifiers(came: Mapping[int, Mapping[int, bytes]]) -> dict[int, ByColumn]:
    """Return the identifiers that `write_identifiers` wrote; raise `FailClosed` for other bytes."""
    return {tick: dict(_columns(found)) for tick, found in came.items()}


def _columns(found: Mapping[int, bytes]) -> Iterator[tuple[int, Hashes]]:
    for column, entries in found.items():
        if len(entries) % 16:
            raise FailClosed(
                "the journal holds identifiers that this engine has not written: restore it, or run the version of the "
                "code that wrote it"
            )
        yield column, np.frombuffer(entries, "<u8").reshape(-1, 2).astype(np.uint64)
