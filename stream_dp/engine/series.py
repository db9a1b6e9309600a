"""A series: a mechanism, the part of the row it sees, and how its answers become releases; which series run when.

Rules: the form of a release is that of `journal.release`. A change takes effect at a cut, so every tick has one list of
series. This file knows no actor, journal or pipeline file.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET

from stream_dp.core.mechanism import IntArray, Mechanism, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import event
from stream_dp.core.time import TickGrid
from stream_dp.errors import FailClosed, UnknownMechanism
from stream_dp.journal.commit import Release
from stream_dp.journal.release import (
    VERSION,
    Numbers,
    Released,
    Shape,
    WindowPart,
    content,
    in_units,
    is_recorded,
    name_bytes,
    name_text,
    part,
    read_exactly,
    told_number,
    without_values,
    write,
    write_scalars,
)
from stream_dp.mechanisms.linear.counter import CountedTrees
from stream_dp.mechanisms.serving import Lags, Sides, Word, clipped

Part: TypeAlias = Mapping[str, Any]
"""The content of a release for one window, or for all if it has no windows: `value` or `values`, exact."""
Make: TypeAlias = Callable[[int, str, Sequence[Part]], Mapping[str, Any]]
"""Computes the fields of a part from the inputs' parts, at a tick, for the window of this name ("": no windows)."""
Tell: TypeAlias = Callable[[Sequence[str], IntArray, int, Any], Mapping[str, Any]]
"""Returns the fields of a release, or of a window's part, without its band; or with `low` and `high` for it.

It takes the names of the entries, the answer, the tick, and the public part of the state.
"""
# rough sizes in bytes: of a release without its entries, of an entry, of a window
_HEAD_BYTES, _ENTRY_BYTES, _MADE_ENTRY_BYTES, _TOLD_BYTES, _VIEW_BYTES = 250, 24, 90, 120, 80
_ENDS = {"low", "lows"}


class Meaning(IntEnum):
    """By which rules a definition gets its mechanism: those of now, and older and older ones, as journals have them.

    `SUM_OF_ERRORS`: a nested tree without aims has the least sum of errors. `BY_GROWTH`: besides, closed intervals are
    predicted by growth alone. `FORMER_KEYS`: besides, a live series has its `former_keys`.
    """

    NOW = 0
    SUM_OF_ERRORS = 1
    BY_GROWTH = 2
    FORMER_KEYS = 3


@dataclass(frozen=True, slots=True)
class Guard:
    """The verifier V[f] of [HSV] Def 3.5 in production: a row passes where the pair of it with itself is accepted.

    In a game the verifier stands between adversary and mechanism (`verify.game`); here there is no pair, and both
    sides of every accepted pair pass. For the event and user relations the row (shape (width,)) alone decides, so the
    guard has no state to lose in a crash. In the columns of `amounts` (sums of units, of either sign) any integer is
    admissible: a limit would be a decision about exact sums, before any noise.
    """

    width: int
    amounts: tuple[slice, ...] = ()

    def admit(self, row: IntArray) -> IntArray:
        """Return the row unchanged; raise `FailClosed` if no guarantee covers it: it is not of counts and amounts."""
        counts = row
        if self.amounts and isinstance(row, np.ndarray):
            counts = row.copy()
            for columns in self.amounts:
                counts[columns] = 0
        if event(Neighbors.REPLACE, self.width).accept(counts, counts) is None:
            raise FailClosed(
                "a row reached the guard that no stream of events can produce. Stop the engine and "
                "report this"
            )
        return row


@dataclass(frozen=True)
class MadeSeries:
    """The series `name`, made of the releases of `inputs` at the same tick: free post-processing ([HSV] 2.14).

    A body is a function of its inputs' bodies and of public parameters; there is no mechanism, row, state or noise. Its
    release stands after those of its inputs in the same commit, with the next numbers. Numbers are read exactly, never
    as floats. The first of `makes` writes each part, with ends that hold with `confidence`; the others wrote parts in
    earlier versions, whose releases journals hold. `private` and `array` are as in `Series`.
    """

    name: str
    inputs: tuple[str, ...]
    keys: tuple[str, ...]
    windows: tuple[str, ...]
    makes: tuple[Make, ...]
    confidence: float
    private: bool = True
    array: bool = False
    version: ClassVar[int] = 1  # a changed file cannot begin one

    @property
    def start(self) -> int:
        return 0

    @cached_property
    def most_bytes(self) -> int:
        """The largest size of a release in bytes, roughly; public."""
        part = sum(map(name_bytes, self.keys)) + _MADE_ENTRY_BYTES * len(self.keys)
        return _HEAD_BYTES + part * max(1, len(self.windows))

    def body(self, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]) -> bytes:
        """Return the exact public bytes of one release; `bodies` are those of the same tick, by series."""
        return self._written(self.makes[0], grid, sequence, tick, bodies)

    def gives(
        self, body: bytes, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bool:
        """Return whether this version or an earlier one makes `body` from the bodies of the same tick."""
        written = (self._written(make, grid, sequence, tick, bodies) for make in self.makes)
        return any(is_recorded(body, form) for form in written)

    def _written(
        self, make: Make, grid: TickGrid, sequence: int, tick: int, bodies: Mapping[str, bytes]
    ) -> bytes:
        inputs = [read_exactly(bodies[name], self.keys) for name in self.inputs]
        if not self.windows:
            return _written(self, grid, sequence, tick, make(tick, "", inputs))
        windows = {
            name: WindowPart(**make(tick, name, [body["windows"][name] for body in inputs]))
            for name in self.windows
        }
        return _written(self, grid, sequence, tick, {"windows": windows})


def with_made(
    releases: Sequence[Release], made: Sequence[MadeSeries], grid: TickGrid
) -> tuple[Release, ...]:
    """Return the releases of one tick, followed by those of the series made of them."""
    every = list(releases)
    bodies = {release.series: release.body for release in releases}
    for series in made:
        number, tick = every[-1].sequence + 1, every[-1].tick
        every.append(Release(number, series.name, tick, series.body(grid, number, tick, bodies)))
    return tuple(every)


def _written(
    series: "MadeSeries | Series", grid: TickGrid, sequence: int, tick: int, fields: Mapping[str, Any]
) -> bytes:  # fmt: skip
    if series.array:
        fields = _in_order(series, tick, fields)
    return write(
        Released(
            v=VERSION, sequence=sequence, series=series.name, tick=tick, end=grid.end_text(tick),
            version=series.version, **fields, confidence=series.confidence, not_private=not series.private,
        )
    )  # fmt: skip


def _in_order(
    series: "MadeSeries | Series", tick: int, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields with values in the order of the keys, and the keys in the first release of the series."""

    def listed(values: Any) -> Any:
        return tuple(values.values()) if isinstance(values, dict) else values

    windows = {
        name: msgspec.structs.replace(part, values=listed(part.values))
        for name, part in fields.get("windows", {}).items()
    }
    keyed = "values" in fields or any(part.values is not UNSET for part in windows.values())
    return {
        **fields,
        **({"keys": series.keys} if keyed and tick == series.start else {}),
        **({"values": listed(fields["values"])} if "values" in fields else {}),
        **({"windows": windows} if windows else {}),
    }


class Asking(Protocol):
    """The queries that a series' mechanism takes between two ticks; implemented by its statistic."""

    def query(self, parameters: Mapping[str, Any]) -> Query:
        """Return the mechanism's query; its meaning depends on the parameters and the series alone. Raises
        `UsageError`; every problem is named with its key, never with a value.
        """

    def begins(self, parameters: Mapping[str, Any]) -> int | None:
        """Return the first tick of what these parameters ask about; None if it is as old as its series."""

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        """Return the content of the answer: plain public values."""

    def answered(self, content: Mapping[str, Any], at: int) -> "Asking":
        """Return this object once `content`, answered at the cut before tick `at`, is public and known."""


@dataclass(frozen=True)
class SeriesView:
    """A window of a series: its name in releases, the keys of its entries ("" for a scalar), and its band.

    `band(tick, state)` is as in `Series`. Without `tell` the entries are counts or sums, and a release shows none
    below 0 unless they are signed. `told_bytes` is the most bytes that `tell` fills (None: about as many for each
    entry). An answer has `numbers` numbers for each entry. Before tick `first` none is told, and entries are null.
    """

    name: str
    keys: tuple[str, ...]
    band: Callable[[int, Any], int]
    tell: Tell | None = None
    told_bytes: int | None = None
    numbers: int = 1
    first: int = 0

    @property
    def most_bytes(self) -> int:
        if self.told_bytes is not None:
            return _VIEW_BYTES + self.told_bytes
        entry = _ENTRY_BYTES if self.tell is None else _TOLD_BYTES
        return _VIEW_BYTES + sum(map(name_bytes, self.keys)) + entry * len(self.keys)

    def part(
        self, tick: int, state: Any, answer: IntArray, numbers: Numbers, *, signed: bool
    ) -> WindowPart:
        """Return what a release says of this window; `numbers` writes the values of its keys."""
        if self.tell is None:
            counts, band = answer if signed else clipped(answer), self.band(tick, state)
            if not any(self.keys):
                shown = part(self.keys, counts, band, numbers.unit)
            else:
                told: Any = numbers.text(counts) if tick >= self.first else numbers.nothing
                width: Any = told_number(band, numbers.unit)
                return WindowPart(values=told, band=width)
        else:
            fields = self.tell(self.keys, answer, tick, state)
            shown = WindowPart(**_with_band(fields, lambda: self.band(tick, state)))
        return shown if tick >= self.first else without_values(shown)


@dataclass(frozen=True)
class Lag:
    """Ends that stand beside the band of values that lag behind: `sides(state)`, and the word for why they hold."""

    shape: Shape
    word: Word
    sides: Callable[[Any], Sides]

    @classmethod
    def of(cls, mechanism: Any, shape: Shape, confidence: float) -> "Lag | None":
        """Return the ends of what lags behind, None where nothing does; lists of ranks have none."""
        if not isinstance(mechanism, Lags) or shape not in (Shape.SCALAR, Shape.HISTOGRAM):
            return None
        word = mechanism.words[1]
        return word and cls(shape, word, lambda state: mechanism.sides(state, confidence))

    def most_bytes(self, entries: int) -> int:
        return _ENTRY_BYTES * (entries if self.shape is Shape.HISTOGRAM else 1)

    def ends(self, state: Any, answer: IntArray) -> dict[str, Any]:
        below, above = self.sides(state)
        lows, highs = clipped(answer - below).tolist(), (answer + above).tolist()
        if self.shape is Shape.HISTOGRAM:
            return {"lows": tuple(lows), "highs": tuple(highs), "ends": self.word}
        return {"low": lows[0], "high": highs[0], "ends": self.word}


@dataclass(frozen=True)
class Series:
    """A mechanism, the slice `rows` of the tick row that it sees, and how its answers become releases.

    `keys` names the entries of its answer ("" for a scalar), or, where `tell` names one entry, the names it may choose
    from. `band(tick, state)` is the half-width that holds with `confidence`, `ask_band(tick, query, state)` that of the
    answer to a query before a tick (None: it has none); both look at the public part of the state only. Where `private`
    is False (noise of the test kit), every body says so. Without `asking` every query is answered from the last
    release. `counts_band` is the half-width of the counts that stand beside flags (None: there are none). With `views`,
    the answer holds the entries of one view after the other, each view has its own band, and `keys`, `tell` and
    `told_bytes` are those of a view. `askers` are the analysts who may ask the mechanism, beside the operator and the
    analyst whose ledger paid for it (None: all). `unit` is the value of 1 in an answer; `signed`: true values may be
    below 0; `amounts`: its rows hold sums of units, not counts. `array`: values stand in the order of `keys`, which the
    release of its first tick, `start`, names. `lag`: ends that stand beside the band (None: there are none). `version`
    counts the series that had this name, with this one.
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
    array: bool = False
    start: int = 0
    lag: "Lag | None" = None
    version: int = 1

    @property
    def windows(self) -> tuple[str, ...]:
        return tuple(view.name for view in self.views)

    @cached_property
    def most_bytes(self) -> int:
        """The largest size of a release in bytes, roughly; public."""
        return _HEAD_BYTES + self.content_bytes

    @cached_property
    def _numbers(self) -> Numbers:
        return Numbers(self.keys, array=self.array, unit=self.unit)

    @property
    def content_bytes(self) -> int:
        """The part of `most_bytes` that its entries take."""
        if self.views:
            return sum(view.most_bytes for view in self.views)
        beside = 0 if self.lag is None else self.lag.most_bytes(len(self.keys))
        if self.told_bytes is not None:
            return self.told_bytes + beside
        return entry_bytes(self.keys, counted=self.counts_band is not None) + beside

    def step(
        self, grid: TickGrid, state: Any, tick: int, sequence: int, row: IntArray, noise: Noise
    ) -> tuple[Any, bytes]:
        """Run one tick: update with the whole `row`, query, release; return the new state and the release's body."""
        state, _ = self.mechanism.step(state, Update(row[self.rows]), noise)
        state, answer = self.ask(state, Query(), noise)
        return state, self.body(grid, sequence, tick, state, answer)

    def ask(self, state: Any, query: Query, noise: Noise) -> tuple[Any, IntArray]:
        """Put a query to the mechanism; return the new state and the answer, or raise `RejectedMessage`: no change."""
        state, answer = self.mechanism.step(state, query, noise)
        if answer is None:
            raise TypeError(f"the mechanism of {self.name} did not answer a query")
        return state, answer

    def reply(
        self, parameters: Mapping[str, Any], answer: IntArray, band: int | None
    ) -> dict[str, Any]:
        """Return the content of the answer to a query: the mechanism's `answer`, with this `band` (in units)."""
        if self.asking is None:
            raise ValueError("this series is answered from its releases")
        content = {
            "series": self.name,
            **version_of(self),
            **self.asking.content(parameters, answer),
        }
        if band is not None:
            content |= {"band": told_number(band, self.unit), "confidence": self.confidence}
        return content if self.private else {**content, "not_private": True}

    def body(self, grid: TickGrid, sequence: int, tick: int, state: Any, answer: IntArray) -> bytes:
        """Return the exact public bytes of one release; no count, and no sum that is not signed, is below 0 in it."""
        fields = self._content(tick, state, answer)
        if self.counts_band is not None:
            fields["counts_band"] = told_number(self.counts_band, self.unit)
        return _written(self, grid, sequence, tick, fields)

    def _content(self, tick: int, state: Any, answer: IntArray) -> dict[str, Any]:
        if not self.views:

            def band() -> int | Decimal:
                return told_number(self.band(tick, state), self.unit)

            if self.tell is not None:
                told = _with_band(self.tell(self.keys, answer, tick, state), band)
            else:
                counts = answer if self.signed else clipped(answer)
                if self.shape is Shape.HISTOGRAM:
                    shown = {"values": self._numbers.text(counts)}
                else:
                    shown = in_units(content(self.shape, self.keys, counts), self.unit)
                told = {**shown, "band": band()}
            return told if self.lag is None else told | self.lag.ends(state, clipped(answer))
        ends = list(accumulate(len(view.keys) * view.numbers for view in self.views))
        parts = zip(self.views, [0, *ends], [*ends[:-1], len(answer)], strict=False)
        return {
            "windows": {
                view.name: view.part(tick, state, answer[at:end], self._numbers, signed=self.signed)
                for view, at, end in parts
            }
        }


def version_of(series: MadeSeries | Series) -> dict[str, int]:
    """Return what answers and lists say of a series from the second one of its name on."""
    return {"version": series.version} if series.version > 1 else {}


def entry_bytes(keys: Sequence[str], *, counted: bool = False) -> int:
    """Return how many bytes entries of these names take in a release at most; `counted`: a count stands beside each."""
    return (sum(map(name_bytes, keys)) + _ENTRY_BYTES * len(keys)) * (2 if counted else 1)


def _with_band(fields: Mapping[str, Any], band: Callable[[], float | Decimal]) -> dict[str, Any]:
    """Add the band, unless the fields have ends of their own; it is computed only when it is needed."""
    return dict(fields) if fields.keys() & _ENDS else {**fields, "band": band()}


@dataclass(frozen=True)
class SeriesBlock:
    """Series of one number each with equal mechanisms, which are stepped as one: what each releases is what it would
    alone, and its state is a column of that of the block. An answer to a query is read from its releases.
    """

    series: tuple[Series, ...]

    @classmethod
    def groups(cls, running: Iterable["LiveSeries"]) -> list[list["LiveSeries"]]:
        """Return the series that can be stepped as one, in groups of two or more."""
        alike: dict[Any, list[LiveSeries]] = {}
        for live in running:
            one, mechanism = live.series, live.series.mechanism
            numbers = one.shape is Shape.SCALAR and one.unit == 1 and not one.views
            if not numbers or one.tell is not None or one.asking is not None:
                continue
            if isinstance(mechanism, CountedTrees) and mechanism.width == 1:
                key = mechanism, live.start, one.confidence, one.private, one.signed, one.version
                alike.setdefault(key, []).append(live)
        return [group for group in alike.values() if len(group) > 1]

    @cached_property
    def mechanism(self) -> Mechanism[Any]:
        first: Any = self.series[0].mechanism
        wide: Mechanism[Any] = first.side_by_side(len(self.series))
        return wide

    @cached_property
    def _columns(self) -> IntArray:
        return np.array([series.rows.start for series in self.series])

    @cached_property
    def _names(self) -> list[bytes]:
        return [name_text(series.name) for series in self.series]

    def without(self, place: int) -> "SeriesBlock":
        return SeriesBlock(self.series[:place] + self.series[place + 1 :])

    def step(
        self, grid: TickGrid, state: Any, tick: int, numbers: Sequence[int], row: IntArray, noise: Noise
    ) -> tuple[Any, list[bytes]]:  # fmt: skip
        """Run one tick, as `Series.step` does; the releases have these sequence numbers."""
        state, _ = self.mechanism.step(state, Update(row[self._columns]), noise)
        state, answer = self.mechanism.step(state, Query(), noise)
        first = self.series[0]
        if answer is None:
            raise TypeError(f"the mechanism of {first.name} and others did not answer a query")
        counts = answer if first.signed else clipped(answer)
        one = Released(
            v=VERSION, sequence=0, series="", tick=tick, end=grid.end_text(tick), value=0, band=first.band(tick, state),
            confidence=first.confidence, not_private=not first.private, version=first.version,
        )  # fmt: skip
        return state, write_scalars(one, self._names, zip(numbers, counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class LiveSeries:
    """A series that runs, as mechanism `number`, on ticks from `start` on; `created` while the engine ran."""

    number: int
    series: Series
    start: int = 0
    created: bool = False


class Registry:
    """All running series, in the order of their numbers, which are never used twice. `made` are made of the releases of
    the `first` ones; they have no number, and end with them only (`end`).
    """

    def __init__(self, first: Sequence[Series], made: Sequence[MadeSeries] = ()) -> None:
        self.made = tuple(made)
        self._live = {number: LiveSeries(number, series) for number, series in enumerate(first)}
        self._numbers = {series.name: number for number, series in enumerate(first)}
        self.next_number = len(first)

    @property
    def live(self) -> tuple[LiveSeries, ...]:
        return tuple(self._live.values())

    @property
    def first(self) -> tuple[Series | MadeSeries, ...]:
        """Those of the first series that run, and what is made of them."""
        return (*(live.series for live in self.live if not live.created), *self.made)

    def at(self, tick: int) -> tuple[LiveSeries, ...]:
        """Return the running series that see this tick."""
        return tuple(live for live in self._live.values() if live.start <= tick)

    @property
    def releasing(self) -> tuple[Series | MadeSeries, ...]:
        """All series with a release at every tick, in the order of the releases."""
        return (*(live.series for live in self._live.values()), *self.made)

    def numbered(self, number: int) -> LiveSeries | None:
        return self._live.get(number)

    def named(self, name: str) -> LiveSeries | None:
        """Return the series of this name; None if it does not run or is made of others' releases."""
        return self._live.get(self._numbers.get(name, -1))

    def made_named(self, name: str) -> MadeSeries | None:
        return next((series for series in self.made if series.name == name), None)

    def add(self, number: int, series: Series, start: int) -> LiveSeries:
        """Add a series that sees ticks from `start` on, under the next number."""
        if number != self.next_number:
            raise ValueError(f"the next series has number {self.next_number}, not {number}")
        self.next_number += 1
        self._live[number] = LiveSeries(number, series, start, created=True)
        self._numbers[series.name] = number
        return self._live[number]

    def change(self, number: int, series: Series) -> LiveSeries:
        live = self._live[number] = replace(self._live[number], series=series)
        return live

    def end(self, names: Collection[str]) -> list[int]:
        """End first series at this cut, made ones among them; return the numbers of those that had one."""
        self.made = tuple(series for series in self.made if series.name not in names)
        first = (live for live in self.live if not live.created)
        ended = [live.number for live in first if live.series.name in names]
        for number in ended:
            self.remove(number)
        return ended

    def remove(self, number: int) -> LiveSeries:
        """Halt a series at this cut, and return it; raise `UnknownMechanism` if it does not run."""
        if number not in self._live:
            raise UnknownMechanism(f"no series with number {number} runs")
        del self._numbers[self._live[number].series.name]
        return self._live.pop(number)
