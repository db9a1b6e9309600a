"""Live series and watches, which begin while the engine runs: what a pipeline makes of their definitions.

Rules: a definition is an entry of `series:` or `watch:`, with the same checks, mechanisms and derivations as in the
file. It counts from its first tick on, never earlier events. Its meaning depends only on the definition, its first
tick, the file and, for a watch, the monitor with its present watches. A watch is paid for already, as long as no event
counts in more watches at once than the monitor's noise is made for. These classes implement `engine.proposals`.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stream_dp.core.box import Box
from stream_dp.core.derivation import Derivation
from stream_dp.engine.series import LiveSeries, Meaning, Series
from stream_dp.errors import UsageError
from stream_dp.journal.checkpoint import Watch, Watching
from stream_dp.journal.commit import Created
from stream_dp.mechanisms.watches.block import ArmQuery, DisarmQuery
from stream_dp.pipeline.builder import Chosen, chosen_for
from stream_dp.pipeline.layout import Block, Feature, RowLayout, feature_of, names_of, part_names
from stream_dp.pipeline.problems import with_expected
from stream_dp.pipeline.router import AGAIN, Counting, OpenRouter, Told
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.verdicts import Guessed, Row, judged_alone, only_noise
from stream_dp.pipeline.yaml import canonical_series, load_live, load_series
from stream_dp.records.conditions import tests_of
from stream_dp.statistics import Series as SeriesSpec
from stream_dp.statistics.parts.alarms import Looking
from stream_dp.statistics.parts.choice import ENDLESS, FalseAlarm, noise_of
from stream_dp.statistics.parts.series_spec import entries_of
from stream_dp.statistics.parts.watch_roster import ENDED, Placed, WatchRoster

_NOBODY = WatchRoster((), (), None, touch=2**31)


@dataclass(frozen=True, slots=True)
class PlannedWatch:
    """A watch that would begin, or end; `series` is the monitor as it would be then.

    `query` arms or disarms the `places` places from `place` on.
    """

    name: str
    place: int
    places: int
    query: ArmQuery | DisarmQuery
    series: Series
    router: OpenRouter
    number: int
    block: Block | None
    begins: bool
    definition: bytes = b""
    start: int = 0
    alarm: Callable[[], FalseAlarm | None] = lambda: None

    @property
    def noise(self) -> str:
        alarm = self.alarm()
        return "" if alarm is None else noise_of([alarm])

    @property
    def columns(self) -> slice:
        first = self.series.rows.start + self.place
        return slice(first, first + self.places)

    def require_room(self) -> None:
        if self.begins and isinstance(self.series.asking, WatchRoster):
            self.series.asking.require_short()

    def take(self) -> None:
        if self.begins and self.block is not None:
            told = Told(self.start, self.series.name, self.definition)
            self.router.watch(self.block, self.columns.start, self.number, told)
        elif self.block is not None:
            self.router.unwatch(self.block)
        else:
            self.router.mute(self.columns, self.number)


@dataclass(slots=True)
class LiveSeriesPlanner:
    """Plans live series of one pipeline; `running` has the running ones by number, `entries` the room of each. Those of
    the file as it is now, if any, have their words from `file`.
    """

    spec: PipelineSpec
    router: OpenRouter
    running: dict[int, "PlannedSeries"] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    file: Mapping[str, SeriesSpec] = field(default_factory=dict)

    def propose(
        self, definition: bytes, start: int, meaning: Meaning = Meaning.NOW
    ) -> "PlannedSeries":
        """Derive the series of a definition: an entry of `series:`, in YAML or JSON."""
        spec = _later(self.spec, start)
        series = load_series(definition, spec)
        if meaning is Meaning.FORMER_KEYS:
            series = series.model_copy(update=dict(series.former_keys))
        if (now := self.file.get(series.name)) is not None:
            words = {key: getattr(now, key) for key in series.words if hasattr(now, key)}
            series = series.model_copy(update=words)
        if series.identifier is not None:
            raise UsageError(
                f"statistic: '{series.statistic}' must know the users from the first tick on; put "
                "the series into the first pipeline file"
            )
        feature = feature_of(self.spec, series)
        alone = RowLayout.alone(self.spec, feature)
        if alone.totals(signed=False) or alone.totals(signed=True):
            raise UsageError(
                "user_total: the engine must record each user's total from the first tick on. Put "
                "the series into the first pipeline file, or leave user_total out. shared_total "
                "works here: the engine records privacy.total in any case"
            )
        chosen = chosen_for(spec, series, slice(0, alone.width), meaning=meaning)
        return PlannedSeries(self, spec, start, feature, chosen)

    def received(self, packed: bytes, start: int) -> "PlannedSeries":
        """Return the series that `PlannedSeries.packed` wrote in another process, for ticks from `start` on."""
        parts = pickle.loads(packed)  # noqa: S301 - from a process that this one started
        return PlannedSeries(self, _later(self.spec, start), start, *parts)

    def watch(
        self, live: LiveSeries, definition: bytes, start: int, analyst: str, place: int | None = None
    ) -> PlannedWatch:  # fmt: skip
        """Derive a watch; `place` is where a checkpoint has it."""
        spec, entry, roster = self.spec, self._entry(live), _roster(live)

        def alarm() -> FalseAlarm | None:
            clock = spec.clock
            looking = Looking(clock.step, clock.horizon or ENDLESS, float(spec.confidence))
            return entry.alarm(watch, live.series.mechanism, looking)

        watch = self._read(entry, definition, roster)
        block = self._block(entry, watch)
        ((_, feature),) = block.parts
        names = part_names(spec, watch.name, feature)
        place = roster.room(len(names)) if place is None else place
        after = roster.with_watch(watch, definition, place, names, start, analyst)
        query = ArmQuery(place=place, watch=watch.terms(len(names), spec.clock.step, entry.grain))
        return PlannedWatch(
            watch.name, place, len(names), query, _with(live, after), self.router, live.number, block,
            begins=True, definition=definition, start=start, alarm=alarm,
        )  # fmt: skip

    def unwatch(self, live: LiveSeries, name: str, end: int) -> PlannedWatch:
        roster = _roster(live)
        gone = roster.named(name)
        query = DisarmQuery(place=gone.place, places=gone.places)
        block = self._block(self._entry(live), gone.watch) if gone.added else None
        after = _with(live, roster.without(gone, end))
        return PlannedWatch(
            name, gone.place, gone.places, query, after, self.router, live.number, block, begins=False,
        )  # fmt: skip

    def watching(self, live: LiveSeries) -> Watching | None:
        roster = live.series.asking
        if not isinstance(roster, WatchRoster):
            return None
        closed = tuple(place for place, name in enumerate(roster.names) if name == ENDED)
        added = tuple(_kept(watch) for watch in roster.placed if watch.added or watch.asked)
        gone = tuple(map(_kept, roster.gone))
        return Watching(live.number, closed, added, gone) if closed or added or gone else None

    def watch_again(self, live: LiveSeries, kept: Watching) -> Series:
        entry, first = self._entry(live), _roster(live)
        own = {watch.place: watch.watch for watch in first.placed}
        for place in own.keys() & set(kept.closed):
            live = _taken(live, self.unwatch(live, own[place].name, 0))
        for one in kept.added:
            if one.definition:
                again = self.watch(live, one.definition, one.start or 0, one.analyst, one.place)
                live = _taken(live, again)
        roster, asked = _roster(live), {one.place: one.asked for one in kept.added}
        placed = tuple(
            replace(watch, asked=asked[watch.place]) if asked.get(watch.place) else watch
            for watch in roster.placed
        )
        nobody = replace(first, placed=())
        gone = tuple(
            Placed(
                self._read(entry, one.definition, nobody) if one.definition else own[one.place],
                one.place, one.places, one.definition, one.start, one.analyst, one.end, one.asked,
            )
            for one in kept.gone
        )  # fmt: skip
        return _with(live, replace(roster, placed=placed, gone=gone))

    def _read(self, entry: SeriesSpec, definition: bytes, beside: WatchRoster) -> Any:
        return _watch(self.spec, entry, definition, beside)

    def _entry(self, live: LiveSeries) -> SeriesSpec:
        entries = (*self.spec.series, *(planned.series for planned in self.running.values()))
        return {entry.name: entry for entry in entries}[live.series.name]

    def _block(self, entry: SeriesSpec, watch: Any) -> Block:
        return _block(self.spec, entry, watch)

    def hold(self) -> None:
        self.router.hold()

    def renew(self) -> None:
        self.router.renew()

    def close(self, number: int) -> Mapping[str, Any]:
        self.router.close(number)
        if (planned := self.running.pop(number, None)) is None:
            return {}
        del self.entries[number]
        return planned.series.listed


@dataclass(frozen=True, slots=True)
class PlannedSeries:
    """A derived definition: the series that would see ticks from `start` on; `spec` is the pipeline from there.

    `known` is what another process found its windows to be worth.
    """

    planner: LiveSeriesPlanner
    spec: PipelineSpec
    start: int
    feature: Feature | Block
    chosen: Chosen
    known: Sequence[Row] | None = None

    @property
    def judged(self) -> Sequence[Row]:
        """What its windows are worth by the guesses of the file; this may take a while, so no cut finds it out."""
        if self.known is not None or self.spec.privacy.expect is None:
            return self.known or ()
        names = names_of(self.spec, self.feature)
        return judged_alone(self.spec, self.chosen, names, Guessed(self.spec))

    @property
    def series(self) -> SeriesSpec:
        return self.chosen.spec

    @property
    def definition(self) -> bytes:
        return canonical_series(self.series)

    @property
    def name(self) -> str:
        return self.series.name

    @property
    def derivation(self) -> Derivation:
        return self.chosen.derivation

    @property
    def box(self) -> Box:
        return self.chosen.box

    @property
    def mechanism(self) -> str:
        return self.chosen.fingerprint

    @property
    def error_unit(self) -> str:
        return self.series.error_unit

    @property
    def supposing(self) -> str:
        return self.chosen.choice.supposing

    def predicted(self) -> tuple[int, float]:
        last, error = _last_error(self.spec, self.chosen)
        return self.start + last, error

    def windows(self) -> Mapping[str, float]:
        last, _ = _last_error(self.spec, self.chosen)
        return {name: expected(last) for name, expected in self.chosen.choice.windows.items()}

    @property
    def alarms(self) -> Sequence[Mapping[str, Any]]:
        return [alarm.json() for alarm in self.chosen.choice.alarms]

    @property
    def verdicts(self) -> Sequence[Mapping[str, Any]]:
        return [row.json() for row in self.judged]

    @property
    def noise(self) -> str:
        fires = noise_of(self.chosen.choice.alarms, self.series.price)
        return fires or only_noise(self.judged)

    def at(self, start: int) -> "PlannedSeries | None":
        """Return the same series for ticks from `start` on; None if a horizon makes it another one."""
        if start == self.start:
            return self
        return replace(self, start=start) if self.spec.clock.horizon is None else None

    def packed(self) -> bytes:
        """Return the series as bytes for `LiveSeriesPlanner.received`: errors as numbers, without bounds."""
        choice = self.chosen.choice
        last, error = _last_error(self.spec, self.chosen)
        windows = {name: Foretold(last, width) for name, width in self.windows().items()}
        known = replace(choice, expected=Foretold(last, error), windows=windows, bounds=None)
        return pickle.dumps((self.feature, replace(self.chosen, choice=known), self.judged))

    def place(self, payer: str, running: Sequence[int]) -> int:
        planner = self.planner
        mine = {planner.running[number].name: planner.entries[number] for number in running}
        column = planner.router.place(self.feature)
        entries = self._entries(self._runs(slice(column, column)))
        planner.spec.live_room.require(self.name, entries, payer, mine)
        return column

    def open(self, created: Created) -> Series:
        told = Told(self.start, "", self.definition)
        rows = self.planner.router.open(self.feature, created.column, created.number, told)
        runs = self._runs(rows)
        self.planner.running[created.number] = self
        self.planner.entries[created.number] = self._entries(runs)
        return runs

    def _runs(self, rows: slice) -> Series:
        return self.chosen.series(self.spec, rows, names_of(self.spec, self.feature), self.start)

    def _entries(self, runs: Series) -> int:
        names = names_of(self.spec, self.feature)
        shown = entries_of(len(names), names, len(self.series.views), runs.content_bytes)
        return shown + self.series.work


@dataclass(frozen=True, slots=True)
class Foretold:
    """The error to expect at one tick, computed elsewhere."""

    last: int
    error: float

    def __call__(self, tick: int) -> float:
        if tick != self.last:
            raise ValueError("the error of this live series is known only for its last tick")
        return self.error


def counted(
    spec: PipelineSpec,
    told: Sequence[tuple[int, tuple[int, str, bytes]]],
    muted: Sequence[tuple[int, int]],
    width: int,
) -> Counting:
    """Return what a router counts of which another one has `told`; raise `UsageError` where this version cannot."""
    entries = {entry.name: entry for entry in spec.series}
    added = list[tuple[Feature | Block, int]]()
    for column, (_, of, definition) in sorted(told, key=lambda each: each[1][1] not in ("", AGAIN)):
        if of in ("", AGAIN):
            entry = load_series(definition, spec)
            entries[entry.name] = entry
            added += [] if of else [(feature_of(spec, entry), column)]
        elif of in entries:
            watch = _watch(spec, entries[of], definition, _NOBODY)
            added.append((_block(spec, entries[of], watch), column))
        else:
            raise UsageError(f"watch: there is no series '{of}'")
    return Counting(added, [slice(*columns) for columns in muted], width)


def _watch(spec: PipelineSpec, entry: SeriesSpec, definition: bytes, beside: WatchRoster) -> Any:
    """Return the watch of a definition, which may stand beside those of a roster; raises `UsageError`."""

    def checked(data: Any) -> Any | list[ErrorDetails]:
        try:
            return entry.another(data, beside, spec.fields, spec.clock)
        except ValidationError as error:
            return with_expected(error, type(entry), ("watch", 0))

    return load_live(definition, checked, "watch")


def _block(spec: PipelineSpec, entry: SeriesSpec, watch: Any) -> Block:
    where = tests_of(spec.fields, (*entry.where, *watch.where))
    part = (watch.name, Feature(watch.by, where, entry.amount))
    block = Block(f"{entry.name}/{watch.name}", (part,), 0)
    return replace(block, places=len(part_names(spec, *part)))


def _roster(live: LiveSeries) -> WatchRoster:
    if not isinstance(live.series.asking, WatchRoster):
        raise UsageError("series: only a monitor has watches")
    return live.series.asking


def _with(live: LiveSeries, roster: WatchRoster) -> Series:
    return replace(live.series, keys=roster.names, asking=roster)


def _taken(live: LiveSeries, planned: PlannedWatch) -> LiveSeries:
    planned.take()
    return replace(live, series=planned.series)


def _kept(watch: Placed) -> Watch:
    return Watch(
        watch.definition, watch.place, watch.places, watch.start, watch.analyst, watch.end, dict(watch.asked)
    )  # fmt: skip


def _last_error(spec: PipelineSpec, chosen: Chosen) -> tuple[int, float]:
    """Return (tick, half-width) at the last or farthest predicted tick; for windows the largest half-width."""
    last = (spec.clock.horizon or ENDLESS) - 1
    errors = chosen.choice.windows.values() or (chosen.choice.expected,)
    return last, max(expected(last) for expected in errors)


def _later(spec: PipelineSpec, start: int) -> PipelineSpec:
    """Return the pipeline as a series sees it that starts at this tick: with the rest of the horizon."""
    horizon = spec.clock.horizon
    if horizon is None:
        return spec
    if start >= horizon:
        what = "the pipeline is at its horizon"
        raise UsageError(f"{what}: the pipeline has no tick left for a live series")
    clock = spec.clock.model_copy(update={"horizon": horizon - start})
    return spec.model_copy(update={"clock": clock})
