"""What a series of identifiers counts: a field, and the public window in which each value counts once.

Rules: a record says its identifier by itself; which ones were there before is for the engine's memory to say. Null is
none. A long one stands for itself by its SHA-256, so that it is no more work than others; no text in UTF-8 begins like
that. This file knows no keyed hash and no memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeAlias

from stream_dp.core.messages import IntArray
from stream_dp.records.record_columns import BoolArray

ACTIVE, CUT = "active", "cut"
Texts: TypeAlias = Mapping[int, Mapping[int, Sequence[bytes]]]
"""The different identifiers of records as text in UTF-8, by tick and column."""
_LONG = 1024  # bytes
_DIGESTED = b"\xff"


@dataclass(frozen=True, slots=True)
class Identified:
    """The values of `field`, each once in every window of `span` ms, counted from tick 0; None: once for ever."""

    field: str
    span: int | None = None

    @property
    def units(self) -> tuple[int, int]:
        """The least and the largest number that a record adds."""
        return 0, 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its entries."""
        return ("",)

    def counts(self, user: str | None) -> bool:
        """Say whether it counts those who are protected, whom the field `user` names."""
        return self.field == user


@dataclass(frozen=True, slots=True)
class CapUse:
    """The users who are protected: who was active and who was cut off, each once in every window of `span` ms.

    The guard says who had an event, and of whom one did not count because the cap was used up. A window is the cap's.
    """

    span: int | None = None

    @property
    def field(self) -> str:
        """What is remembered, in a word."""
        return "user"

    @property
    def units(self) -> tuple[int, int]:
        """The least and the largest number that a user adds to an entry."""
        return 0, 1

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its entries."""
        return ACTIVE, CUT

    def counts(self, user: str | None) -> bool:
        """Say that it counts those who are protected."""
        return True


class IdentifierColumn:
    """The identifiers that come in one column of the row, of records that pass the conditions at `where`."""

    def __init__(self, column: int, attribute: str, where: int | None) -> None:
        self.column = column
        self._value_of: Callable[[Any], Any] = attrgetter(attribute)
        self._where = where

    def texts(
        self, records: Sequence[Any], ends: Iterable[tuple[int, int]], passing: BoolArray
    ) -> list[Sequence[bytes]]:
        """Return the different identifiers between each of these ends."""
        values = list(map(self._value_of, records))
        if self._where is not None:
            passed = passing[self._where].tolist()
            values = [v if one else None for v, one in zip(values, passed, strict=True)]
        return [_texts(values[begin:end]) for begin, end in ends]


def _texts(values: Iterable[Any]) -> Sequence[bytes]:
    known = dict.fromkeys(values)
    known.pop(None, None)
    return [_short(str(value).encode()) for value in known]


def _short(text: bytes) -> bytes:
    return text if len(text) <= _LONG else _DIGESTED + sha256(text).digest()


def by_tick(
    columns: Iterable[IdentifierColumn],
    records: Sequence[Any],
    numbers: IntArray,
    names: Sequence[int],
    passing: BoolArray,
) -> Texts:
    """Return what comes in these columns; the first `numbers[0]` records are in tick `names[0]`, and so on."""
    stops = numbers.cumsum().tolist()
    ends = list(zip([0, *stops[:-1]], stops, strict=True))
    found: dict[int, dict[int, Sequence[bytes]]] = {}
    for each in columns:
        for tick, texts in zip(names, each.texts(records, ends, passing), strict=True):
            if texts:
                found.setdefault(tick, {})[each.column] = texts
    return found
