"""A column of a sample, and the type that is proposed for it.

Rules: a type is a guess about form, which the operator confirms; a value of the data never becomes part of it.
Sample values are shown only on the operator's own terminal, and only on request. No cell makes this module raise.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

from stream_dp.core.moments import parse_moment
from stream_dp.records.scalars import UNDECLARED

_UTC = ZoneInfo("UTC")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_TRUTHS = ("true", "false")
_FROM_2000, _TO_2100 = 946_684_800, 4_102_444_800
_EPOCHS = {"epoch_s": 1, "epoch_ms": 1000, "epoch_us": 1_000_000}
_TIMELY = re.compile(
    r"(^|[^a-z])(time|ts|timestamp|date|datetime|when|at|epoch|created|updated)([^a-z]|$)"
)
_PERSON = re.compile(r"user|customer|client|person|account|member|patient|visitor|employee|e?mail")
_KINDS = re.compile(
    r"(^|[^a-z])(type|kind|class|level|tier|status|group|segment|country|count)s?([^a-z]|$)"
)
_NUMBERED = re.compile(r"(^|[^a-z])u?u?id$")
MOST_VALUES, ONE_IN = 200, 2
"""A category has at most `MOST_VALUES` different texts, and at most one for every `ONE_IN` records."""
SEPARATORS = (";", "|", ",")
"""Characters that may separate the entries of a cell; they belong to the form, not to the data."""
ODD_ONE_IN = 20
"""A column keeps its type if at most one value in this many has another form (`n/a` among numbers)."""
_ODD = "some values have another form: `check` says how many"
_LATE = "a record without it cannot be used"
_NO_OFFSET = "its times have no offset: where were they written?"

OPEN = ("[]", UNDECLARED)
"""Placeholders for values that the operator must declare."""


def names_people(column: str) -> bool:
    """Return whether a column's name suggests that it identifies people; `member_type` does not.

    >>> [name for name in ("member_type", "customer_id", "email", "city") if names_people(name)]
    ['customer_id', 'email']
    """
    return bool(_PERSON.search(column.lower())) and not _KINDS.search(column.lower())


def is_numbered(column: str) -> bool:
    """Return whether a column's name suggests identifiers."""
    return _NUMBERED.search(column.lower()) is not None


@dataclass(frozen=True, slots=True)
class ProposedType:
    """The type of a field with its keys; `why_not` is the reason why a column cannot be a field."""

    type: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = False
    note: str = ""
    why_not: str = ""

    @property
    def open(self) -> int:
        """Number of keys whose values the operator must declare."""
        return sum(value in OPEN for value in self.keys.values())

    def stamped(self) -> "ProposedType":
        """Return the type for a clock by brokers' stamps: a time that would need a zone becomes a text."""
        undeclared = self.type == "time" and self.open
        return ProposedType("text", note="times without an offset") if undeclared else self


@dataclass(slots=True, repr=False)
class Column:
    """The values under one name in the records of a sample; `records` counts all of them. NOT PRIVATE."""

    name: str
    records: int
    values: list[object] = field(default_factory=list)

    @property
    def there(self) -> list[object]:
        """The values that are not null."""
        return [value for value in self.values if value is not None]

    @property
    def nullable(self) -> bool:
        """Whether some record of the sample has null or no value."""
        return len(self.there) < self.records

    @property
    def texts(self) -> list[str]:
        """The different texts, including those in lists, sorted."""
        found = set[str]()
        for value in self.there:
            members = value if isinstance(value, list) else [value]
            found.update(each for each in members if isinstance(each, str))
        return sorted(found)

    def proposal(self, *, cells: bool) -> ProposedType:
        """Return the type that fits nearly all values; `cells`: the values are a CSV's cells, all texts."""
        there = self.there
        if not there:
            return ProposedType("text", nullable=True, note="no value was there: look at the type")
        forms = [*_times(self), *_simple(self, cells=cells)]
        most, found = max(
            ((sum(map(fits, there)), each) for each, fits in forms), key=lambda pair: pair[0]
        )
        if not _nearly(most, there):
            most, found = sum(map(_is_text, there)), _text(self, cells=cells)
        if not _nearly(most, there):
            kinds = {type(value) for value in there}
            held = "objects or lists" if kinds & {dict, list} else "values of several types"
            return ProposedType(why_not=f"holds {held}: left out")
        odd = _ODD if most < len(there) else ""
        return replace(found, note="; ".join(filter(None, (found.note, odd))))


Form = tuple[ProposedType, Callable[[object], bool]]
"""A type, and a test whether a value has its form."""


def _times(column: Column) -> Sequence[Form]:
    """Return the forms of a time: a text, or a whole number of this century if the column's name fits."""
    late = _LATE if column.nullable else ""
    forms: list[Form] = [
        (ProposedType("time", note=late), lambda value: _moment(value, None)),
        (
            ProposedType("time", {"zone": UNDECLARED}, note=_NO_OFFSET),
            lambda value: _moment(value, _UTC),
        ),
    ]
    if _TIMELY.search(column.name.lower()) is not None:
        forms += [
            (ProposedType("time", {"format": form}, note=late), _of_this_century(per_second))
            for form, per_second in _EPOCHS.items()
        ]
    return forms


def _simple(column: Column, *, cells: bool) -> Sequence[Form]:
    """Return the forms of booleans, numbers and JSON lists of texts; of equally good ones the first counts."""
    nullable = column.nullable
    boolean, integer, number = (
        ProposedType(kind, nullable=nullable) for kind in ("boolean", "integer", "number")
    )
    if cells:
        return [
            (boolean, lambda cell: str(cell).lower() in _TRUTHS),
            (integer, lambda cell: _INTEGER.fullmatch(str(cell)) is not None),
            (number, lambda cell: _NUMBER.fullmatch(str(cell)) is not None),
        ]
    listed = ProposedType("list", {"domain": "[]", "most": UNDECLARED}, nullable)
    return [
        (boolean, lambda value: type(value) is bool),
        (integer, lambda value: type(value) is int),
        (number, lambda value: type(value) in (int, float)),
        (listed, lambda value: isinstance(value, list) and all(map(_is_text, value))),
    ]


def _text(column: Column, *, cells: bool) -> ProposedType:
    if names_people(column.name) or is_numbered(column.name):
        return ProposedType("text", nullable=column.nullable)
    if cells:
        for separator in SEPARATORS:
            if _joined(column.texts, separator):
                keys = {"domain": "[]", "most": UNDECLARED, "separator": json.dumps(separator)}
                return ProposedType("list", keys, note="an empty cell is an empty list")
    few = len(column.texts)
    if few <= MOST_VALUES and few * ONE_IN <= max(len(column.there), ONE_IN):
        return ProposedType("category", {"domain": "[]"}, column.nullable)
    return ProposedType("text", nullable=column.nullable)


def _joined(texts: Sequence[str], separator: str) -> bool:
    """Return whether these different cells hold entries joined by the separator: far fewer entries than cells.

    >>> _joined(["a", "a;b", "b;c", "c;a", "a;b;c", "b;a"], ";"), _joined(["a;b", "c;d", "e;f"], ";")
    (True, False)
    """
    entries = {entry for text in texts for entry in text.split(separator)}
    return len(entries) <= MOST_VALUES and len(entries) * ONE_IN <= len(texts)


def _nearly(fitting: int, values: Sequence[object]) -> bool:
    """Return whether this number of fitting values is nearly all of `values`."""
    return (len(values) - fitting) * ODD_ONE_IN <= len(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _moment(value: object, zone: ZoneInfo | None) -> bool:
    return isinstance(value, str) and parse_moment(value, zone) is not None


def _of_this_century(per_second: int) -> Callable[[object], bool]:
    """Return a test whether a whole number, or a cell with one, is a time of this century in this unit."""
    low, high = _FROM_2000 * per_second, _TO_2100 * per_second

    def fits(value: object) -> bool:
        count = _whole(value)
        return count is not None and low <= count < high

    return fits


def _whole(value: object) -> int | None:
    """Return the whole number in a value or cell, or None."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return value if type(value) is int else None
