"""A pipeline as a value: what is read, who is protected, and which series are released.

Rules: everything is public and declared; nothing comes from data. Problems are reported in two passes: first all
problems of the single parts; if there are none, all conflicts between the parts. Whether the series fit the budget
is checked by the ledger. This file opens no file.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails

from stream_dp.core.box import Box
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.time import TickGrid, TimeForm
from stream_dp.core.wording import how_many
from stream_dp.engine.messages.conversation import PER_TICK
from stream_dp.errors import UsageError
from stream_dp.pipeline.derivations import Protection
from stream_dp.pipeline.problems import explained
from stream_dp.records.amount_units import number_problems
from stream_dp.records.conditions import box_of, tests_of, where_problems
from stream_dp.records.endpoints import (
    Clock,
    Journal,
    KafkaSourceSpec,
    Releases,
    ReplayClock,
    Source,
    WallClock,
    source_named,
)
from stream_dp.records.groupings import decimal_text, zones_of
from stream_dp.records.privacy import TOTAL, TOTALS, WITH_OWN_DELTA, Privacy
from stream_dp.records.scalars import Confidence, FieldName, Frozen, Name, problem, refuse
from stream_dp.records.schema import (
    FieldSpec,
    ListField,
    TimeField,
    beside_problems,
    field_problems,
    formula_problems,
    offsets,
    path_problems,
)
from stream_dp.statistics import Series
from stream_dp.statistics.parts.series_spec import MOST_SERIES, SHARED_SERIES, LiveRoom, Rest

# The UTC offsets of the time zones by which a pipeline's series group are part of its fingerprint, so another version
# of the time zone database makes another pipeline. A series created later has no fingerprint, so it may only name zones
# that the file names.
_CENTURY = TickGrid(946_684_800_000, 86_400_000, 36_525)  # the days from 2000 to 2099


def zones_in(series: Iterable[Series]) -> list[str]:
    groupings = (by for item in series for _, by in item.groupings())
    return sorted({zone for by in groupings for zone in zones_of(by)})


def zone_offsets(zones: Iterable[str], clock: Clock) -> dict[str, list[tuple[int, int]]]:
    """Return the UTC offsets of each zone over the declared grid; under a wall clock, over this century."""
    grid = clock.grid if isinstance(clock, ReplayClock) else _CENTURY
    return {name: offsets(ZoneInfo(name), grid) for name in zones}


_SERIES: TypeAdapter[Series] = TypeAdapter(Series)
_IDENTIFYING = ("text", "integer", "category")  # field types that can identify a record's user
_OF_THE_FILE = (
    "is made of releases and belongs into the pipeline file; of a pipeline that runs, whoever reads the releases can "
    "divide them, which costs nothing"
)
_OTHER_ZONE = (
    "a series created later goes by a zone only where one of the file's series names it too"
)
KEEPS_ITS_TICK = "a replacement keeps its tick (moves: within_tick)"


def _version(value: object) -> object:
    return 1 if value == "1" else value


def _knowing(series: tuple[Series, ...], info: ValidationInfo) -> tuple[Series, ...]:
    """Fit the series' defaults to the schema, and give those that are made of others access to these."""
    fitted = [item.fitted(info.data.get("fields", {})) for item in series]
    named = {item.name: item for item in fitted}
    return tuple(item.knowing(named) for item in fitted)


class Queries(Frozen):
    """What one analyst may ask for at most, and the operator; public rules, which may be changed between runs.

    So many messages are executed between two ticks (`per_tick`), so many live `series` run at once, but no more than an
    even share of `total_series`, with so many `entries` together: where that is left out, an even share of 100,000.
    """

    per_tick: Annotated[int, Field(ge=1, le=100_000)] = PER_TICK
    series: Annotated[int, Field(ge=1, le=10_000)] = MOST_SERIES
    total_series: Annotated[int, Field(ge=1, le=1_000_000)] = SHARED_SERIES
    entries: Annotated[int | None, Field(ge=1, le=1_000_000)] = None


class PipelineSpec(Frozen):
    """The whole pipeline file. `fields` is its `schema:`."""

    version: Annotated[
        Literal[1], BeforeValidator(_version, json_schema_input_type=Literal[1, "1"])
    ]
    name: Name
    public_data: bool = False
    source: Source
    fields: Annotated[dict[FieldName, FieldSpec], Field(alias="schema", min_length=1)]
    privacy: Privacy
    clock: Clock
    journal: Journal
    releases: Releases | None = None
    series: Annotated[
        tuple[Series, ...], Field(min_length=1, max_length=1000), AfterValidator(_knowing)
    ]
    confidence: Confidence = Fraction(19, 20)
    queries: Queries = Queries()

    def read_by(self, processes: int | None) -> "PipelineSpec":
        """Return the pipeline whose topic so many processes read (0: as many as processors; None: as the file says).

        Raises `UsageError` where the source is no topic.
        """
        if processes is None:
            return self
        if not isinstance(self.source, KafkaSourceSpec):
            if processes == 1:
                return self
            raise UsageError(
                f"--processes: the source of {self.name} is a {self.source.kind}, which only one "
                "process can read. Several processes can read a topic with several partitions"
            )
        if self.source.workers is not None:
            raise UsageError(
                f"--processes: the source of {self.name} is read by workers (source.workers), not by "
                "processes of the engine"
            )
        source = self.source.model_copy(update={"processes": processes or "cores"})
        return self.model_copy(update={"source": source})

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        """Fill in `journal` and `releases`, which depend on the source and the name."""
        if not isinstance(data, Mapping):
            return data
        filled, name = dict(data), data.get("name")
        source = source_named(_kind(data.get("source")))
        kafka = source is not None and source.journals[0] == "kafka"
        sqlite = {"kind": "sqlite", "path": f"{name}.journal"}
        filled.setdefault("journal", {"kind": "kafka"} if kafka else sqlite)
        if _kind(filled["journal"]) == "sqlite":
            releases = filled.get("releases", {})
            if isinstance(releases, Mapping):
                filled["releases"] = {"path": f"{name}.releases.jsonl", **releases}
        return filled

    @model_validator(mode="after")
    def _together(self) -> "PipelineSpec":
        problems = [
            *path_problems(self.fields),
            *formula_problems(self.fields),
            *self._source_problems(),
            *self._worker_problems(),
            *self._clock_problems(),
            *self._user_problems(),
            *self._guess_problems(),
            *self._moves_problems(),
            *self._analyst_problems(),
        ]
        named = {series.name: series for series in self.series}
        seen: set[str] = set()
        for place, series in enumerate(self.series):
            wrong = [*series_problems(series, self), *series.input_problems(named)]
            if series.name in seen:
                wrong.append(problem(("name",), f"a series '{series.name}' is already there"))
            seen.add(series.name)
            problems += [{**error, "loc": ("series", place, *error["loc"])} for error in wrong]
        refuse(problems)
        return self

    def _source_problems(self) -> Iterator[InitErrorDetails]:
        source, user = self.source, self.privacy.user
        if not source.stamped and self.clock.kind == "wall":
            yield problem(("clock", "kind"), f"a {source.kind} has no append stamps: use replay")
        if self.journal.kind == "kafka":
            if "kafka" not in source.journals:
                why = f"needs a kafka source: use {source.journals[0]}"
                yield problem(("journal", "kind"), why)
            if self.releases_path is not None:
                why = "a kafka journal releases to its topic: remove this"
                yield problem(("releases", "path"), why)
        keyed_by = source.keyed_by if isinstance(source, KafkaSourceSpec) else None
        if keyed_by is not None and keyed_by != user:
            why = (
                "says where a user's records lie, but privacy.unit is event: leave it out"
                if user is None
                else f"must be the field of privacy.user, which is '{user}'"
            )
            yield problem(("source", "keyed_by"), why)
        if not isinstance(source, KafkaSourceSpec):
            yield from beside_problems(self.fields)
        elif source.values and self.clock.kind == "replay":
            why = "a replay clock reads what `stream-dp replay` writes, which is plain JSON: leave it out"
            yield problem(("source", "values"), why)

    def _worker_problems(self) -> Iterator[InitErrorDetails]:
        source, at = self.source, ("source", "workers")
        if not isinstance(source, KafkaSourceSpec) or source.workers is None:
            return
        if source.processes != 1:
            yield problem(
                ("source", "processes"), "workers read the topic: leave one of the two out"
            )
        if self.journal.kind != "kafka":
            yield problem(at, "need a kafka journal, whose lease the rows' layout is written under")

    def _clock_problems(self) -> Iterator[InitErrorDetails]:
        if not isinstance(self.clock, WallClock):
            at, name = ("clock", "field"), self.clock.field
            yield from field_problems(at, name, self.fields, ("time",), ", not a time")

    def _user_problems(self) -> Iterator[InitErrorDetails]:
        privacy, step, horizon = self.privacy, self.clock.step, self.clock.horizon
        if privacy.user is None:
            return
        nobody = f", which names nobody: a {' or '.join(_IDENTIFYING)}"
        at, per = ("privacy", "user"), privacy.per
        yield from field_problems(at, privacy.user, self.fields, _IDENTIFYING, nobody)
        if privacy.key is not None:
            no_key = f", but a cap needs a {' or '.join(_IDENTIFYING)}"
            yield from field_problems(
                ("privacy", "key"), privacy.key, self.fields, _IDENTIFYING, no_key
            )
        yield from self._total_problems()
        if per is not None and per % step:
            why = "must be a whole number of ticks: a multiple of clock.step"
            yield problem(("privacy", "per"), why)
        elif per is not None and horizon is not None and per > step * horizon:
            why = "is longer than all ticks together: shorten it, or write overall in place of max_events and per"
            yield problem(("privacy", "per"), why)

    def _total_problems(self) -> Iterator[InitErrorDetails]:
        for at, total in enumerate(self.privacy.shared):
            place = ("privacy", *((TOTALS, at) if self.privacy.totals else (TOTAL,)))
            yield from number_problems(total.of, self.fields, (*place, "of"))
            events = self.privacy.most_events(self.clock)
            most = events * total.clamp[1]
            if total.at_most >= most:
                why = (
                    f"is never reached: the {how_many(events, 'event')} of a user that count add at most "
                    f"{decimal_text(most)}: leave it out, or give less"
                )
                yield problem((*place, "at_most"), why)

    def _guess_problems(self) -> Iterator[InitErrorDetails]:
        guesses = self.privacy.expect
        if guesses is None:
            return
        amounts = [item for item in self.counted if item.amount is not None]
        summed = {item.name for item in amounts if item.typical(None) is not None}
        counting = {item.name: item.views or ("",) for item in self.counted}
        named = {"passing": {*counting}, "amounts": summed, "typical": {*counting}}
        for key, known in named.items():
            for name in getattr(guesses, key):
                if name not in known:
                    what = "sum" if key == "amounts" else "series that counts records"
                    why = f"is no {what} of this file"
                    yield problem(("privacy", "expect", key, name), why, known)
        for name, windows in guesses.typical.items():
            shown = counting.get(name, tuple(windows))
            for window in windows:
                if window not in shown and (window or len(shown) > 1):
                    why = f"names no window of {name}: it has {', '.join(shown)}"
                    yield problem(("privacy", "expect", "typical", name), why)

    def _analyst_problems(self) -> Iterator[InitErrorDetails]:
        for at, analyst in enumerate(self.privacy.analysts):
            place = ("privacy", "analysts", at)
            yield from where_problems(place, analyst.where, self.fields)
            for number, condition in enumerate(analyst.where):
                if condition.field is None:
                    why = "must be a comparison of one field, so that it sets records apart"
                    yield problem((*place, "where", number), why)
                elif isinstance(self.fields.get(condition.field), ListField):
                    why = "a condition on a list sets no records apart: use another field"
                    yield problem((*place, "where", number, "field"), why)

    def _moves_problems(self) -> Iterator[InitErrorDetails]:
        if self.privacy.moves == "any_tick":
            return
        if self.privacy.neighbors is not Neighbors.REPLACE:
            why = f"neighbors {self.privacy.neighbors} has no replacement that moves: leave it out"
            yield problem(("privacy", "moves"), why)
        elif isinstance(self.clock, WallClock):
            why = "on a wall clock the broker's stamp says the tick, so no replacement moves: leave it out"
            yield problem(("privacy", "moves"), why)

    @property
    def counted(self) -> tuple[Series, ...]:
        """The series that count records, each by a mechanism of its own."""
        return tuple(item for item in self.series if not item.inputs)

    @property
    def releases_path(self) -> Path | None:
        """The file of releases; None where they go to a topic."""
        return None if self.releases is None else self.releases.path

    @property
    def in_order(self) -> bool:
        """Whether releases have the values of keys in their order, in place of by key."""
        return self.releases is not None and self.releases.values == "array"

    @property
    def relation(self) -> Neighbors:
        """The neighbouring relation: the declared one, and whether the clock makes the tick part of an event."""
        privacy = self.privacy
        own = isinstance(self.clock, ReplayClock) and privacy.moves == "any_tick"
        if own and privacy.neighbors is Neighbors.REPLACE:
            return Neighbors.REPLACE_ANY_TICK
        return privacy.neighbors

    @property
    def partitions(self) -> dict[str, Box]:
        """What records the series of each analyst may see, by name."""
        return {
            analyst.name: box_of(tests_of(self.fields, analyst.where), self.fields)
            for analyst in self.privacy.analysts
        }

    @property
    def protection(self) -> Protection:
        """Who is protected, by relation and unit; every mechanism's guarantee is derived for it."""
        privacy = self.privacy
        if privacy.unit == "event":
            return Protection(self.relation)
        return Protection(
            self.relation, Users(privacy.most_events(self.clock), privacy.window_ticks(self.clock))
        )

    @property
    def live_room(self) -> LiveRoom:
        """Limits of the live series of the operator, and of each analyst, at one time."""
        asked, ledgers = self.queries, 1 + len(self.privacy.analysts)
        return LiveRoom.of(ledgers, asked.series, asked.total_series, asked.entries)

    @property
    def condition(self) -> str | None:
        """The assumption of the guarantee that the file states, in words; None without one."""
        return KEEPS_ITS_TICK if self.privacy.moves == "within_tick" else None

    @property
    def own_times(self) -> TimeForm:
        """The form of the times by which a replay clock counts records; the default under a wall clock."""
        named = self.fields.get(self.clock.field) if isinstance(self.clock, ReplayClock) else None
        return named.form if isinstance(named, TimeField) else TimeForm()


def _kind(part: Any) -> str | None:
    """The kind may not be a text, and `part` may be a model already."""
    kind = part.get("kind") if isinstance(part, Mapping) else getattr(part, "kind", None)
    return kind if isinstance(kind, str) else None


def diagnose(data: Any, context: Any = None) -> PipelineSpec | list[ErrorDetails]:
    """Validate `data`; return all problems of single parts, or if there are none, all conflicts between parts."""
    try:
        return PipelineSpec.model_validate(data, context=context)
    except ValidationError as error:
        return explained(error, data, PipelineSpec)


def diagnose_series(data: Any, spec: PipelineSpec) -> Series | list[ErrorDetails]:
    """Validate one series beside the rest of `spec`, or return all its problems."""
    try:
        series = _SERIES.validate_python(data).fitted(spec.fields)
        wrong = series_problems(series, spec, live=True)
        wrong += [problem(("statistic",), _OF_THE_FILE)] if series.inputs else []
        known = set(zones_in(spec.series))
        wrong += [
            problem((*at, "by"), _OTHER_ZONE)
            for at, by in series.groupings()
            if not known.issuperset(zones_of(by))
        ]
        refuse(wrong)
    except ValidationError as error:
        return explained(error, data, Series)
    return series


def series_problems(
    series: Series, spec: PipelineSpec, *, live: bool = False
) -> list[InitErrorDetails]:
    """Return what is wrong with a series beside the rest of the file; a `live` one has no part of its first block."""
    privacy = spec.privacy
    problems = series.problems(Rest(spec.fields, spec.clock, privacy))
    known = {analyst.name for analyst in privacy.analysts}
    for place, name in enumerate(series.askers or ()):
        if name not in known:
            problems.append(
                problem(("ask", place), f"'{name}' is not listed in privacy.analysts", known)
            )
    shared = Fraction(0) if live and privacy.filter in WITH_OWN_DELTA else privacy.stated_delta
    return [*problems, *_delta_problems(series, privacy, shared)]


WITH_A_DELTA = "gaussian", "correlated"  # values of `method` and `counter` with Gaussian noise


def _delta_problems(
    series: Series, privacy: Privacy, shared: Fraction
) -> Iterator[InitErrorDetails]:
    """Yield what is wrong with a series' delta, or with a method or inner counter that needs one and has none."""
    # keys that some statistics have
    named = ((key, getattr(series, key, None)) for key in ("method", "counter"))
    key, value = next((pair for pair in named if pair[1] in WITH_A_DELTA), (None, None))
    if series.delta and (key is None or privacy.filter not in WITH_OWN_DELTA):
        why = "its noise costs no delta; only methods gaussian and correlated and counter gaussian do: leave it out"
        if key is not None:
            why = f"filter {privacy.filter} charges no series a delta of its own: leave it out"
        yield problem(("delta",), why)
    if key is None:
        return
    if not series.delta and not shared:
        wanted = (
            "give the series one, such as delta: 1e-9, or set privacy.first_block_delta"
            if privacy.filter in WITH_OWN_DELTA
            else "name another filter (zcdp, renyi, gdp) and a delta"
        )
        why = f"{key} {value} needs a delta, and filter {privacy.filter} grants none: {wanted}, or another {key}"
        yield problem((key,), why)
    elif key == "counter" and privacy.filter == "gdp":
        why = (
            "counter gaussian makes a composite, which has no finite communication ([HSV] Def 14.4), so filter gdp "
            "cannot admit it: name filter zcdp or renyi, or counter tree"
        )
        yield problem((key,), why)
