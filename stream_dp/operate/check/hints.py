"""Hints: which known mistakes make records unusable.

Rules: a hint names fields and values of the pipeline file. It never shows a record's content, except the name of a
field that differs from a declared name in its spelling. The number of records with a mistake is exact, so NOT
PRIVATE. No payload makes this module raise.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_dp.core.how_many import how_many
from stream_dp.core.moments import EPOCH_UNITS, own_time
from stream_dp.core.near_names import alike_names
from stream_dp.core.tick_grid import TickGrid
from stream_dp.operate.check.field_fit import FieldFit
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.records.endpoints import ReplayClock
from stream_dp.records.schema import CategoryField, ListField, TimeField

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_NUMBER = re.compile(r"\s*[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*")
_FRAMED = 5
"""Bytes before a value in Confluent's wire format: a zero and the number of a schema."""
_UNITS = (("epoch_s", 10**8, 10**11), ("epoch_ms", 10**11, 10**14), ("epoch_us", 10**14, 10**17))
"""The range of a time between the years 1973 and 5138, in each unit."""
_CELL = {
    "integer": "numbers that are no whole ones (12.5); declare `type: number`, or write whole numbers",
    "number": "numbers that are spelled otherwise than 12.5 or 1e3, such as with a space before them",
}
_MAY_LACK = "declare `nullable: true` if it may be"
_NOBODY = (
    "a record that names no user cannot be counted: write whose it is, or leave such records out"
)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Hint:
    """A known mistake and the number of sample records that show it (NOT PRIVATE)."""

    says: str
    records: int


def hints(
    spec: PipelineSpec,
    payloads: Sequence[bytes],
    fits: Sequence[FieldFit],
    outside: Sequence[int],
    columns: Sequence[str] = (),
) -> list[Hint]:
    """Return hints, the most frequent first; `outside` are positions of records whose time is out of range."""
    seen: Counter[str] = Counter()
    values = [_object(payload) for payload in payloads]
    for payload, value in zip(payloads, values, strict=True):
        if not isinstance(value, dict):
            seen[_framing(payload, value, table=bool(columns))] += 1
    for fit in fits:
        if fit.used:
            seen.update(_of_field(spec, fit, values, columns))
    seen.update(_of_range(spec, values, outside))
    return [Hint(says, records) for says, records in seen.most_common()]


def _object(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return _ABSENT


def _framing(payload: bytes, value: object, *, table: bool) -> str:
    """Return what a payload that is not a JSON object looks like."""
    if table:
        return "rows with more or fewer cells than the first line, or with an open quote"
    if value is not _ABSENT:
        return "JSON, but no object: a record is one object with the declared fields"
    if not payload:
        return "records without a value (tombstones)"
    if payload[0] == 0 and len(payload) >= _FRAMED:
        return _confluent(payload)
    if payload.startswith(b"Obj\x01"):
        return "Avro container files: JSON objects are needed"
    if payload.startswith(b"\x1f\x8b"):
        return "values compressed by their producer (gzip): let the Kafka client compress, or send JSON as it is"
    if _binary(payload):
        return "binary values, perhaps Avro, Protobuf or MessagePack: JSON objects are needed"
    return "text that is not JSON: each record must be one JSON object"


def _confluent(payload: bytes) -> str:
    if payload[_FRAMED:].lstrip()[:1] == b"{":
        return (
            "JSON behind a zero byte and a schema's number (Confluent JSON Schema): let the producer's serializer "
            "write plain JSON"
        )
    return (
        "a zero byte and a schema's number come first (Confluent's wire format: Avro or Protobuf): JSON objects are "
        "needed"
    )


def _binary(payload: bytes) -> bool:
    try:
        return _CONTROL.search(payload.decode()) is not None
    except UnicodeDecodeError:
        return True


def _of_field(
    spec: PipelineSpec, fit: FieldFit, values: Sequence[Any], columns: Sequence[str]
) -> Iterator[str]:
    """Yield a hint about one field for each record that shows a mistake in it."""
    field = spec.fields[fit.name]
    advice = _NOBODY if fit.name == spec.privacy.user else _MAY_LACK
    for at in fit.missing:
        names = columns or (values[at] if isinstance(values[at], dict) else ())
        alike = alike_names(fit.name, names)
        if alike:
            yield f"{fit.name}: there is a {alike[0]!r}; did you mean that?"
        elif not isinstance(field, TimeField):
            yield f"{fit.name}: absent; {advice}"
        else:
            yield f"{fit.name}: absent"
    for at in fit.wrong:
        value = values[at].get(fit.name, _ABSENT) if isinstance(values[at], dict) else _ABSENT
        cells = bool(columns)
        says = (
            _of_time(field, value)
            if isinstance(field, TimeField)
            else f"null; {advice}"
            if value is None
            else _of_value(field, value, cells=cells)
        )
        if says:
            yield f"{fit.name}: {says}"
    if isinstance(field, CategoryField | ListField):
        yield from _of_domain(fit, field, values)


def _of_time(field: TimeField, value: object) -> str | None:
    """Return the mistake in a time value, or None."""
    if value is None:
        return "no time (null)"
    if type(value) is int:
        unit = next((name for name, least, end in _UNITS if least <= value < end), None)
        return f"whole numbers; declare `format: {unit}` if that is what they are" if unit else None
    if isinstance(value, float):
        return "numbers with a fraction; whole numbers or texts are needed"
    if not isinstance(value, str):
        return "no text and no whole number"
    if _NUMBER.fullmatch(value):
        return "numbers in quotes; write them without, and declare their `format:`"
    if field.format != "iso" and own_time(value) is not None:
        return f"texts, where `format: {field.format}` is declared; leave it out"
    if own_time(f"{value.strip()}Z") is not None:
        return "times without an offset; declare their `zone:` (such as Europe/Berlin), or write the offset"
    return "texts that are no time with an offset, such as 2013-01-01T10:00:00Z"


def _of_value(field: Any, value: object, *, cells: bool) -> str | None:
    """Return the mistake in a value that is neither a time nor null; `cells`: the values are a file's cells."""
    if isinstance(field, ListField):
        return _of_list(field, value)
    if isinstance(value, str) and field.type in ("integer", "number"):
        numeric = _NUMBER.fullmatch(value) is not None
        if numeric and cells:
            return _CELL[field.type]
        return (
            "numbers in quotes; write them without"
            if numeric
            else "texts, where numbers are declared"
        )
    if isinstance(value, float) and field.type == "integer":
        return "numbers with a fraction (60.0); declare `type: number`, or write whole numbers"
    if field.type == "boolean":
        return "texts or numbers, where true or false is declared"
    if isinstance(value, bool | int | float):
        return (
            f"numbers or true and false, where `type: {field.type}` is declared; write them as text"
        )
    return f"values of another type than `{field.type}`" if value is not _ABSENT else None


def _of_list(field: ListField, value: object) -> str:
    if isinstance(value, str):
        return "texts, where lists are declared; write lists, or declare the `separator:` of a file's cells"
    if not isinstance(value, list):
        return "values that are no list"
    if len(value) > field.most and all(isinstance(each, str) for each in value):
        most = how_many(field.most, "entry", "entries")
        return f"lists with more than {most}; a larger `most:` takes them, and more noise for all"
    return "lists that hold something else than texts"


def _of_domain(
    fit: FieldFit, field: CategoryField | ListField, values: Sequence[Any]
) -> Iterator[str]:
    """Yield a hint for each value outside of the domain that differs from it in case or spaces only."""
    exact, domain = set(field.domain), {each.strip().casefold() for each in field.domain}
    for at in fit.other:
        value = values[at].get(fit.name) if isinstance(values[at], dict) else None
        texts = value if isinstance(value, list) else [value]
        if any(text not in exact and text.strip().casefold() in domain for text in texts if text):
            yield f"{fit.name}: differs from the domain in upper and lower case or in spaces only, so it is `other`"


def _of_range(spec: PipelineSpec, values: Sequence[Any], outside: Sequence[int]) -> Iterator[str]:
    """Yield a hint about each time outside of the declared range."""
    clock = spec.clock
    if not isinstance(clock, ReplayClock):
        return
    for at in outside:
        value = values[at].get(clock.field) if isinstance(values[at], dict) else None
        moment = own_time(value, spec.own_times)
        yield f"{clock.field}: {_where(value, moment, clock.grid)}"


def _where(value: object, moment: int | None, grid: TickGrid) -> str:
    if type(value) is int:
        for name, (times, over) in EPOCH_UNITS.items():
            if grid.find(value * times // over) is not None:
                return f"in the clock's range if `format: {name}` is declared"
    side = "before" if moment is None or moment < grid.start(0) else "after"
    return f"{side} the range that the clock declares (start, step, horizon)"
