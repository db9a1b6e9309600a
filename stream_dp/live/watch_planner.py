"""Watches that begin and end while their monitor runs: what a pipeline makes of a message about a watch.

Rules: a watch counts from the tick behind its cut on, never earlier events. Its cost is paid already, as long as no
event counts in more watches at once than the monitor's noise is made for. The meaning of a definition depends only
on the definition, the monitor and the present watches. This file knows no statistic by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.messages import Query
from stream_dp.engine.registry import LiveSeries
from stream_dp.engine.series import Series
from stream_dp.errors import UsageError
from stream_dp.mechanisms.watches.watch_messages import ArmQuery, DisarmQuery
from stream_dp.pipeline.file.problems import with_expected
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.pipeline.file.yaml import load_live
from stream_dp.pipeline.routing.layout import Block, Feature, part_names
from stream_dp.pipeline.routing.open_router import OpenRouter
from stream_dp.records.conditions import tests_of
from stream_dp.statistics import Series as SeriesSpec
from stream_dp.statistics.choice.choice import ENDLESS
from stream_dp.statistics.parts.alarms import Looking, daily
from stream_dp.statistics.parts.false_alarm import FalseAlarm, noise_of
from stream_dp.statistics.parts.watch_roster import WatchRoster


@dataclass(frozen=True, slots=True)
class PlannedWatch:
    """A watch that would begin, or end; `series` is the monitor as it would be then.

    It implements `engine.proposals.WatchProposal`: `query` arms or disarms the `places` places from `place` on.
    """

    name: str
    place: int
    places: int
    query: Query
    series: Series
    router: OpenRouter
    number: int
    block: Block | None
    begins: bool
    alarm: Callable[[], FalseAlarm | None] = lambda: None

    @property
    def noise(self) -> str:
        """Why it would fire mostly by noise, and which threshold would help.

        Empty if it would not, or if it ends.
        """
        alarm = self.alarm()
        return "" if alarm is None else noise_of([alarm])

    @property
    def columns(self) -> slice:
        """The columns of the tick row where its events count."""
        first = self.series.rows.start + self.place
        return slice(first, first + self.places)

    def require_room(self) -> None:
        """Do nothing if the monitor's room for watches in messages was computed for names of this length.

        Raises:
            NoRoom: the names are longer.
        """
        if self.begins and isinstance(self.series.asking, WatchRoster):
            self.series.asking.require_short()

    def take(self) -> None:
        """Begin to count its events, or stop counting them."""
        if self.begins and self.block is not None:
            self.router.watch(self.block, self.columns.start, self.number)
        elif self.block is not None:
            self.router.unwatch(self.block)
        else:
            self.router.mute(self.columns, self.number)


@dataclass(frozen=True, slots=True)
class WatchPlanner:
    """Plans the watches of the series `entry` of the pipeline, which runs as `live`."""

    spec: PipelineSpec
    router: OpenRouter
    entry: SeriesSpec
    live: LiveSeries

    def begun(self, definition: bytes, start: int, analyst: str) -> PlannedWatch:
        """Derive a watch that an analyst adds, from its definition in YAML or JSON.

        Raises:
            UsageError: the series cannot have this watch; every problem is named with its key.
        """
        roster = self._roster()
        watch = load_live(definition, partial(self._checked, roster=roster), "watch")
        block = self._block(watch)
        ((_, feature),) = block.parts
        names = part_names(self.spec, watch.name, feature)
        place = roster.room(len(names))
        after = roster.with_watch(watch, place, names, start, analyst)
        terms = watch.terms(len(names), self.spec.clock.step, self.entry.grain)
        query = ArmQuery(place=place, watch=terms)
        planned = self._planned(watch.name, place, len(names), query, after, block, begins=True)
        return replace(planned, alarm=partial(self._alarm, watch))

    def ended(self, name: str, end: int) -> PlannedWatch:
        """Derive the end of a watch.

        Raises:
            UsageError: no watch has this name.
        """
        roster = self._roster()
        gone = roster.named(name)
        query = DisarmQuery(place=gone.place, places=gone.places)
        block = self._block(gone.watch) if gone.added else None
        return self._planned(
            name, gone.place, gone.places, query, roster.without(gone, end), block, begins=False
        )

    def _alarm(self, watch: Any) -> FalseAlarm | None:
        """Return how likely the watch fires by noise on a day."""
        clock = self.spec.clock
        looking = Looking(daily(clock.step), clock.horizon or ENDLESS, float(self.spec.confidence))
        return self.entry.alarm(watch, self.live.series.mechanism, clock.step, looking)

    def _checked(self, data: Any, roster: WatchRoster) -> Any | list[ErrorDetails]:
        try:
            return self.entry.another(data, roster, self.spec.fields, self.spec.clock)
        except ValidationError as error:
            return with_expected(error, type(self.entry), ("watch", 0))

    def _block(self, watch: Any) -> Block:
        where = tests_of(self.spec.fields, (*self.entry.where, *watch.where))
        one = (watch.name, Feature(watch.by, where, self.entry.amount))
        block = Block(f"{self.entry.name}/{watch.name}", (one,), 0)
        return replace(block, places=len(part_names(self.spec, *one)))

    def _planned(
        self,
        name: str,
        place: int,
        places: int,
        query: Query,
        roster: WatchRoster,
        block: Block | None,
        *,
        begins: bool,
    ) -> PlannedWatch:
        series = replace(self.live.series, keys=roster.names, asking=roster)
        return PlannedWatch(
            name, place, places, query, series, self.router, self.live.number, block, begins
        )

    def _roster(self) -> WatchRoster:
        if not isinstance(self.live.series.asking, WatchRoster):
            raise UsageError("series: takes no watches; a monitor does")
        return self.live.series.asking
