"""Series whose events are counts, keys and amounts, and their releases: `counter`, `histogram`, `sum` and the like.

Rules: events go into the open row as they are, past the decoder, since their keys are declared and their amounts are
numbers; what is no key is refused, without repeating it. Releases are public values with their error bands, read
exactly from the bytes of the series; they cannot be changed and can be pickled.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from operator import index
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

import numpy as np

from stream_dp.client.public_release import Counts, Frozen
from stream_dp.core.mechanism import IntArray
from stream_dp.core.row_relations import AMOUNTS, MOST_EVENTS
from stream_dp.engine.series import Guard
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.journal.release import read_exactly
from stream_dp.python.series import Continual, Prepared
from stream_dp.records.amount_units import Amount
from stream_dp.records.record_columns import Numbers

V_co = TypeVar("V_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)

Window: TypeAlias = int | Literal["ever"]
"""So many ticks, the last of which is the one that is released; or `ever`, all ticks so far."""


class Sums(Frozen[str, Decimal]):
    """A sum for each key, in the order of the declared keys."""

    __slots__ = ()


class ByWindow(Frozen[Window, V_co]):
    """What is released of each window, the single tick (1) first."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in a top list: the key that has it by the noisy counts, and its noisy count.

    `tied` are the keys that are not told apart from it, the greatest first; `more` others are not listed.
    """

    name: str
    value: int
    tied: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class TickWindow(Generic[V_co, N_co]):
    """What a release says of one window: the noisy answer over it; before so many ticks were closed, over all of them.

    `band` is the half-width that holds with the release's confidence for one value; of a top list for all at once.
    """

    value: V_co
    band: N_co


@dataclass(frozen=True, slots=True, repr=False)
class _Released(Generic[V_co, N_co]):
    _by_key: ClassVar[type[Any]] = Counts
    _exact: ClassVar[type[Any]] = int

    tick: int
    value: V_co
    band: N_co
    confidence: float
    windows: Mapping[Window, TickWindow[V_co, N_co]] = field(
        default_factory=lambda: ByWindow((), ()), hash=False
    )
    name: str | None = None

    @classmethod
    def of(cls, body: bytes, windows: tuple[Window, ...] = ()) -> Self:
        """Return what the bytes of a release say; `windows` names those of its windows that are shown, in order."""
        release = read_exactly(body)
        parts = release["windows"].values() if "windows" in release else [release]
        answers: list[Any] = [TickWindow(cls._value(p), cls._exact(p["band"])) for p in parts]
        shown = ByWindow(windows, tuple(answers[: len(windows)]))
        first, confidence = answers[0], float(release["confidence"])
        name = release.get("name")
        return cls(release["tick"], first.value, first.band, confidence, shown, name)

    @classmethod
    def _value(cls, part: Mapping[str, Any]) -> Any:
        if "ranks" in part:
            return tuple(Ranked(**{**rank, "tied": tuple(rank["tied"])}) for rank in part["ranks"])
        if "fired" in part:
            return tuple(part["fired"])
        if "values" in part:
            values = map(cls._exact, part["values"].values())
            return cls._by_key(tuple(part["values"]), tuple(values))
        return cls._exact(part["value"])

    def __repr__(self) -> str:
        names = [*("tick", "value", "band", "confidence"), *(["windows"] if self.windows else [])]
        names += [] if self.name is None else ["name"]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({shown})"


class TickRelease(_Released[V_co, int], Generic[V_co]):
    """The release that closes `tick`, the first of which is 0.

    `value` is the noisy answer over all ticks up to this one: a count (never below 0), one for each key, the keys that
    fired, or a top list. Where windows were asked it is the answer for this tick alone, and `windows` has that of each,
    by its number of ticks or "ever", the single tick (1) first. `band` is the half-width that holds with probability
    `confidence`, over the mechanism's noise, for one value; of a top list for all at once. `name` is, of a maximum, the
    key that has most; None while the value is 0, and elsewhere.
    """

    __slots__ = ()


class SumRelease(_Released[V_co, Decimal], Generic[V_co]):
    """The release of one tick of a sum, as a `TickRelease` is, in exact decimals on the declared grid.

    `value` is a `Decimal` or `Sums`, below 0 only where the clamp is.
    """

    __slots__ = ()

    _by_key = Sums
    _exact = Decimal


R = TypeVar("R")
T = TypeVar("T")
V = TypeVar("V")
A = TypeVar("A")  # what a tick adds at a key

Number: TypeAlias = float | Fraction | Decimal  # of an event: data, so it may be a float

MOST_KEYS, MOST_LISTED = 10**6, 10_000
_WINDOWS = 'windows: a list of numbers of ticks, or "ever", is needed, such as [24, 168, "ever"]'


class Shorthand(Continual[R, T], Generic[R, T]):
    """A series whose rows a program fills itself, one entry for each key.

    What is refused raises `RejectedMessage` and changes nothing.
    """

    __slots__ = ("_keys", "_open", "_places", "_windows")

    _form: ClassVar[Any] = TickRelease
    _most: ClassVar[int] = MOST_EVENTS
    _too_much: ClassVar[str] = "a tick holds at most 2^40 events of a kind; nothing was added"

    def __init__(
        self, prepared: Prepared, keys: tuple[str, ...] = (), windows: tuple[Window, ...] = ()
    ) -> None:
        super().__init__(prepared)
        self._keys, self._windows = keys, windows
        self._places = {key: place for place, key in enumerate(keys)}
        self._open = self._nothing()

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of each release, in ticks, the single tick first; none where it counts all ticks so far."""
        return self._windows

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared keys, in their order; none where all events count alike."""
        return self._keys

    @property
    def most(self) -> int:
        """At how many of the keys one event counts at most."""
        return min(self.prepared.chosen.mechanism.rows.ones, len(self.keys))

    def _put(self, changes: Mapping[int, int]) -> None:
        row = self._open
        if any(abs(int(row[place]) + more) > self._most for place, more in changes.items()):
            raise RejectedMessage(self._too_much)
        for place, more in changes.items():
            row[place] += more

    def _row(self) -> IntArray:
        row, self._open = self._open, self._nothing()
        amounts = (slice(0, len(row)),) if self.prepared.runs.amounts else ()
        return Guard(len(row), amounts).admit(row)

    def _nothing(self) -> IntArray:
        rows = self.prepared.runs.rows
        return np.zeros(rows.stop - rows.start, dtype=np.int64)

    def _released(self, body: bytes) -> R:
        release: R = self._form.of(body, self.windows)
        return release

    def _place(self, key: Any) -> int:
        place = self._places.get(key) if isinstance(key, str) else None
        if place is None:
            raise RejectedMessage(
                "this key was not declared; declare a key such as 'other' for all other keys. "
                "Nothing was added"
            )
        return place

    def _listed(self, keys: Iterable[str]) -> list[int]:
        if isinstance(keys, str):
            raise RejectedMessage(
                "the keys of one event must be a list of texts; nothing was added"
            )
        places = list(dict.fromkeys(map(self._place, keys)))
        if len(places) > self.most:
            raise RejectedMessage(
                f"one event may count at no more than {self.most} of the keys; nothing was added. "
                "Declare a larger `most`"
            )
        return places

    def _by_key(self, events: Mapping[str, A]) -> Iterable[tuple[int, A]]:
        if not isinstance(events, Mapping):
            raise RejectedMessage(
                "the events of a tick must be a mapping from each key to its number of events"
            )
        return [(self._place(key), added) for key, added in events.items()]


class ContinualCounter(Shorthand[TickRelease[int], int]):
    """How many events, released once each tick; made by `Budget.counter`.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> counter = Budget(epsilon=1).counter(epsilon="0.1", horizon=8760)
    >>> counter.add(3)
    >>> release = counter.release()
    >>> release.tick, type(release.value), release.band > 0, release.confidence
    (0, <class 'int'>, True, 0.95)
    >>> counter.last is release
    True
    """

    __slots__ = ()

    def add(self, events: int = 1) -> None:
        """Add so many `events`, 0 or more, each protected on its own, to the open tick."""
        self._add(self._changes(events))

    def _changes(self, events: int) -> Mapping[int, int]:
        return {0: _events(events)}


class Keyed(Shorthand[TickRelease[V], Mapping[str, int]], Generic[V]):
    """A series that counts events with declared keys."""

    __slots__ = ()

    def add(self, key: str, events: int = 1) -> None:
        """Add so many `events` with this declared `key`, 0 or more, each protected on its own, to the open tick."""
        self._add({self._place(key): _events(events)})

    def add_list(self, keys: Iterable[str]) -> None:
        """Add one event to the open tick that counts once at each of these declared `keys`, `most` of them at most."""
        self._add(dict.fromkeys(self._listed(keys), 1))

    def _changes(self, events: Mapping[str, int]) -> Mapping[int, int]:
        return {place: _events(count) for place, count in self._by_key(events)}


class ContinualHistogram(Keyed[Counts]):
    """How many events with each of the declared keys; made by `Budget.histogram`."""

    __slots__ = ()


class ContinualTop(Keyed[tuple[Ranked, ...]]):
    """The `k` keys with most events, and which are not told apart from each; made by `Budget.top`."""

    __slots__ = ()


class ContinualMaximum(Keyed[int]):
    """How many events so far at the key that has most, and which key: `name` of a release; made by `Budget.maximum`."""

    __slots__ = ()


class ContinualAlerts(Keyed[tuple[str, ...]]):
    """Which keys have had about `threshold` events since they fired last; made by `Budget.alerts`."""

    __slots__ = ()


class Summing(Shorthand[SumRelease[V], T], Generic[V, T]):
    """A series that adds up numbers of events, each clamped and rounded to the grid."""

    __slots__ = ()

    _form = SumRelease
    _most = AMOUNTS.highest
    _too_much = "a tick holds sums of at most 2^60 steps; nothing was added"

    def _units(self, amounts: Iterable[Number]) -> int:
        if isinstance(amounts, str | bytes | Mapping) or not isinstance(amounts, Iterable):
            raise RejectedMessage(
                "the amounts of a tick must be a list of numbers; nothing was added"
            )
        amount: Amount = self.prepared.chosen.spec.amount  # type: ignore[assignment]  # of a sum
        doubles = np.array([_double(number) for number in amounts], dtype=np.float64)
        return int(amount.of(Numbers(doubles, None)).sum())


class ContinualSum(Summing[Decimal, Iterable[Number]]):
    """How much, of a clamped number, released once each tick; made by `Budget.sum` without keys.

    Examples
    --------
    >>> from stream_dp import Budget
    >>> volume = Budget(epsilon=1).sum(epsilon="0.5", clamp=(0, 240), step="0.01", windows=[24], horizon=8760)
    >>> volume.add(12.5, 300)  # two events; 300 counts as 240
    >>> release = volume.release()
    >>> list(release.windows), type(release.windows[24].value)
    ([1, 24], <class 'decimal.Decimal'>)
    """

    __slots__ = ()

    def add(self, *amounts: Number) -> None:
        """Add events with these numbers, each protected on its own, to the open tick: clamped, rounded to the grid."""
        self._add(self._changes(amounts))

    def _changes(self, events: Iterable[Number]) -> Mapping[int, int]:
        return {0: self._units(events)}


class ContinualSums(Summing[Sums, Mapping[str, Iterable[Number]]]):
    """How much, of a clamped number, for each of the declared keys; made by `Budget.sum` with keys."""

    __slots__ = ()

    def add(self, key: str, *amounts: Number) -> None:
        """Add events with this key and these numbers, as `ContinualSum.add` takes them, to the open tick."""
        self._add({self._place(key): self._units(amounts)})

    def add_list(self, keys: Iterable[str], amount: Number) -> None:
        """Add one event to the open tick that adds its `amount` at each of these `keys`, `most` of them at most."""
        self._add(dict.fromkeys(self._listed(keys), self._units([amount])))

    def _changes(self, events: Mapping[str, Iterable[Number]]) -> Mapping[int, int]:
        return {place: self._units(amounts) for place, amounts in self._by_key(events)}


def declared(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys in their order; raise UsageError for no key, too many, one twice, or one that is no text."""
    if isinstance(keys, str):
        raise UsageError('keys: must be a list of texts, such as ["DE", "FR", "other"]')
    names = tuple(keys)
    if not 1 <= len(names) <= MOST_KEYS:
        raise UsageError(f"keys: must be 1 to {MOST_KEYS} keys, got {len(names)}")
    if not all(isinstance(name, str) for name in names):
        raise UsageError("keys: every key must be a text")
    if len(set(names)) < len(names):
        raise UsageError("keys: a key is listed twice")
    return names


def row_schema(keys: tuple[str, ...] | None, most: int) -> dict[str, dict[str, Any]]:
    """Return the schema by which a statistic has rows with these keys, and `most` of them for one event."""
    if type(most) is not int or not 1 <= most <= MOST_LISTED:
        raise UsageError(f"most: must be a whole number from 1 to {MOST_LISTED}")
    fields: dict[str, dict[str, Any]] = {"amount": {"type": "number"}}
    if keys is not None:
        # as many entries as keys, one of them for what is none of the domain; their names play no part
        domain = [str(number) for number in range(max(1, len(keys) - 1))]
        kind = {"type": "category"} if most == 1 else {"type": "list", "most": most}
        fields["key"] = {**kind, "domain": domain}
    return fields


def windows_from(windows: Iterable[Window], horizon: int | None) -> tuple[Window, ...]:
    """Return what is shown where these windows are asked, in its order; nothing where none is.

    Raises UsageError for what is no window, and for one that is longer than the horizon.

    >>> windows_from(["ever", 168, 24], 8760)
    (1, 168, 24, 'ever')
    """
    if isinstance(windows, str | int) or not isinstance(windows, Iterable):
        raise UsageError(_WINDOWS)
    asked = [_window(window, horizon) for window in windows]
    spans = [window for window in asked if window not in (1, "ever")]
    ever = [window for window in asked if window == "ever"]
    return (1, *spans, *ever) if asked else ()


def _window(value: Any, horizon: int | None) -> Window:
    if isinstance(value, str) and value == "ever":
        return "ever"
    ticks = _whole(value) or 0
    if ticks < 1:
        raise UsageError(_WINDOWS)
    if horizon is not None and ticks > horizon:
        raise UsageError(
            f"windows: {ticks:,} ticks are more than the horizon of {horizon:,}. Use a shorter "
            'window, or "ever" for all ticks so far'
        )
    return ticks


def _events(value: Any) -> int:
    count = _whole(value)
    if count is None or not 0 <= count <= MOST_EVENTS:
        raise RejectedMessage(
            "a number of events must be a whole number from 0 to 2^40; nothing was added"
        )
    return count


def _whole(value: Any) -> int | None:
    """Return a whole number as an int; None for True, 3.0 and whatever is none."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def _double(amount: Any) -> float:
    number = isinstance(amount, Real | Decimal) and not isinstance(amount, bool)
    try:
        double = float(amount) if number else math.nan
    except (OverflowError, ValueError):
        double = math.nan
    if not math.isfinite(double):
        raise RejectedMessage(
            "an amount must be a finite number, such as 12.5; nothing was added. Leave out "
            "events that have no amount"
        )
    return double
