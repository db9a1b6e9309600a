"""The statistic `monitor`: many watches in one series, each with its own filter and threshold."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.accounting.heaviest import heaviest
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.mechanism import Query
from stream_dp.core.wording import how_many
from stream_dp.engine.messages.addressed import take_steps
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.watches.block import (
    LARGEST_THRESHOLD,
    MOST_HELD,
    ThresholdQuery,
    WatchTerms,
)
from stream_dp.mechanisms.watches.kinds import NONE, Monitor, SumMonitor
from stream_dp.records.amount_units import Clamp, Step, number_problems
from stream_dp.records.conditions import Needs, Where, box_of, tests_of, where_problems
from stream_dp.records.groupings import (
    By,
    Place,
    by_problems,
    decimal_text,
    grouping_text,
    most_ones,
    number_of_keys,
)
from stream_dp.records.scalars import (
    Duration,
    Epsilon,
    FieldName,
    Frozen,
    Name,
    milliseconds,
    problem,
    refuse,
)
from stream_dp.statistics.parts.alarms import (
    Looking,
    OnSums,
    SignedThreshold,
    alarm_of,
    level_problems,
    over_problems,
    sign_problems,
    usual_problems,
    window_terms,
)
from stream_dp.statistics.parts.choice import Choice, FalseAlarm, Setting, steady
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.watch_roster import WatchRoster
from stream_dp.statistics.parts.windows import length_of

Threshold = Annotated[int, Field(ge=1, le=LARGEST_THRESHOLD)]
_Looks = Literal["since_firing", "tick"] | Duration
_OVER = {"since_firing": "", "tick": " in a tick"}


def _over(value: object) -> object:
    if value in ("since_firing", "tick") or (isinstance(value, str) and length_of(value)):
        return value
    raise ValueError("must be 'since_firing', 'tick' or a duration such as 1h")


class WatchSpec(Frozen):
    """An entry of `watch:`: which events count or are added up, by what if anything, and when it fires.

    `over`: the events since it began or last fired, of these the ones in a window, or those of one tick; `below` is
    about windows and single ticks only. `usual` is the count at which it fires by noise alone.
    """

    name: Name
    where: Where = ()
    by: By | None = None
    above: Threshold | None = None
    below: SignedThreshold | None = None
    over: Annotated[str, BeforeValidator(_over, json_schema_input_type=_Looks)] | None = None
    rearm: bool = True
    usual: SignedThreshold | None = None

    @model_validator(mode="after")
    def _one_threshold(self) -> "WatchSpec":
        if (self.above is None) == (self.below is None):
            refuse([problem((), "needs one of above and below, and not both")])
        if self.below is not None and self.over == "since_firing":
            why = "a count since the last firing begins at 0, below every threshold: leave it out to watch single ticks"
            refuse([problem(("over",), why)])
        refuse(usual_problems(self.threshold, self.below is not None, self.usual))
        return self

    @property
    def amount(self) -> None:
        """Records add what they do in its monitor."""
        return

    @property
    def threshold(self) -> int:
        return self.above or self.below or 0

    @property
    def looks_at(self) -> str:
        return self.over or ("since_firing" if self.below is None else "tick")

    @property
    def looks_back(self) -> bool:
        return length_of(self.over) > 0

    def terms(self, entries: int, step: int, unit: Fraction = Fraction(1)) -> WatchTerms:
        """What the mechanism is told of it, for so many entries of rows in this `unit`, and ticks of `step` ms."""
        below, over, units = self.below is not None, self.looks_at, int(self.threshold / unit)
        if over == "since_firing":
            return WatchTerms(units, entries, rearm=self.rearm)
        ticks = 1 if over == "tick" else milliseconds(over) // step
        return window_terms(units, entries, ticks, below=below, rearm=self.rearm)

    @property
    def when(self) -> dict[str, Any]:
        """When it fires, by the keys of its definition, what is left out there too; what it goes by in words."""
        by = {} if self.by is None else {"by": grouping_text(self.by)}
        limit = {"above": self.above} if self.below is None else {"below": self.below}
        return {**by, **limit, "over": self.looks_at, "rearm": self.rearm}

    @property
    def filter(self) -> list[dict[str, Any]]:
        return [
            condition.model_dump(mode="json", by_alias=True, exclude_none=True)
            for condition in self.where
        ]

    @property
    def words(self) -> str:
        side = "above" if self.below is None else "below"
        when = f"{side} {self.threshold:,}"
        tick = _OVER.get(self.looks_at, f" in {self.looks_at}")
        by = "" if self.by is None else f" for each of {grouping_text(self.by)}"
        return f"{when}{tick}{by}" + ("" if self.rearm else ", once")


MOST_NODES = 20_000
"""Nodes of the search for the most entries of an event, for every thousand filters."""


class Selection(NamedTuple):
    """A filter by its name: `ones` is how many entries behind it one event counts in, where it passes `where`."""

    name: str
    ones: int
    where: Needs


class Overlap(NamedTuple):
    """`number` entries at most, and the `names` of filters that (may) reach it together."""

    number: int
    names: tuple[str, ...]


def deepest(filters: Sequence[Selection], fields: Mapping[str, Any]) -> Overlap:
    """Return the most entries that one event can count in, over all filters at once, or more where that takes long."""
    return _most_inside(EVERYTHING, filters, fields)


def beside(selection: Selection, others: Sequence[Selection], fields: Mapping[str, Any]) -> Overlap:
    """Return the most entries that an event of this selection can count in, over it and the others.

    It is never more than `deepest` of all filters, and takes much less work: filters that cannot meet the selection are
    left out.
    """
    return _most_inside(box_of(selection.where, fields), [*others, selection], fields)


def _most_inside(inside: Box, filters: Sequence[Selection], fields: Mapping[str, Any]) -> Overlap:
    """Return the most entries of an event in a box. Messages take steps for it, which they have few of."""
    boxes = [box_of(selection.where, fields) for selection in filters]
    weights = dict.fromkeys(boxes, 0)
    for box, selection in zip(boxes, filters, strict=True):
        weights[box] += selection.ones
    if inside == EVERYTHING:  # filters with the same records are looked at too
        take_steps(len(filters) - len(weights))
    nodes = MOST_NODES * (1 + len(filters) // 1_000)
    most = heaviest(weights, inside, nodes=nodes, step=take_steps)
    chosen = set(most.boxes)
    names = [selection.name for box, selection in zip(boxes, filters, strict=True) if box in chosen]
    return Overlap(most.weight, tuple(names))


def _askers(value: object) -> object:
    if value in ("operator", "anyone"):
        return value
    named = list(value) if isinstance(value, list | tuple) else []
    if not named or not all(isinstance(name, str) for name in named):
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


class MonitorSeries(OnSums, SeriesSpec):
    """Which of many watches fire in a tick. `of` a number, within `clamp` and on a grid of `step`, they look at sums.

    `touch` is the most watches that one event may count in at once, as many as the filters allow where it is left out;
    `most` the room for watches. With `value`, an epsilon of its own, the count of what fires is told too. `ask` are
    those who may ask its watches other thresholds, which may fire, and so begin again or end them, beside the owner.
    """

    shape = Shape.FLAGS
    later = ("ask", "of", "clamp", "step")
    unmeant = ("ask",)

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
        problems = super().own_problems()
        signed, seen = self.perhaps_signed, set[str]()
        for place, watch in enumerate(self.watch):
            if watch.name in seen:
                why = f"a watch '{watch.name}' is already there"
                problems.append(problem(("watch", place, "name"), why))
            seen.add(watch.name)
            problems += _threshold_problems(("watch", place), watch, self.step, signed=signed)
        return [*problems, *self.sum_problems()]

    @property
    def parts(self) -> tuple[WatchSpec, ...]:
        return self.watch

    @property
    def price(self) -> Fraction:
        return self.epsilon + (self.value or 0)

    @property
    def about(self) -> str:
        watches = how_many(len(self.watch), "watch", "watches")
        if self.amount is None:
            return watches
        low, high = map(decimal_text, (self.amount.lowest, self.amount.highest))
        return f"{watches} on sums of {self.of}, each from {low} to {high}"

    @property
    def meaning(self) -> str:
        return f"its events reached its threshold, or fell short of it, {{band}} {self.error_unit}"

    @property
    def parameters(self) -> dict[str, int | str]:
        firing: dict[str, int | str] = {watch.name: watch.words for watch in self.watch[:_TOLD]}
        more = len(self.watch) - _TOLD
        return firing | {"...": f"{more:,} more"} if more > 0 else firing

    def at_share(self, share: Fraction) -> "MonitorSeries":
        value = None if self.value is None else self.value * share
        return self.model_copy(update={"epsilon": self.epsilon * share, "value": value})

    def places(self, entries: int) -> int:
        return min(entries + ROOM, max(entries, MOST_PLACES)) if self.most is None else self.most

    def ones(self, fields: Mapping[str, Any]) -> int:
        return self._overlap(fields).number if self.touch is None else self.touch

    def _overlap(self, fields: Mapping[str, Any]) -> Overlap:
        return deepest([selection(self, watch, fields) for watch in self.watch], fields)

    def choose(self, setting: Setting) -> Choice:
        monitor = self._monitor(setting)
        touched = f"an event counts in at most {setting.ones} of its places at once"
        early = f"in a tick without events, at most {monitor.false_alarms():.2g} watches fire too early on average"
        chosen = steady(monitor, f"each watch is re-armed by itself; {touched}; {early}", setting)
        looking = Looking(setting.step, setting.last + 1, setting.confidence)
        alarms = tuple(self.alarm(watch, monitor, looking) for watch in self.watch[:_TOLD])
        return replace(chosen, alarms=alarms).in_steps(self.step)

    def _monitor(self, setting: Setting) -> Monitor | SumMonitor:
        entries = zip(self.watch, setting.parts, strict=True)
        terms = _joined(watch.terms(n, setting.step, self.step) for watch, n in entries)
        plain, value = (setting.width, self.epsilon, setting.neighbors, terms), self.value or NONE
        if self.amount is None:
            return Monitor(*plain, setting.ones, value)
        return SumMonitor(*plain, *self.amount.units, setting.ones, value)

    def alarm(
        self, watch: WatchSpec, monitor: Monitor | SumMonitor, looking: Looking
    ) -> FalseAlarm:
        terms, level = watch.terms(1, looking.step, self.step), (watch.threshold, watch.usual)
        keyed, of = watch.by is not None, self.of
        return alarm_of(watch.name, monitor, terms, level, self.step, looking, keyed=keyed, of=of)

    def counts_band(self, mechanism: Monitor | SumMonitor, confidence: float) -> int | None:
        return None if self.value is None else mechanism.value_band(confidence)

    def asking(
        self, keys: Sequence[str], mechanism: Monitor | SumMonitor, counts_band: int | None
    ) -> WatchRoster:
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
        if not isinstance(query, ThresholdQuery):
            return None
        return mechanism.ask_band(query.place, updates, state, confidence)

    @property
    def askers(self) -> tuple[str, ...] | None:
        return None if self.ask == "anyone" else () if self.ask == "operator" else tuple(self.ask)

    def another(self, data: Any, asking: Any, fields: Mapping[str, Any], clock: Any) -> WatchSpec:
        """Return one more watch; refuse one where an event of it may count in `touch` others."""
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

    def conditions_as(self, meant: Any) -> dict[str, Any]:
        watches = [
            {
                **watch.model_dump(mode="json", exclude={"where", "usual"}),
                "where": [meant(condition) for condition in watch.where],
            }
            for watch in self.watch
        ]
        return {**super().conditions_as(meant), "watch": watches}

    def groupings(self) -> Iterator[tuple[Place, By]]:
        for place, watch in enumerate(self.watch):
            if watch.by is not None:
                yield ("watch", place), watch.by

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        problems = super().problems(rest)
        for place, watch in enumerate(self.watch):
            problems += where_problems(("watch", place), watch.where, rest.fields)
            problems += over_problems(("watch", place), watch.over, rest.clock)
        problems += [] if self.of is None else number_problems(self.of, rest.fields)
        return problems or self._places_problems(rest.fields)

    def _places_problems(self, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
        problems = []
        if self.touch is not None and (depth := self._overlap(fields)).number > self.touch:
            why = f"is {self.touch}, but {_deep(depth)}, or raise it to {depth.number}"
            problems.append(problem(("touch",), why))
        needed = sum(number_of_keys(fields, watch.by) for watch in self.watch)
        room, key = (MOST_PLACES, "watch") if self.most is None else (self.most, "most")
        if needed > room:
            why = f"these watches need {needed} places, one for each value of their fields, and there are {room}"
            problems.append(problem((key,), why))
        return problems


def selection(series: MonitorSeries, watch: WatchSpec, fields: Mapping[str, Any]) -> Selection:
    where = tests_of(fields, (*series.where, *watch.where))
    return Selection(watch.name, most_ones(fields, watch.by), where)


def _threshold_problems(
    at: Place, watch: WatchSpec, step: Fraction, *, signed: bool
) -> list[InitErrorDetails]:
    return [
        *sign_problems(at, watch.usual, signed=signed),
        *level_problems((*at, "above"), watch.above, below=False, step=step, signed=signed),
        *level_problems((*at, "below"), watch.below, below=True, step=step, signed=signed),
    ]


def _held_problems(
    watches: Sequence[WatchSpec], fields: Mapping[str, Any], step: int
) -> list[InitErrorDetails]:
    terms = [
        watch.terms(number_of_keys(fields, watch.by), step) for watch in watches if watch.looks_back
    ]
    held = sum(term.window * term.places for term in terms)
    if not watches[-1].looks_back or held <= MOST_HELD:
        return []
    why = f"the windows of these watches would hold {held:,} numbers, more than {MOST_HELD:,}: name a shorter one"
    return [problem(("over",), why)]


def _deep(depth: Overlap) -> str:
    names = ", ".join(depth.names[:_SHOWN]) + (", ..." if len(depth.names) > _SHOWN else "")
    return (
        f"one event may count {depth.number} times at once, in {names}: give these filters that no event passes "
        "together"
    )


def _joined(terms: Iterable[WatchTerms]) -> tuple[WatchTerms, ...]:
    """Join neighbours that differ in nothing but their places: the mechanism is the same."""
    runs = [list(run) for _, run in groupby(terms, key=lambda term: replace(term, places=1))]
    return tuple(replace(run[0], places=sum(term.places for term in run)) for run in runs)
