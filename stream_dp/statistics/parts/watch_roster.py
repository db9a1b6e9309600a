"""The watches of one monitor by their names: what analysts ask of them, what they are told, and which come and go.

Rules: a value; another watch gives another roster. It implements `engine.series.Asking`. A name is a watch's own, or
for one of a field's values the watch's and the value's with a stroke between them. A place of the monitor's definition
is never used again. What is wrong is named with its key and never with its value. This file knows no noise, filter or
actor.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar, cast

from stream_dp.core.mechanism import IntArray, Query
from stream_dp.core.wording import near_names
from stream_dp.engine.series import entry_bytes
from stream_dp.errors import NoRoom, UsageError
from stream_dp.journal.release import told_number
from stream_dp.mechanisms.serving import clipped
from stream_dp.mechanisms.watches.block import ThresholdQuery, is_threshold, thresholds
from stream_dp.records.groupings import decimal_text
from stream_dp.statistics.parts.series_spec import BYTES

_S = TypeVar("_S")
_TAKEN = ("threshold", "watch")
_TOLD = ("count", "counts_band")
SHOWN = 5  # names that a refusal shows
REMEMBERED = 20  # watches that were ended by message
ENDED = "(ended)"  # the name of a place of the definition whose watch was ended by message


@dataclass(frozen=True, slots=True)
class Placed:
    """A watch in the `places` places from `place` on; added by a message with this `definition`, or (empty) one of its
    monitor's own definition.

    It sees the ticks from `start` on (None: all of its series), and none from `end` on (None: it is there); `analyst`
    names who added it ("": the operator). `asked` are its keys that have fired for good where they were asked, each
    with the first tick that it does not see.
    """

    watch: Any
    place: int
    places: int
    definition: bytes = b""
    start: int | None = None
    analyst: str = ""
    end: int | None = None
    asked: Mapping[str, int] = field(default_factory=dict)

    @property
    def added(self) -> bool:
        return bool(self.definition)

    def saw(self, tick: int) -> bool:
        return (self.start is None or self.start <= tick) and (self.end is None or tick < self.end)


@dataclass(frozen=True)
class WatchRoster:
    """`names` has one for each place of the monitor, "" where it is free; `placed` are the watches that there are.

    `counts_band` is the half-width of the counts that it tells; None where it tells none. `gone` are the last ones that
    were ended by message, the first of them first. `touch` is the most places in which an event may count, by the
    monitor's noise. What people read and write are multiples of a `unit`; `signed` sums may be below 0. What watches
    select is remembered from one roster to the next.
    """

    names: tuple[str, ...]
    placed: tuple[Placed, ...]
    counts_band: int | None
    touch: int
    gone: tuple[Placed, ...] = ()
    unit: Fraction = Fraction(1)
    signed: bool = False
    _selected: dict[int, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        watches: Sequence[Any],
        counts_band: int | None,
        touch: int,
        unit: Fraction = Fraction(1),
        *,
        signed: bool = False,
    ) -> "WatchRoster":
        """Return that of a definition, whose watches lie one behind the other."""
        placed, at = list[Placed](), 0
        for watch in watches:
            places = 1
            if watch.by is not None:
                begin = f"{watch.name}/"
                while at + places < len(names) and names[at + places].startswith(begin):
                    places += 1
            placed.append(Placed(watch, at, places))
            at += places
        return cls(tuple(names), tuple(placed), counts_band, touch, unit=unit, signed=signed)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: at for at, name in enumerate(self.names) if name not in ("", ENDED)}

    @cached_property
    def once(self) -> Mapping[str, Sequence[Placed]]:
        """The watches that end with their firing, by name; of a name those that were ended by message first."""
        ending: dict[str, list[Placed]] = {}
        for placed in (*self.gone, *self.placed):
            if not placed.watch.rearm:
                ending.setdefault(placed.watch.name, []).append(placed)
        return ending

    def lives(self, key: str) -> Sequence[Placed]:
        """Return the watches of `once` that `key` belongs to."""
        return self.once.get(key.partition("/")[0], ())

    @property
    def watches(self) -> tuple[Any, ...]:
        return tuple(placed.watch for placed in self.placed)

    def has(self, name: str) -> bool:
        return any(placed.watch.name == name for placed in self.placed)

    def selections(self, selected: Callable[[Any], _S]) -> list[_S]:
        """Return what each watch selects, by the function `selected` where it is not known from another roster."""
        selections = []
        for placed in self.placed:
            watch, selection = self._selected.get(placed.place, (None, None))
            if watch is not placed.watch:
                selection = selected(placed.watch)
                self._selected[placed.place] = placed.watch, selection
            selections.append(selection)
        return selections

    def query(self, parameters: Mapping[str, Any]) -> Query:
        """Return the query that compares a watch with a threshold; raise UsageError with every problem by its key."""
        wrong = [f"{key}: is missing" for key in _TAKEN if key not in parameters]
        if others := sorted(parameters.keys() - set(_TAKEN)):
            wrong.append(
                f"{', '.join(others)}: not taken by a monitor; it takes watch and threshold"
            )
        name, threshold = parameters.get("watch"), parameters.get("threshold")
        place = self._place_of(name)
        if "watch" in parameters and place is None:
            more = "; of one with a `by` the value too: watch/value"
            wrong.append(_not_here(name, self._places, more))
        units = 1
        if "threshold" in parameters:
            try:
                units = self._units(threshold)
            except UsageError as problem:
                wrong.append(str(problem))
        if wrong or place is None:
            raise UsageError("\n".join(sorted(wrong)))
        return ThresholdQuery(units, place=place)

    def begins(self, parameters: Mapping[str, Any]) -> int | None:
        """Return the first tick that the watch named by these parameters sees; None: all, or there is no such watch."""
        place = self._place_of(parameters.get("watch"))
        asked = (
            item for item in self.placed if place in range(item.place, item.place + item.places)
        )
        return next((item.start for item in asked), None)

    def _place_of(self, name: object) -> int | None:
        return self._places.get(name) if isinstance(name, str) else None

    def _units(self, threshold: object) -> int:
        """Turn a threshold that somebody asks into units; raise UsageError where it is none."""
        if not is_threshold(threshold, negative=self.signed):
            ends = thresholds(negative=self.signed)
            raise UsageError(f"threshold: must be a whole number {ends}")
        units = Fraction(cast("int", threshold)) / self.unit
        if units.denominator != 1:
            raise UsageError(f"threshold: must be a multiple of the step {decimal_text(self.unit)}")
        if not is_threshold(int(units), negative=self.signed):
            raise UsageError("threshold: must be at most 10^15 steps")
        return int(units)

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        """Return whether the watch fired at this threshold and, where the monitor releases it, its count."""
        fired, *counts = (answer if self.signed else clipped(answer)).tolist()
        count: dict[str, Any] = {}
        if counts and fired and self.counts_band is not None:
            numbers = (counts[0], self.counts_band)
            count = dict(zip(_TOLD, (told_number(n, self.unit) for n in numbers), strict=True))
        asked = {"watch": parameters["watch"], "threshold": parameters["threshold"]}
        return {**asked, "fired": bool(fired), **count}

    def answered(self, content: Mapping[str, Any], at: int) -> "WatchRoster":
        """Return the roster once this answer of the cut before tick `at` is public: what it fired for good has ended.

        Of several watches of a name, those that were ended by message too, it is the last one.
        """
        lives = self.lives(content["watch"]) if content.get("fired") else ()
        if not lives:
            return self
        last = lives[-1]
        ended = replace(last, asked={**last.asked, content["watch"]: at})
        placed, gone = (
            tuple(ended if watch is last else watch for watch in watches)
            for watches in (self.placed, self.gone)
        )
        return replace(self, placed=placed, gone=gone)

    def named(self, name: str) -> Placed:
        """Return the watch of this name; raise UsageError where there is none."""
        for placed in self.placed:
            if placed.watch.name == name:
                return placed
        raise UsageError(_not_here(name, [placed.watch.name for placed in self.placed]))

    def room(self, places: int) -> int:
        """Return the first of so many free places in a row; raise UsageError where there are none."""
        free = 0
        for at, name in enumerate(self.names):
            free = 0 if name else free + 1
            if free == places:
                return at - places + 1
        raise UsageError(
            f"watch: needs {places} adjacent free place(s), but this monitor has "
            f"{len(self.names)} in all (most). End a watch that was added, or create another "
            "monitor"
        )

    def require_short(self) -> None:
        """Raise NoRoom where added names are too long for the places of a release that were counted for them."""
        counted = self.counts_band is not None
        placed = [item for item in self.placed if not item.added]
        fixed = sum(item.places for item in placed) + self.names.count(ENDED)
        added = [
            name
            for item in self.placed
            if item.added
            for name in self.names[item.place : item.place + item.places]
        ]
        left = BYTES * (len(self.names) - fixed) - entry_bytes(added, counted=counted)
        if left < 0:
            raise NoRoom(
                "watch: with this watch, the names of the watches that were added to this monitor "
                f"would be {-left:,} bytes too long (a release holds about {BYTES} bytes for each "
                "place). Use shorter names or keys, end a watch that was added, or create another "
                "monitor"
            )

    def with_watch(
        self, watch: Any, definition: bytes, place: int, names: Sequence[str], start: int = 0, analyst: str = ""
    ) -> "WatchRoster":  # fmt: skip
        """Return the roster with one more watch of an analyst's, whose entries have these names."""
        behind = place + len(names)
        every = (*self.names[:place], *names, *self.names[behind:])
        added = Placed(watch, place, len(names), definition, start, analyst)
        return replace(self, names=every, placed=(*self.placed, added))

    def without(self, gone: Placed, end: int = 0) -> "WatchRoster":
        """Return the roster without a watch, which sees no tick from `end` on."""
        behind = gone.place + gone.places
        free = ("" if gone.added else ENDED,) * gone.places
        every = (*self.names[: gone.place], *free, *self.names[behind:])
        placed = tuple(watch for watch in self.placed if watch != gone)
        ended = (*self.gone, replace(gone, end=end))[-REMEMBERED:]
        return replace(self, names=every, placed=placed, gone=ended)


def _not_here(name: object, names: Collection[str], more: str = "") -> str:
    """Return the end of a refusal of a name that is none of these: some of those that are, the nearest first."""
    inside = [known for known in names if isinstance(name, str) and known.startswith(f"{name}/")]
    near = [*inside[:SHOWN], *near_names(name, names, SHOWN)]
    shown = list(dict.fromkeys([*near, *islice(names, SHOWN)]))[:SHOWN]
    rest = len(names) - len(shown)
    there = ", ".join(shown) + (f" and {rest:,} more" if rest else "")
    return f"watch: none of this name is here; there are {there or 'none'}{more}"
