"""What two parts of a pipeline file say together and must not: found all at once.

Rules: each check takes the parts that are valid on their own and skips what is not, so that one mistake hides
no other. Places are those of the file, without the tags of unions. The budget is not checked here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails

from stream_dp.pipeline.series import CategoryField, FieldSpec, Series, TimeField, typed
from stream_dp.pipeline.values import problem
from stream_dp.pipeline.world import (
    Clock,
    FileSource,
    Journal,
    KafkaJournal,
    ReleasesFile,
    ReplayClock,
    Source,
    WallClock,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that are valid on their own; a field that is declared but broken is None."""

    fields: Mapping[str, Any] | None
    source: Any = None
    clock: Any = None
    journal: Any = None
    releases: Any = None
    series: Sequence[tuple[int, Any]] = ()

    @classmethod
    def salvage(cls, data: Mapping[str, Any]) -> "Parts":
        """What of broken `data` is valid on its own."""
        schema, series = data.get("schema"), data.get("series")
        fields = None
        if isinstance(schema, Mapping):
            fields = {name: _part(FieldSpec, value) for name, value in schema.items()}
        items = enumerate(series if isinstance(series, list) else ())
        return cls(
            fields,
            _part(Source, data.get("source")),
            _part(Clock, data.get("clock")),
            _part(Journal, data.get("journal")),
            _part(ReleasesFile, data.get("releases")),
            [(i, part) for i, item in items if (part := _part(Series, item)) is not None],
        )


def _part(kind: Any, value: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return None


def cross_problems(parts: Parts) -> list[InitErrorDetails]:
    """Everything that two parts say together and must not."""
    problems = [*_world_problems(parts), *_clock_problems(parts)]
    seen: set[str] = set()
    for index, series in parts.series:
        at = ("series", index)
        if series.name in seen:
            problems.append(problem((*at, "name"), f"a series '{series.name}' is already there"))
        seen.add(series.name)
        problems += _series_problems(at, series, parts.fields)
    return problems


def _world_problems(parts: Parts) -> list[InitErrorDetails]:
    found = []
    if isinstance(parts.source, FileSource):
        if isinstance(parts.clock, WallClock):
            found.append(problem(("clock", "kind"), "a file has no append stamps: use replay"))
        if isinstance(parts.journal, KafkaJournal):
            found.append(problem(("journal", "kind"), "needs a kafka source: use sqlite"))
    if isinstance(parts.journal, KafkaJournal) and parts.releases is not None:
        found.append(problem(("releases",), "a kafka journal releases to its topic: remove this"))
    return found


def _clock_problems(parts: Parts) -> list[InitErrorDetails]:
    if not isinstance(parts.clock, ReplayClock) or parts.fields is None:
        return []
    name = parts.clock.field
    if name not in parts.fields:
        return [problem(("clock", "field"), f"'{name}' is not in the schema")]
    field = parts.fields[name]
    if field is not None and not isinstance(field, TimeField):
        return [problem(("clock", "field"), f"'{name}' is a {field.type}, not a time")]
    return []


def _series_problems(
    at: tuple[str | int, ...], series: Any, fields: Mapping[str, Any] | None
) -> list[InitErrorDetails]:
    found = []
    if getattr(series, "method", "tree") != "tree" and series.expected_events is None:
        message = f"method {series.method} needs expected_events, a public guess"
        found.append(problem((*at, "expected_events"), message))
    if fields is None:
        return found
    if (by := getattr(series, "by", None)) is not None:
        if by not in fields:
            found.append(problem((*at, "by"), f"'{by}' is not in the schema"))
        elif fields[by] is not None and not isinstance(fields[by], CategoryField):
            found.append(problem((*at, "by"), f"'{by}' is a {fields[by].type}, not a category"))
    for place, condition in enumerate(series.where):
        found += _condition_problems((*at, "where", place), condition, fields)
    return found


def _condition_problems(
    at: tuple[str | int, ...], condition: Any, fields: Mapping[str, Any]
) -> list[InitErrorDetails]:
    if condition.field not in fields:
        return [problem((*at, "field"), f"'{condition.field}' is not in the schema")]
    if (field := fields[condition.field]) is None:
        return []
    found = []
    for place, text in enumerate(condition.texts):
        try:
            typed(field, condition.operator, text)
        except ValueError as error:
            inner = (place,) if condition.operator == "one_of" else ()
            found.append(problem((*at, condition.operator, *inner), str(error)))
    return found
