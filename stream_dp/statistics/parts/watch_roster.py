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
from stream_dp.mechanisms.watches.monitor_state import ThresholdQuery, is_threshold, thresholds
from stream_dp.records.groupings import decimal_text
from stream_dp.statistics.parts.series_spec import BYTES

_S = TypeVar("_S")
_TAKEN = ("threshold", "watch")
_TOLD = ("count", "counts_band")
SHOWN = 5
"""How many names a refusal shows."""
REMEMBERED = 20
"""How many watches are remembered that were ended by message."""
ENDED = "(ended)"  # what a place of the definition is called whose watch was ended by message


@dataclass(frozen=True, slots=True)
class Placed:
    """A watch in the `places` places from `place` on; `added` by a message, or one of the definition.

    It sees the ticks from `start` on (None: all of its series), and none from `end` on (None: it is there); `analyst`
    names who added it ("": the operator). `asked` are its keys that have fired for good where they were asked, each
    with the first tick that it does not see.
    """

    watch: Any
    place: int
    places: int
    added: bool = False
    start: int | None = None
    analyst: str = ""
    end: int | None = None
    asked: Mapping[str, int] = field(default_factory=dict)

    def saw(self, tick: int) -> bool:
        """Whether it was there in a tick."""
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
        """The watches that end with their firing, by name; of one name those that were ended by message first."""
        found: dict[str, list[Placed]] = {}
        for each in (*self.gone, *self.placed):
            if not each.watch.rearm:
                found.setdefault(each.watch.name, []).append(each)
        return found

    def lives(self, key: str) -> Sequence[Placed]:
        """Return those of `once` that `key` is one of."""
        return self.once.get(key.partition("/")[0], ())

    @property
    def watches(self) -> tuple[Any, ...]:
        """The definitions of the watches that there are."""
        return tuple(each.watch for each in self.placed)

    def has(self, name: str) -> bool:
        """Say whether there is a watch of this name."""
        return any(each.watch.name == name for each in self.placed)

    def selections(self, selected: Callable[[Any], _S]) -> list[_S]:
        """Return what is `selected` by each watch, of which that of one that was there before is known."""
        found = []
        for each in self.placed:
            watch, selection = self._selected.get(each.place, (None, None))
            if watch is not each.watch:
                selection = selected(each.watch)
                self._selected[each.place] = each.watch, selection
            found.append(selection)
        return found

    def query(self, parameters: Mapping[str, Any]) -> Query:
        """Return the query that compares a watch with a threshold.

        Raises:
            UsageError: no watch of the monitor, or no threshold; every problem is named with its key.
        """
        wrong = [f"{key}: is missing" for key in _TAKEN if key not in parameters]
        if others := sorted(parameters.keys() - set(_TAKEN)):
            wrong.append(
                f"{', '.join(others)}: not taken by a monitor; it takes watch and threshold"
            )
        name, threshold = parameters.get("watch"), parameters.get("threshold")
        place = self._places.get(name) if isinstance(name, str) else None
        if "watch" in parameters and place is None:
            wrong.append(
                _not_here(name, self._places, "; of one with a `by` the value too: watch/value")
            )
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
        """Return the first tick that the watch sees that these parameters ask; None: all, or there is no such watch."""
        name = parameters.get("watch")
        place = self._places.get(name) if isinstance(name, str) else None
        asked = (one for one in self.placed if place in range(one.place, one.place + one.places))
        return next((one.start for one in asked), None)

    def _units(self, threshold: object) -> int:
        """A threshold that somebody asks, in units.

        Raises:
            UsageError: it is none.
        """
        if not is_threshold(threshold, negative=self.signed):
            ends = thresholds(negative=self.signed)
            raise UsageError(f"threshold: must be a whole number {ends}")
        units = Fraction(cast("int", threshold)) / self.unit
        if units.denominator != 1:
            raise UsageError(f"threshold: is no whole number of steps of {decimal_text(self.unit)}")
        if not is_threshold(int(units), negative=self.signed):
            raise UsageError("threshold: is more than 10^15 steps")
        return int(units)

    def content(self, parameters: Mapping[str, Any], answer: IntArray) -> Mapping[str, Any]:
        """Return whether the watch fired at this threshold and, where the monitor tells it, its count."""
        fired, *counts = (answer if self.signed else clipped(answer)).tolist()
        told: dict[str, Any] = {}
        if counts and fired and self.counts_band is not None:
            numbers = (counts[0], self.counts_band)
            told = dict(zip(_TOLD, (told_number(each, self.unit) for each in numbers), strict=True))
        asked = {"watch": parameters["watch"], "threshold": parameters["threshold"]}
        return {**asked, "fired": bool(fired), **told}

    def answered(self, content: Mapping[str, Any], at: int) -> "WatchRoster":
        """Return the roster once this answer of the cut before tick `at` is public: what it fired for good has ended.

        A watch that was ended by message since is the last one of its name that was.
        """
        lives = self.lives(content["watch"]) if content.get("fired") else ()
        if not lives:
            return self
        was = lives[-1]
        now = replace(was, asked={**was.asked, content["watch"]: at})
        placed, gone = (
            tuple(now if each is was else each for each in those)
            for those in (self.placed, self.gone)
        )
        return replace(self, placed=placed, gone=gone)

    def named(self, name: str) -> Placed:
        """Return the watch of this name.

        Raises:
            UsageError: there is none.
        """
        for each in self.placed:
            if each.watch.name == name:
                return each
        raise UsageError(_not_here(name, [each.watch.name for each in self.placed]))

    def room(self, places: int) -> int:
        """Return the first of so many free places in a row.

        Raises:
            UsageError: there are none.
        """
        free = 0
        for at, name in enumerate(self.names):
            free = 0 if name else free + 1
            if free == places:
                return at - places + 1
        raise UsageError(
            f"watch: needs {places} free place(s) side by side, and this monitor has room for {len(self.names)} in all "
            "(most); end one that was added, or create another monitor"
        )

    def require_short(self) -> None:
        """Do nothing where what was added leaves a release as large as the places for it were counted.

        Raises:
            NoRoom: its names are too long for that; all of them may fire at every tick.
        """
        counted = self.counts_band is not None
        fixed = sum(each.places for each in self.placed if not each.added) + self.names.count(ENDED)
        added = [
            name
            for each in self.placed
            if each.added
            for name in self.names[each.place : each.place + each.places]
        ]
        left = BYTES * (len(self.names) - fixed) - entry_bytes(added, counted=counted)
        if left < 0:
            raise NoRoom(
                f"watch: what was added to this monitor would have names too long, by {-left:,} bytes, for the places "
                f"that they may take ({BYTES} bytes each, about, in a release). Take shorter names or keys, end one "
                "that was added, or create another monitor"
            )

    def with_watch(
        self, watch: Any, place: int, names: Sequence[str], start: int = 0, analyst: str = ""
    ) -> "WatchRoster":
        """Return the roster with one more watch of an analyst's, whose entries have these names."""
        behind = place + len(names)
        every = (*self.names[:place], *names, *self.names[behind:])
        one = Placed(watch, place, len(names), added=True, start=start, analyst=analyst)
        return replace(self, names=every, placed=(*self.placed, one))

    def without(self, gone: Placed, end: int = 0) -> "WatchRoster":
        """Return the roster without a watch, which sees no tick from `end` on."""
        behind = gone.place + gone.places
        free = ("" if gone.added else ENDED,) * gone.places
        every = (*self.names[: gone.place], *free, *self.names[behind:])
        placed = tuple(each for each in self.placed if each != gone)
        ended = (*self.gone, replace(gone, end=end))[-REMEMBERED:]
        return replace(self, names=every, placed=placed, gone=ended)


def _not_here(name: object, names: Collection[str], more: str = "") -> str:
    """What is said of a name that is none of these: some of those that are, the nearest first."""
    inside = [each for each in names if isinstance(name, str) and each.startswith(f"{name}/")]
    near = [*inside[:SHOWN], *near_names(name, names, SHOWN)]
    shown = list(dict.fromkeys([*near, *islice(names, SHOWN)]))[:SHOWN]
    rest = len(names) - len(shown)
    there = ", ".join(shown) + (f" and {rest:,} more" if rest else "")
    return f"watch: none of this name is here; there are {there or 'none'}{more}"
