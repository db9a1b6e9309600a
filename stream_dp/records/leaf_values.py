"""What a value of Avro or Protobuf is in JSON, by the field that is read from it.

Rules: the JSON that a record becomes is read by the decoder like any other, so every rule of fields holds for it. What
no JSON value stands for (bytes, NaN, a time after the year 9999) becomes `UNFIT`, which fits no field: its record is a
dead letter, `wrong_type`. Numbers are written by their decimal text. All is a function of one value and of the file.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np

from stream_dp.core.time import EPOCH_FLOAT, EPOCH_UNITS
from stream_dp.records.schema import Fields, ListField, TextField, TimeField, key_path

Shape: TypeAlias = Callable[[Any], Any]
Wanted: TypeAlias = Mapping[str, Any]
"""By key, the field that is read there, or what is wanted of the object there, or of `Each` entry there."""
Read: TypeAlias = Callable[[bytes], bytes | str]
"""From a value of a topic to JSON, or to the reason why it cannot be read."""

UNFIT: Final[Mapping[str, Any]] = {}
NO_OBJECT: Final = 0
"""Stands where an object is wanted and something else is."""
TEXT: Final = TextField()
PER_DAY, MICROS = 86_400, 10**6
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - its text ends without an offset
_FIRST, _END = -62_135_596_800, 253_402_300_800  # the years 1 to 9999, in seconds
_MOST_DIGITS = 1000


@dataclass(frozen=True, slots=True)
class Each:
    """What is wanted of each entry of a list of objects, of `most` at most."""

    most: int
    want: dict[str, Any]

    type: ClassVar = "list"


def wanted(fields: Fields) -> Wanted:
    """Return what is wanted of a record with these fields."""
    whole: dict[str, Any] = {}
    for name, field in fields.items():
        *above, key = key_path(name, field)
        inner = whole
        for each in above:
            inner = inner.setdefault(each, {})
        if isinstance(field, ListField) and field.inner:
            before = inner.get(key)
            of = before.want if isinstance(before, Each) else {}
            most = min(field.most, before.most) if isinstance(before, Each) else field.most
            inner[key], inner = Each(most, of), of
            *above, key = field.inner
            for each in above:
                inner = inner.setdefault(each, {})
            field = TEXT
        inner[key] = field
    return whole


def entries(field: Any) -> int:
    """Return how many entries of an array are read: one more than a list may have; 0 where the field is no list."""
    return field.most + 1 if isinstance(field, ListField | Each) else 0


def entry(field: Any) -> Any:
    """Return what is wanted of a list's entry: a text, or what an object's keys are."""
    return field.want if isinstance(field, Each) else TEXT


def same(value: Any) -> Any:
    return value


def unfit(_: Any) -> Any:
    return UNFIT


def double(value: float) -> Any:
    return value if math.isfinite(value) else UNFIT


def single(value: float) -> Any:
    """Return the number of the shortest decimal text that names this float of 32 bits.

    >>> single(0.10000000149011612)
    0.1
    """
    return float(str(np.float32(value))) if math.isfinite(value) else UNFIT


def instant(field: Any, per_second: int, *, local: bool = False) -> Shape:
    """Return the shape of a count of seconds (or parts of one) since 1970; `local`: without an offset.

    Its text has 3, 6 or 9 digits of the second, as many as it needs.

    >>> instant(TEXT, 1000)(1357034400500)
    '2013-01-01T10:00:00.500Z'
    """
    if _counts(field):
        return same
    if isinstance(field, TimeField) and field.format in EPOCH_UNITS and not local:
        times, over = EPOCH_UNITS[field.format]
        units = 1000 * over // times
        return lambda count: _whole(count * units // per_second)
    if isinstance(field, TimeField) and field.format == EPOCH_FLOAT and not local:
        return lambda count: msgspec.Raw(str(Decimal(count) / per_second).encode())
    digits, offset = len(str(per_second)) - 1, "" if local else "Z"

    def text(count: int) -> Any:
        seconds, part = divmod(count, per_second)
        if not _FIRST <= seconds < _END:
            return UNFIT
        point = ""
        if part:
            thousands = f"{part:0{digits}d}"
            while thousands.endswith("000"):
                thousands = thousands[:-3]
            point = f".{thousands}"
        return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()}{point}{offset}"

    return text


def date(field: Any) -> Shape:
    """Return the shape of a number of days since 1970."""
    if _counts(field):
        return same

    def text(days: int) -> Any:
        if not _FIRST <= days * PER_DAY < _END:
            return UNFIT
        return (_EPOCH + timedelta(days=days)).date().isoformat()

    return text


def decimal(field: Any, precision: int, scale: int) -> Shape | None:
    """Return the shape of a decimal's bytes; None if it is none, by its precision and scale.

    >>> decimal(TEXT, 4, 2)(b"\\x04\\xe2")
    '12.50'
    """
    if not 0 <= scale <= precision or not 0 < precision <= _MOST_DIGITS:
        return None
    end = 10**precision

    def shape(data: bytes) -> Any:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not -end < unscaled < end:
            return UNFIT
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        signed = f"-{text}" if unscaled < 0 else text
        return msgspec.Raw(signed.encode()) if _counts(field) else signed

    return shape


def _whole(value: int) -> Any:
    return value if -(2**63) <= value < 2**63 else UNFIT


def _counts(field: Any) -> bool:
    return field.type in ("integer", "number")


encoded = msgspec.json.Encoder().encode
