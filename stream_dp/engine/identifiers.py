"""The distinct identifiers of ticks that are still open, by the column that counts them, as keyed hashes.

A column of amounts has, beside each hash, how many units its records add in the tick: a third word, and amounts of one
hash are added up where identifiers are kept once. Rules: identifiers are kept as a set and amounts as sums, so the
order and the batches in which they come play no part. Private: in sealed commits only. This file knows no window and
no memory.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream_dp.engine.user_table import Hashes
from stream_dp.errors import FailClosed

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
