"""The statistic `monitor`: many watches in one series, each with its own filter and threshold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray, Query
from stream_dp.mechanisms.monitor import Monitor
from stream_dp.mechanisms.watch_messages import ThresholdQuery, WatchTerms
from stream_dp.mechanisms.watch_windows import MOST_HELD
from stream_dp.pipeline.alarms import (
    daily,
    over_problems,
    usual_count,
)
from stream_dp.pipeline.choice import Choice, Setting, steady
from stream_dp.pipeline.conditions import tests_of
from stream_dp.pipeline.false_alarm import FalseAlarm
from stream_dp.pipeline.grouping_problems import by_problems, grouping_sketched
from stream_dp.pipeline.groupings import By, most_ones, number_of_keys
from stream_dp.pipeline.overlaps import Overlap, Selection, beside, deepest
from stream_dp.pipeline.scalars import Epsilon, Name, problem, refuse
from stream_dp.pipeline.statistics.series_spec import (
    Place,
    SeriesPart,
    SeriesSpec,
    where_problems,
    where_sketched,
)
from stream_dp.pipeline.watch_roster import WatchRoster
from stream_dp.pipeline.watch_spec import WatchSpec
from stream_dp.runtime.release import Shape


def _askers(value: object) -> object:
    if value in ("operator", "anyone"):
        return value
    named = list(value) if isinstance(value, list | tuple) else []
    if not named or not all(isinstance(each, str) for each in named):
        raise ValueError("must be operator, anyone, or a list of analysts such as [ann, bob]")
    return tuple(named)


_Asking = Literal["operator", "anyone"] | Annotated[tuple[Name, ...], Field(min_length=1)]
Askers = Annotated[
    Literal["operator", "anyone"] | tuple[str, ...],
    BeforeValidator(_askers, json_schema_input_type=_Asking),
]
ROOM = 100  # places for watches that come by message, where the file does not say `most`
MOST_PLACES = 10**6
_SHOWN = 5  # names of watches in one message
_TOLD = 100  # watches that readers are told of


class MonitorSeries(SeriesSpec):
    """Which of many watches fire in a tick.

    `touch` is the most watches that one event may count in at once, as many as the filters allow where it is left out;
    `most` the room for watches. With `value`, an epsilon of its own, the count of what fires is told too. `ask` are
    those who may ask its watches other thresholds, which may fire, and so begin again or end them, beside the owner.
    """

    shape: ClassVar[Shape] = Shape.FLAGS
    later: ClassVar[tuple[str, ...]] = ("ask",)
    rights: ClassVar[tuple[str, ...]] = ("ask",)

    statistic: Literal["monitor"] = "monitor"
    watch: Annotated[tuple[WatchSpec, ...], Field(min_length=1, max_length=100_000)]
    touch: Annotated[int, Field(ge=1, le=MOST_PLACES)] | None = None
    most: Annotated[int, Field(ge=1, le=MOST_PLACES)] | None = None
    value: Epsilon | None = None
    ask: Askers = "operator"

    @model_validator(mode="after")
    def _names(self) -> "MonitorSeries":
        seen: set[str] = set()
        problems = []
        for place, one in enumerate(self.watch):
            if one.name in seen:
                problems.append(
                    problem(("watch", place, "name"), f"a watch '{one.name}' is already there")
                )
            seen.add(one.name)
        refuse(problems)
        return self

    @property
    def parts(self) -> tuple[WatchSpec, ...]:
        """The watches."""
        return self.watch

    @property
    def price(self) -> Fraction:
        """Both epsilons."""
        return self.epsilon + (self.value or 0)

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"{len(self.watch)} watch{'' if len(self.watch) == 1 else 'es'}"

    @property
    def meaning(self) -> str:
        """What it means that a watch fires."""
        return "its events reached its threshold, or fell short of it, {band} events"

    @property
    def parameters(self) -> dict[str, int | str]:
        """When each watch fires, in words; of very many only the first."""
        told: dict[str, int | str] = {one.name: one.words for one in self.watch[:_TOLD]}
        more = len(self.watch) - _TOLD
        return told | {"...": f"{more:,} more"} if more > 0 else told

    def at_share(self, share: Fraction) -> "MonitorSeries":
        """The series at a part of its price."""
        value = None if self.value is None else self.value * share
        return self.model_copy(update={"epsilon": self.epsilon * share, "value": value})

    def places(self, entries: int) -> int:
        """Return the room for watches."""
        return min(entries + ROOM, max(entries, MOST_PLACES)) if self.most is None else self.most

    def ones(self, fields: Mapping[str, Any]) -> int:
        """Return the most entries of the row that one event sets."""
        return overlap(self, self.watch, fields).number if self.touch is None else self.touch

    def choose(self, setting: Setting) -> Choice:
        """Choose one block of watches."""
        counted = zip(self.watch, setting.parts, strict=True)
        terms = _joined(one.terms(n, setting.step) for one, n in counted)
        monitor = Monitor(
            setting.width,
            self.epsilon,
            setting.neighbors,
            terms,
            setting.ones,
            self.value or Fraction(0),
        )
        touched = f"an event counts in at most {setting.ones} of its places at once"
        early = f"{monitor.false_alarms():.2g} fire too early in a tick without events, on average, at most"
        chosen = steady(monitor, f"re-armed per watch; {touched}; {early}", setting)
        alarms = (_false_alarm(one, monitor, setting.step) for one in self.watch[:_TOLD])
        return replace(chosen, alarms=tuple(alarms))

    def counts_band(self, mechanism: Monitor, confidence: float) -> int | None:
        """Return the half-width of the counts that `value` pays for."""
        return None if self.value is None else mechanism.value_band(confidence)

    def asking(
        self, keys: Sequence[str], mechanism: Monitor, counts_band: int | None
    ) -> WatchRoster:
        """Return its watches by name: each may be asked a threshold."""
        return WatchRoster.of(keys, self.watch, counts_band, mechanism.ones)

    def ask_band(
        self, mechanism: Monitor, confidence: float, updates: int, query: Query, state: Any
    ) -> int | None:
        """Return by how many events an answer to a threshold may be wrong."""
        if not isinstance(query, ThresholdQuery):
            return None
        return mechanism.ask_band(query.place, updates, state, confidence)

    @property
    def askers(self) -> tuple[str, ...] | None:
        """Those of `ask`."""
        return None if self.ask == "anyone" else () if self.ask == "operator" else tuple(self.ask)

    def another(self, data: Any, asking: Any, fields: Mapping[str, Any], clock: Any) -> WatchSpec:
        """Return one more watch, which no event may count in that counts in `touch` others.

        So no event does among those that there are: it is enough to look at the events of this one.
        """
        roster: WatchRoster = asking
        one = WatchSpec.model_validate(data)
        found = [*by_problems((), one.by, fields), *where_problems((), one.where, fields)]
        found += over_problems((), one, clock) or _held_problems(
            (*roster.watches, one), fields, clock.step
        )
        if roster.has(one.name):
            found.append(problem(("name",), f"a watch '{one.name}' is already there"))
        refuse(found)
        others = roster.selections(partial(_selection, self, fields=fields))
        depth = beside(_selection(self, one, fields), others, fields)
        if depth.number > roster.touch:
            refuse([problem((), beyond(depth, roster.touch))])
        return one

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: watches have no total."""

    def said(self, meant: Any) -> dict[str, Any]:
        """Return what the conditions of the series and of its watches mean."""
        plain = [key for key in WatchSpec.model_fields if key not in ("where", "usual")]
        watches = [
            {"where": [meant(c) for c in one.where], **{key: getattr(one, key) for key in plain}}
            for one in self.watch
        ]
        return {**super().said(meant), "watch": watches}

    @classmethod
    def sketched(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be read of a broken entry's conditions, and of its watches."""
        watches = value.get("watch")
        given = watches if isinstance(watches, list) else []
        readable = [one for one in given if isinstance(one, Mapping)]
        sketches = [
            SimpleNamespace(
                by=grouping_sketched(one.get("by")), over=one.get("over"), **where_sketched(one)
            )
            for one in readable
        ]
        return {**super().sketched(value), "watch": sketches if len(readable) == len(given) else []}

    @classmethod
    def groupings(cls, series: Any) -> Iterator[tuple[Place, By]]:
        """Return what each watch goes by."""
        for place, one in enumerate(getattr(series, "watch", ())):
            if one.by is not None:
                yield ("watch", place), one.by

    @classmethod
    def clock_problems(cls, at: Place, series: Any, clock: Any) -> list[InitErrorDetails]:
        """Return which windows do not go with the clock."""
        found = []
        for place, one in enumerate(getattr(series, "watch", ())):
            found += over_problems((*at, "watch", place), one, clock)
        return found

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, those of each watch, and those of all watches together."""
        if fields is None:
            return []
        found = super().problems(at, series, fields)
        for place, one in enumerate(getattr(series, "watch", ())):
            here = (*at, "watch", place)
            found += [*by_problems(here, one.by, fields), *where_problems(here, one.where, fields)]
        if found or not isinstance(series, MonitorSeries) or None in fields.values():
            return found
        return [*_touch_problems(at, series, fields), *_room_problems(at, series, fields)]


def _false_alarm(one: WatchSpec, monitor: Monitor, step: int) -> FalseAlarm:
    """Return how likely one of its keys fires on a day while its count is as usual."""
    usual = usual_count(one.threshold, one.below is not None, one.usual)
    return FalseAlarm(one.name, usual, monitor.false_alarm(one.terms(1, step), usual, daily(step)))


def _joined(terms: Iterable[WatchTerms]) -> tuple[WatchTerms, ...]:
    """Terms with one entry for neighbours that differ in nothing but their places: the mechanism is the same."""
    runs = [list(run) for _, run in groupby(terms, key=_but_places)]
    return tuple(
        run[0] if len(run) == 1 else replace(run[0], places=sum(each.places for each in run))
        for run in runs
    )


def _but_places(one: WatchTerms) -> WatchTerms:
    return replace(one, places=1)


def overlap(
    series: MonitorSeries, watches: Sequence[SeriesPart], fields: Mapping[str, Any]
) -> Overlap:
    """Return in how many entries one event can count at once, and the watches whose filters allow it."""
    return deepest([_selection(series, one, fields) for one in watches], fields)


def _selection(series: MonitorSeries, one: SeriesPart, fields: Mapping[str, Any]) -> Selection:
    """Return what a watch of the series selects."""
    where = tests_of(fields, (*series.where, *one.where))
    return Selection(one.name, most_ones(fields, one.by), where)


def _touch_problems(
    at: Place, series: MonitorSeries, fields: Mapping[str, Any]
) -> list[InitErrorDetails]:
    """What is wrong where one event may count in more watches than `touch`."""
    if series.touch is None:
        return []
    found = overlap(series, series.watch, fields)
    if found.number <= series.touch:
        return []
    why = f"is {series.touch}, but {_deep(found)}, or raise it to {found.number}"
    return [problem((*at, "touch"), why)]


def beyond(found: Overlap, touch: int) -> str:
    """Why a watch does not go with those that there are, in words."""
    return (
        f"{_deep(found)}; the noise of this monitor is made for {touch} (touch): for more create another, with a "
        "larger touch"
    )


def _deep(found: Overlap) -> str:
    names = ", ".join(found.names[:_SHOWN]) + (", ..." if len(found.names) > _SHOWN else "")
    return (
        f"one event may count {found.number} times at once, in {names}: give these filters that no event passes "
        "together"
    )


def _held_problems(
    watches: Sequence[WatchSpec], fields: Mapping[str, Any], step: int
) -> list[InitErrorDetails]:
    """What is wrong where the windows of these watches, the last of them a new one, are too many rows."""
    terms = [
        each.terms(number_of_keys(fields, each.by), step) for each in watches if each.looks_back
    ]
    held = sum(each.window * each.places for each in terms)
    if not watches[-1].looks_back or held <= MOST_HELD:
        return []
    why = f"the windows of these watches would hold {held:,} numbers, more than {MOST_HELD:,}: name a shorter one"
    return [problem(("over",), why)]


def _room_problems(
    at: Place, series: MonitorSeries, fields: Mapping[str, Any]
) -> list[InitErrorDetails]:
    """What is wrong where the watches need more places than there are."""
    needed = sum(number_of_keys(fields, one.by) for one in series.watch)
    room = MOST_PLACES if series.most is None else series.most
    if needed <= room:
        return []
    why = f"these watches need {needed} places, one for each value of their fields, and there are {room}"
    return [problem((*at, "watch" if series.most is None else "most"), why)]
