"""What two parts of a pipeline file say together and must not: found all at once.

Rules: a part that is broken is replaced by a sketch of what can be read of it, so that one mistake hides no
other. Places are those of the file, without the tags of unions. The budget is not checked here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails

from stream_dp.pipeline.file.endpoints import Clock, Journal, Source, source_named
from stream_dp.pipeline.file.privacy import Privacy
from stream_dp.records.scalars import problem
from stream_dp.records.schema import FieldSpec
from stream_dp.statistics import Series, statistic_named
from stream_dp.statistics.parts.grouping_problems import tick_problems

IDENTIFYING = ("text", "integer", "category")  # the types of a field that can say whose a record is
_FIELD: TypeAdapter[Any] = TypeAdapter(FieldSpec)
_SERIES: TypeAdapter[Any] = TypeAdapter(Series)
_SOURCE: TypeAdapter[Any] = TypeAdapter(Source)
_PRIVACY: TypeAdapter[Any] = TypeAdapter(Privacy)
_CLOCK: TypeAdapter[Any] = TypeAdapter(Clock)
_JOURNAL: TypeAdapter[Any] = TypeAdapter(Journal)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts, or sketches of them; a field that is declared but broken is None."""

    fields: Mapping[str, Any] | None
    source: Any
    privacy: Any
    clock: Any
    journal: Any
    releases: Any
    series: Sequence[tuple[int, Any]]

    @classmethod
    def salvage(cls, data: Mapping[str, Any]) -> "Parts":
        """What can be read of broken `data`."""
        schema, series = data.get("schema"), data.get("series")
        fields = None
        if isinstance(schema, Mapping):
            fields = {name: _valid(_FIELD, value) for name, value in schema.items()}
        items = enumerate(series if isinstance(series, list) else ())
        return cls(
            fields,
            _part(_SOURCE, data.get("source")),
            _part(_PRIVACY, data.get("privacy")),
            _part(_CLOCK, data.get("clock")),
            _part(_JOURNAL, data.get("journal")),
            data.get("releases"),
            [(i, _series(item)) for i, item in items if isinstance(item, Mapping)],
        )


def _valid(kind: TypeAdapter[Any], value: Any) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError:
        return None


def _part(kind: TypeAdapter[Any], value: Any) -> Any:
    return _valid(kind, value) or _sketch(value)


def _sketch(value: Any) -> SimpleNamespace:
    texts = value.items() if isinstance(value, Mapping) else ()
    return SimpleNamespace(**{name: text for name, text in texts if isinstance(text, str)})


def _series(value: Mapping[str, Any]) -> Any:
    if (series := _valid(_SERIES, value)) is not None:
        return series
    sketch = _sketch(value)
    vars(sketch).update(statistic_named(getattr(sketch, "statistic", None)).sketched(value))
    return sketch


def cross_problems(parts: Parts) -> list[InitErrorDetails]:
    """Everything that two parts say together and must not."""
    problems = [*_world_problems(parts), *_clock_problems(parts), *_user_problems(parts)]
    seen: set[str] = set()
    named = {str(getattr(series, "name", "")): series for _, series in parts.series}
    for index, series in parts.series:
        at, name = ("series", index), getattr(series, "name", None)
        if name in seen:
            problems.append(problem((*at, "name"), f"a series '{name}' is already there"))
        if name is not None:
            seen.add(name)
        problems += series_problems(at, series, parts.fields, parts.clock, parts.privacy)
        problems += _statistic(series).input_problems(at, series, named)
    return problems


def _world_problems(parts: Parts) -> list[InitErrorDetails]:
    found = []
    source, clock, journal = (
        getattr(part, "kind", None) for part in (parts.source, parts.clock, parts.journal)
    )
    known = source_named(source)
    if known is not None and not known.stamped and clock == "wall":
        message = f"a {source} has no append stamps: use replay"
        found.append(problem(("clock", "kind"), message))
    if known is not None and journal == "kafka" and journal not in known.journals:
        message = f"needs a kafka source: use {known.journals[0]}"
        found.append(problem(("journal", "kind"), message))
    if journal == "kafka" and parts.releases is not None:
        found.append(problem(("releases",), "a kafka journal releases to its topic: remove this"))
    return found


def _clock_problems(parts: Parts) -> list[InitErrorDetails]:
    name = getattr(parts.clock, "field", None)
    if name is None or parts.fields is None:
        return []
    if name not in parts.fields:
        return [problem(("clock", "field"), f"'{name}' is not in the schema", parts.fields)]
    field = parts.fields[name]
    if field is not None and field.type != "time":
        return [problem(("clock", "field"), f"'{name}' is a {field.type}, not a time")]
    return []


def _user_problems(parts: Parts) -> list[InitErrorDetails]:
    """What `privacy: {unit: user}` says of a field or of the clock and must not."""
    privacy = parts.privacy
    found = _key_problems(privacy, parts.source)
    if getattr(privacy, "unit", None) != "user":
        return found
    name = getattr(privacy, "user", None)
    if name is not None and parts.fields is not None:
        field = parts.fields.get(name)
        if name not in parts.fields:
            found.append(
                problem(("privacy", "user"), f"'{name}' is not in the schema", parts.fields)
            )
        elif field is not None and field.type not in IDENTIFYING:
            wrong = f"'{name}' is a {field.type}, which names nobody: a {' or '.join(IDENTIFYING)}"
            found.append(problem(("privacy", "user"), wrong))
    return found + _per_problems(privacy, parts.clock)


def _key_problems(privacy: Any, source: Any) -> list[InitErrorDetails]:
    """What the source says of its records' keys is asked for users only, and of the field that names them."""
    keyed_by, user = getattr(source, "keyed_by", None), getattr(privacy, "user", None)
    if keyed_by is None or privacy is None or keyed_by == user:
        return []
    wrong = (
        f"must be the field of privacy.user, which is '{user}'"
        if user is not None
        else "says where a user's records lie, and privacy.unit is event: leave it out"
    )
    return [problem(("source", "keyed_by"), wrong)]


def _per_problems(privacy: Any, clock: Any) -> list[InitErrorDetails]:
    """A public window is a whole number of ticks, and no longer than all of them."""
    per, step, horizon = (
        getattr(part, key, None)
        for part, key in ((privacy, "per"), (clock, "step"), (clock, "horizon"))
    )
    if not isinstance(per, int) or not isinstance(step, int):
        return []
    if per % step:
        wrong = "must be a whole number of ticks: a multiple of clock.step"
    elif isinstance(horizon, int) and per > step * horizon:
        wrong = "is longer than all ticks together: shorten it, or write overall in place of max_events and per"
    else:
        return []
    return [problem(("privacy", "per"), wrong)]


def _statistic(series: Any) -> type[Series]:
    """The statistic of a series, or of a sketch of one."""
    return statistic_named(getattr(series, "statistic", None))


def series_problems(
    at: tuple[str | int, ...],
    series: Any,
    fields: Mapping[str, Any] | None,
    clock: Any,
    privacy: Any,
) -> list[InitErrorDetails]:
    """What a series, or a sketch of it, says beside schema, clock and privacy and must not; `at` is the series' place.

    The clock and privacy may be sketches as well.
    """
    statistic = _statistic(series)
    found = [
        *statistic.problems(at, series, fields),
        *statistic.clock_problems(at, series, clock),
        *statistic.privacy_problems(at, series, privacy),
    ]
    for place, by in statistic.groupings(series):
        found += tick_problems((*at, *place), by, clock)
    return found
