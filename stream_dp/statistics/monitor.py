"""The statistic `monitor`: many watches in one series, each with its own filter and threshold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import InitErrorDetails

from stream_dp.core.how_many import how_many
from stream_dp.core.messages import IntArray, Query
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.watches.kinds import NONE, Monitor, SumMonitor
from stream_dp.mechanisms.watches.monitor_state import MOST_HELD
from stream_dp.mechanisms.watches.watch_messages import ThresholdQuery, WatchTerms
from stream_dp.records.amount_units import Amount, Clamp, Step, number_problems, plain_number
from stream_dp.records.conditions import tests_of, where_problems
from stream_dp.records.groupings import (
    By,
    Place,
    by_problems,
    decimal_text,
    most_ones,
    number_of_keys,
)
from stream_dp.records.scalars import Epsilon, FieldName, Name, problem, refuse
from stream_dp.statistics.choice.choice import Choice, Setting, steady
from stream_dp.statistics.parts.alarms import (
    Looking,
    adds_both_signs,
    amount_watched,
    compared_by,
    daily,
    level_problems,
    may_be_negative,
    over_problems,
    sign_problems,
    sum_problems,
)
from stream_dp.statistics.parts.false_alarm import FalseAlarm
from stream_dp.statistics.parts.overlaps import Overlap, Selection, beside, deepest
from stream_dp.statistics.parts.series_spec import Rest, SeriesPart, SeriesSpec
from stream_dp.statistics.parts.watch_roster import WatchRoster
from stream_dp.statistics.parts.watch_spec import WatchSpec


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
MOST_PLACES = 10**6
_SHOWN = 5  # names of watches in one message
ROOM = 100  # places for watches that come by message, where the file does not say `most`
_TOLD = 100  # watches that readers are told of


class MonitorSeries(SeriesSpec):
    """Which of many watches fire in a tick. `of` a number, within `clamp` and on a grid of `step`, they look at sums.

    `touch` is the most watches that one event may count in at once, as many as the filters allow where it is left out;
    `most` the room for watches. With `value`, an epsilon of its own, the count of what fires is told too. `ask` are
    those who may ask its watches other thresholds, which may fire, and so begin again or end them, beside the owner.
    """

    shape: ClassVar[Shape] = Shape.FLAGS
    later: ClassVar[tuple[str, ...]] = ("ask", "of", "clamp", "step")
    rights: ClassVar[tuple[str, ...]] = ("ask",)

    statistic: Literal["monitor"] = "monitor"
    watch: Annotated[tuple[WatchSpec, ...], Field(min_length=1, max_length=100_000)]
    touch: Annotated[int, Field(ge=1, le=MOST_PLACES)] | None = None
    most: Annotated[int, Field(ge=1, le=MOST_PLACES)] | None = None
    value: Epsilon | None = None
    ask: Askers = "operator"
    of: FieldName | None = None
    clamp: Clamp | None = None
    step: Step = Fraction(1)

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, of its watches' names and thresholds, and of a sum."""
        problems = super().own_problems()
        signed, seen = adds_both_signs(self.of, self.clamp), set[str]()
        for place, watch in enumerate(self.watch):
            if watch.name in seen:
                why = f"a watch '{watch.name}' is already there"
                problems.append(problem(("watch", place, "name"), why))
            seen.add(watch.name)
            problems += _threshold_problems(("watch", place), watch, self.step, signed=signed)
        return [*problems, *sum_problems(self.of, self.clamp, self.step)]

    @property
    def parts(self) -> tuple[WatchSpec, ...]:
        """The watches."""
        return self.watch

    @property
    def amount(self) -> Amount | None:
        """What a record adds to each of its watches, where they look at a sum."""
        return amount_watched(self.of, self.clamp, self.step)

    @property
    def grain(self) -> Fraction:
        """The step of the grid."""
        return self.step

    @property
    def signed(self) -> bool:
        """Whether a sum may be below 0."""
        return may_be_negative(self.amount)

    @property
    def price(self) -> Fraction:
        """Both epsilons."""
        return self.epsilon + (self.value or 0)

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        watches = how_many(len(self.watch), "watch", "watches")
        if self.amount is None:
            return watches
        low, high = map(decimal_text, (self.amount.lowest, self.amount.highest))
        return f"{watches} on sums of {self.of}, each from {low} to {high}"

    @property
    def error_unit(self) -> str:
        """What thresholds are of."""
        return "events" if self.of is None else f"of {self.of}"

    @property
    def meaning(self) -> str:
        """What it means that a watch fires."""
        return f"its events reached its threshold, or fell short of it, {{band}} {self.error_unit}"

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
        monitor = self._monitor(setting)
        touched = f"an event counts in at most {setting.ones} of its places at once"
        early = f"{monitor.false_alarms():.2g} fire too early in a tick without events, on average, at most"
        chosen = steady(monitor, f"re-armed per watch; {touched}; {early}", setting)
        looking = Looking(daily(setting.step), setting.last + 1, setting.confidence)
        return replace(
            chosen,
            alarms=tuple(
                self.alarm(one, monitor, setting.step, looking) for one in self.watch[:_TOLD]
            ),
            expected=lambda tick: plain_number(Fraction(chosen.expected(tick)) * self.step),
        )

    def _monitor(self, setting: Setting) -> Monitor | SumMonitor:
        """The mechanism, by what records add."""
        counted = zip(self.watch, setting.parts, strict=True)
        terms = _joined(one.terms(n, setting.step, self.step) for one, n in counted)
        plain, value = (setting.width, self.epsilon, setting.neighbors, terms), self.value or NONE
        if self.amount is None:
            return Monitor(*plain, setting.ones, value)
        return SumMonitor(*plain, *self.amount.units, setting.ones, value)

    def alarm(
        self, one: WatchSpec, monitor: Monitor | SumMonitor, step: int, looking: Looking
    ) -> FalseAlarm:
        """Return how likely one key of a watch fires on a day while its count is as usual; ticks have `step` ms."""
        terms, level = one.terms(1, step, self.step), (one.threshold, one.usual)
        usual, chance, compared = compared_by(monitor, terms, level, self.step, looking)
        return FalseAlarm(one.name, usual, chance, one.by is not None, self.of, compared)

    def counts_band(self, mechanism: Monitor | SumMonitor, confidence: float) -> int | None:
        """Return the half-width of the counts that `value` pays for."""
        return None if self.value is None else mechanism.value_band(confidence)

    def asking(
        self, keys: Sequence[str], mechanism: Monitor | SumMonitor, counts_band: int | None
    ) -> WatchRoster:
        """Return its watches by name: each may be asked a threshold."""
        return WatchRoster.of(
            keys, self.watch, counts_band, mechanism.ones, self.grain, signed=self.signed
        )

    def ask_band(
        self,
        mechanism: Monitor | SumMonitor,
        confidence: float,
        updates: int,
        query: Query,
        state: Any,
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

        So no event does among those that there are: it is enough to look at the events of this watch.
        """
        roster: WatchRoster = asking
        watch = WatchSpec.model_validate(data)
        problems = [
            *by_problems(("by",), watch.by, fields),
            *where_problems((), watch.where, fields),
        ]
        problems += over_problems((), watch.over, clock) or _held_problems(
            (*roster.watches, watch), fields, clock.step
        )
        problems += _threshold_problems((), watch, self.step, signed=self.signed)
        if roster.has(watch.name):
            problems.append(problem(("name",), f"a watch '{watch.name}' is already there"))
        refuse(problems)
        others = roster.selections(partial(selection, self, fields=fields))
        depth = beside(selection(self, watch, fields), others, fields)
        if depth.number > roster.touch:
            why = (
                f"{_deep(depth)}; the noise of this monitor is made for {roster.touch} (touch): for more create "
                "another, with a larger touch"
            )
            refuse([problem((), why)])
        return watch

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: watches have no total."""

    def said(self, meant: Any) -> dict[str, Any]:
        """Return what the conditions of the series and of its watches mean."""
        watches = [
            {
                **one.model_dump(mode="json", exclude={"where", "usual"}),
                "where": [meant(c) for c in one.where],
            }
            for one in self.watch
        ]
        return {**super().said(meant), "watch": watches}

    def groupings(self) -> Iterator[tuple[Place, By]]:
        """Return what each watch goes by."""
        for place, watch in enumerate(self.watch):
            if watch.by is not None:
                yield ("watch", place), watch.by

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        """Return those of every series, those of each watch, and those of all watches together."""
        problems = super().problems(rest)
        for place, watch in enumerate(self.watch):
            problems += where_problems(("watch", place), watch.where, rest.fields)
            problems += over_problems(("watch", place), watch.over, rest.clock)
        problems += [] if self.of is None else number_problems(self.of, rest.fields)
        return problems or [*self._touch_problems(rest.fields), *self._room_problems(rest.fields)]

    def _touch_problems(self, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
        """What is wrong where one event may count in more watches than `touch`."""
        if self.touch is None or (depth := overlap(self, self.watch, fields)).number <= self.touch:
            return []
        why = f"is {self.touch}, but {_deep(depth)}, or raise it to {depth.number}"
        return [problem(("touch",), why)]

    def _room_problems(self, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
        """What is wrong where the watches need more places than there are."""
        needed = sum(number_of_keys(fields, watch.by) for watch in self.watch)
        room, key = (MOST_PLACES, "watch") if self.most is None else (self.most, "most")
        if needed <= room:
            return []
        why = f"these watches need {needed} places, one for each value of their fields, and there are {room}"
        return [problem((key,), why)]


def overlap(
    series: MonitorSeries, watches: Sequence[SeriesPart], fields: Mapping[str, Any]
) -> Overlap:
    """Return in how many entries one event can count at once, and the watches whose filters allow it."""
    return deepest([selection(series, one, fields) for one in watches], fields)


def selection(series: MonitorSeries, one: SeriesPart, fields: Mapping[str, Any]) -> Selection:
    """Return what a watch of the series selects."""
    where = tests_of(fields, (*series.where, *one.where))
    return Selection(one.name, most_ones(fields, one.by), where)


def _threshold_problems(
    at: Place, watch: WatchSpec, step: Fraction, *, signed: bool
) -> list[InitErrorDetails]:
    """What is wrong with the thresholds of a watch that stands `at` this place."""
    return [
        *sign_problems(at, watch.usual, signed=signed),
        *level_problems((*at, "above"), watch.above, below=False, step=step, signed=signed),
        *level_problems((*at, "below"), watch.below, below=True, step=step, signed=signed),
    ]


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


def _deep(depth: Overlap) -> str:
    """Why so many watches are too many for one event, in words."""
    names = ", ".join(depth.names[:_SHOWN]) + (", ..." if len(depth.names) > _SHOWN else "")
    return (
        f"one event may count {depth.number} times at once, in {names}: give these filters that no event passes "
        "together"
    )


def _joined(terms: Iterable[WatchTerms]) -> tuple[WatchTerms, ...]:
    """Terms with one entry for neighbours that differ in nothing but their places: the mechanism is the same."""
    runs = [list(run) for _, run in groupby(terms, key=_but_places)]
    return tuple(
        run[0] if len(run) == 1 else replace(run[0], places=sum(each.places for each in run))
        for run in runs
    )


def _but_places(one: WatchTerms) -> WatchTerms:
    return replace(one, places=1)
