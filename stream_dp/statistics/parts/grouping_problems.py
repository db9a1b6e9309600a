"""What `by` and the schema say together and must not, and what can be read of a broken one.

Rules: every problem has its place in the file. A field that is declared but broken is None: nothing is said of it.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.records.groupings import (
    MOST_ENTRIES,
    By,
    Edges,
    decimal_text,
    edge_value,
    grouping_fields,
    longest_tick,
    number_of_keys,
    parts_of,
)
from stream_dp.records.scalars import problem, valid_or_none

_BY: TypeAdapter[Any] = TypeAdapter(By)
_Place = tuple[str | int, ...]


def grouping_sketched(value: Any) -> Any:
    """Return what `by` says in a broken entry; None where it is broken itself."""
    return None if value is None else valid_or_none(_BY, value)


def by_problems(at: _Place, by: Any, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
    """Return what `by` and the schema say together and must not; `at` is the place of its entry."""
    if by is None:
        return []
    here, parts = (*at, "by"), parts_of(by)
    found = []
    for place, part in enumerate(parts):
        inner = (*here, place) if isinstance(by, tuple) else here
        found += _part_problems(inner, part, fields)
    if found or any(fields[name] is None for name in grouping_fields(by)):
        return found
    entries = number_of_keys(fields, by)
    if len(parts) > 1 and entries > MOST_ENTRIES:
        why = f"these have {entries:,} entries together, and {MOST_ENTRIES:,} is the most"
        return [problem(here, why)]
    return []


def rank_problems(
    at: _Place, rank: Any, by: Any, fields: Mapping[str, Any] | None
) -> list[InitErrorDetails]:
    """Return that a rank, or a number of ranks, which stands at `at`, is beyond the entries; nothing of broken ones."""
    if fields is None or not isinstance(rank, int) or by is None or by_problems(at, by, fields):
        return []
    if any(fields[name] is None for name in grouping_fields(by)):
        return []
    if rank <= (entries := number_of_keys(fields, by)):
        return []
    what = "categories, with 'other'" if isinstance(by, str) else "entries"
    return [problem(at, f"there are {entries} {what}: no more ranks than that")]


def tick_problems(at: _Place, by: Any, clock: Any) -> list[InitErrorDetails]:
    """Return what is wrong where a tick has several hours or weekdays, or where only a first start says which it has.

    The clock may be a sketch, or unknown.
    """
    longest, step = longest_tick(by), getattr(clock, "step", None)
    if longest is None:
        return []
    if getattr(clock, "start", 0) is None:
        why = "needs to know when tick 0 begins: declare clock.start, such as 2026-01-01T00:00:00Z"
        return [problem((*at, "by"), why)]
    if not isinstance(step, int) or step <= longest[1]:
        return []
    key, _ = longest
    length = "an hour" if key == "hour" else "a day"
    return [
        problem(
            (*at, "by"), f"a tick of this clock is longer than {length}, so it has no one {key}"
        )
    ]


def _part_problems(at: _Place, part: Any, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
    if isinstance(part, str):
        return _field_problems(at, part, fields, ("category", "list"), "a category or a list")
    if not isinstance(part, Edges):
        return []
    at_field = (*at, "field")
    found = _field_problems(
        at_field, part.field, fields, ("integer", "number"), "a number or an integer"
    )
    field = None if found else fields[part.field]
    return [*found, *_edge_problems((*at, "edges"), part.edges, field)]


def _field_problems(
    at: _Place, name: str, fields: Mapping[str, Any], types: Sequence[str], what: str
) -> list[InitErrorDetails]:
    if name not in fields:
        return [problem(at, f"'{name}' is not in the schema", fields)]
    field = fields[name]
    if field is not None and field.type not in types:
        article, more = "a", ""
        if field.type in ("integer", "number"):
            article = "an" if field.type == "integer" else "a"
            more = "; bins need edges, such as {field: " + name + ", edges: [0, 10]}"
        return [problem(at, f"'{name}' is {article} {field.type}, not {what}{more}")]
    return []


def _edge_problems(at: _Place, edges: Sequence[Fraction], field: Any) -> list[InitErrorDetails]:
    """What is wrong with edges by themselves, and as values of their field (None: unknown)."""
    found, before = [], None
    for place, edge in enumerate(edges):
        value: Any = edge
        if field is not None:
            try:
                value = edge_value(field, edge)
            except ValueError as error:
                found.append(problem((*at, place), str(error)))
                continue
        if before is not None and value <= before:
            why = "is there twice" if value == before else "must be greater than the one before"
            found.append(problem((*at, place), f"'{decimal_text(edge)}' {why}"))
        before = value
    return found
