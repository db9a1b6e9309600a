"""A series: a mechanism, the part of the row it sees, and how its answers become releases.

Rules: the form of a release is that of `release`. This file knows no actor, journal or file format of the pipeline.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.messages import IntArray, Query
from stream_dp.core.tick_grid import TickGrid
from stream_dp.journal.release import (
    VERSION,
    Released,
    Shape,
    WindowPart,
    content,
    in_units,
    name_bytes,
    part,
    told_number,
    write,
)
from stream_dp.mechanisms.serving import clipped

_HEAD_BYTES = 250
_ENTRY_BYTES = 24
_VIEW_BYTES = 80
_TOLD_BYTES = 120
_ENDS = {"low", "lows"}


class Asking(Protocol):
    """What may be asked of a series' mechanism between two ticks; implemented by its statistic."""

    def query(self, parameters: Mapping[str, Any]) -> Query:
        """Return the mechanism's query for these parameters; what they mean depends on them and the series alone.

        Raises:
            UsageError: it takes no such parameters; every problem is named with its key, never with a value.
        """
        ...

    def begins(self, parameters: Mapping[str, Any]) -> int | None:
        """Return the first tick that what is asked by these parameters sees, where it is not as old as its series."""
        ...

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        """Return what is told of the mechanism's answer: plain public values."""
        ...

    def answered(self, content: Mapping[str, Any], at: int) -> "Asking":
        """Return it as it is known once this `content`, told at the cut before tick `at`, is public."""
        ...


Tell: TypeAlias = Callable[[Sequence[str], IntArray, int, Any], Mapping[str, Any]]
"""Returns the fields of a release, or of a window's part, but its band; or with the ends `low` and `high` for it.

From the names of its entries, its answer, the tick, and the public part of the state."""


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A window of a series: its name in releases, the keys of its entries ("" a scalar's), its `band(tick, state)`.

    Without `tell` its entries are counts or sums, and none is told below 0 unless they are signed. `told_bytes`: how
    many bytes `tell` fills at most; None: about as many for each entry. An answer has so many `numbers` for each.
    """

    name: str
    keys: tuple[str, ...]
    band: Callable[[int, Any], int]
    tell: Tell | None = None
    told_bytes: int | None = None
    numbers: int = 1

    def part(
        self, tick: int, state: Any, answer: IntArray, unit: Fraction, *, signed: bool
    ) -> WindowPart:
        """Return what a release says of this window, where 1 in an answer is a `unit`."""
        if self.tell is None:
            counts = answer if signed else clipped(answer)
            return part(self.keys, counts, self.band(tick, state), unit)
        told = self.tell(self.keys, answer, tick, state)
        return WindowPart(**_with_band(told, lambda: self.band(tick, state)))


@dataclass(frozen=True, slots=True)
class Series:
    """`rows` is the slice of the tick row that the mechanism sees; `keys` names its answer's entries ("" a scalar's),
    or where `tell` names one of them those that it may name.

    `shape` says how its releases look. `band(tick, state)` is the half-width that holds with `confidence`; it may
    look at the public part of the state only. Where `private` is False (the noise of the test kit), every body says so.
    Without `asking` whoever asks is answered from the last release. `counts_band` is the half-width of the counts that
    stand beside flags; None where there are none. Where there are `views`, the answer holds their entries one view
    after the other, and each has its own band; `keys` are then those of a view. `ask_band(tick, query, state)` is that
    of the answer to a query at the cut before a tick, from the public part of the state before it. `askers` are the
    analysts who may ask the mechanism, beside the operator and whose ledger paid for it; None: all. `unit`: what 1 in
    an answer is as a number; `signed`: true values may be below 0; `amounts`: its rows hold sums of units, not counts.
    `tell` and `told_bytes` are those of a series without views.
    """

    name: str
    mechanism: Mechanism[Any]
    rows: slice
    keys: tuple[str, ...]
    shape: Shape
    band: Callable[[int, Any], int]
    confidence: float
    private: bool = True
    asking: Asking | None = None
    counts_band: int | None = None
    views: tuple[SeriesView, ...] = ()
    ask_band: Callable[[int, Query, Any], int | None] = lambda *_: None
    askers: tuple[str, ...] | None = ()
    unit: Fraction = Fraction(1)
    signed: bool = False
    amounts: bool = False
    tell: Tell | None = None
    told_bytes: int | None = None

    @property
    def windows(self) -> tuple[str, ...]:
        """The names of its windows, in their order."""
        return tuple(view.name for view in self.views)

    @property
    def most_bytes(self) -> int:
        """How many bytes a release has, about and at most; public."""
        return _HEAD_BYTES + self.content_bytes

    @property
    def content_bytes(self) -> int:
        """How many of `most_bytes` its entries take."""
        if self.views:
            return sum(map(_view_bytes, self.views))
        if self.told_bytes is not None:
            return self.told_bytes
        return entry_bytes(self.keys, counted=self.counts_band is not None)

    def told(
        self, parameters: Mapping[str, Any], answer: IntArray, band: int | None
    ) -> dict[str, Any]:
        """Return what is told of the mechanism's answer, with this band (in units), to a query with these parameters.

        Raises:
            ValueError: nothing is asked of its mechanism.
        """
        if self.asking is None:
            raise ValueError("this series is answered from its releases")
        marked = {} if self.private else {"not_private": True}
        told = self.asking.content(parameters, answer)
        sure: dict[str, Any] = {}
        if band is not None:
            sure = {"band": told_number(band, self.unit), "confidence": self.confidence}
        return {"series": self.name, **told, **sure, **marked}

    def body(self, grid: TickGrid, sequence: int, tick: int, state: Any, answer: IntArray) -> bytes:
        """The exact public bytes of one release; no count in it is below 0, and no sum of what is not."""
        counted: Any = (
            UNSET if self.counts_band is None else told_number(self.counts_band, self.unit)
        )
        released = Released(
            v=VERSION,
            sequence=sequence,
            series=self.name,
            tick=tick,
            end=grid.end_text(tick),
            **self._content(tick, state, answer),
            counts_band=counted,
            confidence=self.confidence,
            not_private=not self.private,
        )
        return write(released)

    def _content(self, tick: int, state: Any, answer: IntArray) -> dict[str, Any]:
        """The answer with its band, or those of the views."""
        if not self.views:

            def band() -> int | Decimal:
                return told_number(self.band(tick, state), self.unit)

            if self.tell is not None:
                return _with_band(self.tell(self.keys, answer, tick, state), band)
            counts = answer if self.signed else clipped(answer)
            return {**in_units(content(self.shape, self.keys, counts), self.unit), "band": band()}
        ends = list(accumulate(len(view.keys) * view.numbers for view in self.views))
        parts = zip(self.views, [0, *ends], [*ends[:-1], len(answer)], strict=False)
        return {
            "windows": {
                view.name: view.part(tick, state, answer[at:end], self.unit, signed=self.signed)
                for view, at, end in parts
            }
        }


def entry_bytes(keys: Sequence[str], *, counted: bool = False) -> int:
    """How many bytes entries of these names take in a release, about and at most; `counted`: with counts beside."""
    return (sum(map(name_bytes, keys)) + _ENTRY_BYTES * len(keys)) * (2 if counted else 1)


def _with_band(told: Mapping[str, Any], band: Callable[[], float | Decimal]) -> dict[str, Any]:
    """What is told, with its band where it has no ends of its own; only there it is computed."""
    return dict(told) if told.keys() & _ENDS else {**told, "band": band()}


def _view_bytes(view: SeriesView) -> int:
    if view.told_bytes is not None:
        return _VIEW_BYTES + view.told_bytes
    entry = _ENTRY_BYTES if view.tell is None else _TOLD_BYTES
    return _VIEW_BYTES + sum(map(name_bytes, view.keys)) + entry * len(view.keys)
