"""What a series can go by: a field, a number between edges, the hour or weekday of the tick, or several of these.

Rules: everything is declared and public, so the entries of a row and their names are known before any record is read.
What a record counts in depends on that record alone, and on the public tick that it lies in. An entry `other` holds
what is none of the declared values; a tick always has an hour and a weekday, so these have none.
"""

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.records.conditions import typed
from stream_dp.records.endpoints import Clock
from stream_dp.records.scalars import OTHER, Exact, FieldName, Frozen, problem, refuse
from stream_dp.records.schema import Fields, ListField, ZoneName, field_problems

MOST_ENTRIES = 10_000  # of a product of groupings
_FORMS = (
    "must be a field, a list such as [airline, destination], {field: delay, edges: [0, 15, 60]} or "
    "{tick: hour, zone: Europe/Zurich}"
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TICK_KEYS = {"hour": tuple(f"{hour:02}" for hour in range(24)), "weekday": _DAYS}
_LONGEST = {"hour": 3_600_000, "weekday": 86_400_000}

Place: TypeAlias = tuple[str | int, ...]
Edge: TypeAlias = Exact


class Edges(Frozen):
    """The values of a number field in bins: below the first edge, from each edge to the next, from the last one on."""

    field: FieldName
    edges: Annotated[tuple[Edge, ...], Field(min_length=1, max_length=1000)]

    @property
    def bins(self) -> tuple[str, ...]:
        """The names of the bins, in order; an edge belongs to the bin above it."""
        texts = [decimal_text(edge) for edge in self.edges]
        between = [f"{low} to {high}" for low, high in pairwise(texts)]
        return (f"below {texts[0]}", *between, f"{texts[-1]} and more")


class TickKey(Frozen):
    """The hour of the day, or the day of the week, in which the tick begins; in UTC where no zone is named."""

    tick: Literal["hour", "weekday"]
    zone: ZoneName | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        return _TICK_KEYS[self.tick]


def _member(value: object) -> Any:
    if isinstance(value, str | Edges | TickKey):
        return value
    if isinstance(value, Mapping):
        if "tick" in value:
            return TickKey.model_validate(value)
        if "edges" in value or "field" in value:
            return Edges.model_validate(value)
    inner = isinstance(value, list | tuple)
    raise ValueError("must not be a list in a list" if inner else _FORMS)


_Single: TypeAlias = str | Edges | TickKey
_MEMBERS: TypeAdapter[tuple[_Single, ...]] = TypeAdapter(
    tuple[Annotated[_Single, PlainValidator(_member)], ...]
)


def _members(value: object) -> Any:
    if not isinstance(value, list | tuple):
        return _member(value)
    members = _MEMBERS.validate_python(value)
    if len(members) < 2:
        raise ValueError(
            "a list needs at least two members; for a single member, leave the brackets out"
        )
    again = [at for at, member in enumerate(members) if member in members[:at]]
    refuse([problem((at,), "is listed twice") for at in again])
    return members


def _plain(by: Any) -> Any:
    if isinstance(by, tuple):
        return [_plain(part) for part in by]
    if isinstance(by, Edges | TickKey):
        return by.model_dump(mode="json", exclude_none=True)
    return by


_Several: TypeAlias = Annotated[tuple[_Single, ...], Field(min_length=2)]
By: TypeAlias = Annotated[
    _Single | tuple[_Single, ...],
    PlainValidator(_members, json_schema_input_type=_Single | _Several),
    PlainSerializer(_plain),
]
"""One form, or several: a row then has an entry for each combination."""


def parts_of(by: Any) -> tuple[Any, ...]:
    return by if isinstance(by, tuple) else (by,)


def grouping_fields(by: Any) -> Iterator[str]:
    for part in parts_of(by):
        if isinstance(part, str):
            yield part
        elif isinstance(part, Edges):
            yield part.field


def keys_of(fields: Mapping[str, Any], by: Any) -> tuple[str, ...]:
    """Return the names of the entries, in the order of the row; of a product the last member changes fastest."""
    if not isinstance(by, tuple):
        return _keys(fields, by)
    names: list[str] = [""]
    for part in by:
        keys = [_escaped(key) for key in _keys(fields, part)]
        names = [f"{before}, {key}" if before else key for before in names for key in keys]
    return tuple(names)


def number_of_keys(fields: Mapping[str, Any], by: Any) -> int:
    return math.prod(len(_keys(fields, part)) for part in parts_of(by))


def most_ones(fields: Mapping[str, Any], by: Any) -> int:
    """Return the most entries that one record counts in: of lists what they hold at most, multiplied; else 1."""
    most = 1
    for part in parts_of(by):
        field = fields[part] if isinstance(part, str) else None
        most *= field.ones if isinstance(field, ListField) else 1
    return most


def grouping_text(by: Any) -> str | None:
    match by:
        case tuple():
            return " and ".join(f"{grouping_text(part)}" for part in by)
        case Edges(field=field):
            return f"{field} in bins"
        case TickKey(tick=tick, zone=zone):
            return tick if zone is None else f"{tick} in {zone}"
    text: str | None = by
    return text


def zones_of(by: Any) -> Iterator[str]:
    for part in parts_of(by):
        if isinstance(part, TickKey) and part.zone is not None:
            yield part.zone


def longest_tick(by: Any) -> tuple[str, int] | None:
    """Return the tick key that needs the shortest ticks, and the longest tick in ms that it tells apart."""
    keys = [(part.tick, _LONGEST[part.tick]) for part in parts_of(by) if isinstance(part, TickKey)]
    return min(keys, key=itemgetter(1), default=None)


def edge_value(field: Any, edge: Fraction) -> int | float:
    """Return an edge as a 64-bit integer, or as the nearest IEEE double; raise ValueError where it is none."""
    if field.type == "integer":
        return int(typed(field, "at_least", decimal_text(edge)))
    try:
        return float(edge)
    except OverflowError:
        raise ValueError(f"'{decimal_text(edge)}' is too large for a number") from None


def decimal_text(value: Fraction) -> str:
    """Return a fraction as a decimal where it is one, else as a fraction.

    >>> decimal_text(Fraction(1, 8)), decimal_text(Fraction(-1, 3)), decimal_text(Fraction(60))
    ('0.125', '-1/3', '60')
    """
    rest, places = value.denominator, 0
    while (by := math.gcd(rest, 10)) > 1:
        rest, places = rest // by, places + 1
    if rest > 1:
        return str(value)
    units = value.numerator * 10**places // value.denominator
    return f"{Decimal(f'{units}e-{places}'):f}"


def _keys(fields: Mapping[str, Any], by: Any) -> tuple[str, ...]:
    match by:
        case None:
            return ("",)
        case Edges():
            return (*by.bins, OTHER)
        case TickKey():
            return by.keys
    return (*fields[by].domain, OTHER)


def _escaped(key: str) -> str:
    return key.replace("\\", "\\\\").replace(",", "\\,")


def by_problems(at: Place, by: By | None, fields: Fields) -> list[InitErrorDetails]:
    parts = parts_of(by)
    problems = []
    for number, part in enumerate(parts):
        inner = (*at, number) if isinstance(by, tuple) else at
        if isinstance(part, str):
            problems += _category_problems(inner, part, fields)
        elif isinstance(part, Edges):
            problems += _edges_problems(inner, part, fields)
    if problems or len(parts) == 1 or (entries := number_of_keys(fields, by)) <= MOST_ENTRIES:
        return problems
    why = f"these have {entries:,} entries together, and {MOST_ENTRIES:,} is the most"
    return [problem(at, why)]


def rank_problems(key: str, rank: int, by: By, fields: Fields) -> list[InitErrorDetails]:
    if by_problems((), by, fields) or rank <= (entries := number_of_keys(fields, by)):
        return []
    what = "categories, with 'other'" if isinstance(by, str) else "entries"
    return [problem((key,), f"there are {entries} {what}: no more ranks than that")]


def tick_problems(at: Place, by: By, clock: Clock) -> list[InitErrorDetails]:
    longest = longest_tick(by)
    if longest is None:
        return []
    key, most = longest
    if clock.start is None:
        why = "needs to know when tick 0 begins: declare clock.start, such as 2026-01-01T00:00:00Z"
        return [problem(at, why)]
    if clock.step <= most:
        return []
    length = "an hour" if key == "hour" else "a day"
    why = f"a tick of this clock is longer than {length}, so it has no one {key}"
    return [problem(at, why)]


def _category_problems(at: Place, name: str, fields: Fields) -> list[InitErrorDetails]:
    number = name in fields and fields[name].type in ("integer", "number")
    edges = f"; bins need edges, such as {{field: {name}, edges: [0, 10]}}" if number else ""
    wrong = f", not a category, a list or a boolean{edges}"
    return field_problems(at, name, fields, ("category", "list", "boolean"), wrong)


def _edges_problems(at: Place, bins: Edges, fields: Fields) -> list[InitErrorDetails]:
    """Edges are values of their field, each greater than the one before."""
    wrong = ", not a number or an integer"
    problems = field_problems((*at, "field"), bins.field, fields, ("integer", "number"), wrong)
    field, before = None if problems else fields[bins.field], None
    for number, edge in enumerate(bins.edges):
        try:
            value: Any = edge if field is None else edge_value(field, edge)
        except ValueError as error:
            problems.append(problem((*at, "edges", number), str(error)))
            continue
        if before is not None and value <= before:
            why = "is listed twice" if value == before else "must be greater than the one before"
            problems.append(problem((*at, "edges", number), f"'{decimal_text(edge)}' {why}"))
        before = value
    return problems
