"""A first pipeline file from a sample of records, and the JSON Schema of such files: `stream-dp init`, `schema`.

Rules: the sample (a file's first records, or a topic's last) stays on the operator's machine. Statements about it are
NOT PRIVATE and go to the operator's own terminal; sample values are shown there only on request. No part of the file's
text comes from a value of the data: a type is a guess about form, and so is the unit, which the operator confirms. A
column name that few records have may be a value itself, so it is not proposed, only counted. No cell makes this module
raise. An existing file is never overwritten.

The schema is made from the models, so this file contains no key or bound. An editor reads scalars as YAML does, so a
number may be written where a text is expected, and the other way round; durations, decimals and groupings state their
forms beside their types. The schema accepts everything that the models accept. Only `stream-dp plan` checks conditions
between several keys and conditions on names in the file.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from stream_dp.core.time import EPOCH_FLOAT, TimeForm, parse_moment
from stream_dp.errors import UsageError, WorldError
from stream_dp.files.records import (
    column_names,
    json_object,
    lines_of,
    nameable,
    opened_data,
    plain_rows,
)
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.client.sample import sample_topic
from stream_dp.kafka.client.topics import administering, config, stamped
from stream_dp.operate.run.settings import brokers_there, settings_at
from stream_dp.pipeline.promise import PEOPLE, PEOPLE_WORDS
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.records.cells import WITH_COMMA, AllKeysAndHeaders, Reading
from stream_dp.records.endpoints import UTF_8
from stream_dp.records.scalars import UNDECLARED, FieldName
from stream_dp.records.schema import ENTRIES, HEADER_PLACE, KEY_PLACE

_UTC = ZoneInfo("UTC")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_TRUTHS = ("true", "false")
_FROM_1980, _TO_2100 = 315_532_800, 4_102_444_800
_EPOCHS = {"epoch_s": 1, "epoch_ms": 1000, "epoch_us": 1_000_000}
_TIMELY = re.compile(
    r"(^|[^a-z])(time|ts|timestamp|date|datetime|when|at|epoch|created|updated)([^a-z]|$)"
)
_NAMED = re.compile(r"(_?(id|uuid|guid|no|nr|num|number|nummer|key|hash|name|address|code))+$")
"""What ends the name of an identifier; before it stands whose it is."""
_BELONGING = ("session", "device", "phone", "cookie", "card", "ip", "mac")
"""What one person may have several of: a field of the person is the better unit."""
_ASIDE = re.compile(r"birth|born|dob|due|expir|valid|until|deliver|updat|modif|last")
"""Parts of names of times that are hardly those of the event."""
_NUMBERED = re.compile(r"(^|[^a-z])u?u?id$")
FEW, MANY, EACH, AGAIN_ONE_IN = 5, 20, 10, 100
"""A person's field is a category with at most `FEW` values, and the unit with `MANY` if one record in `AGAIN_ONE_IN`
has a value that came before. An identifier is a category if each value comes `EACH` times, on average."""
MOST_VALUES, ONE_IN = 200, 2
"""A category has at most `MOST_VALUES` different texts, and at most one for every `ONE_IN` records."""
SEPARATORS = (";", "|", ",")
"""Characters that may separate the entries of a cell; they belong to the form, not to the data."""
ODD_ONE_IN = 20
"""A column keeps its type if at most one value in this many has another form (`n/a` among numbers)."""
_ODD = "some values have another form: `stream-dp check` says how many"
_LATE = "a record without it cannot be used"
_THOUSANDS = re.compile(r",[0-9]{3}$", re.ASCII)
_COMMA = (
    "is the comma a decimal comma, or does it separate thousands? For a decimal comma, write `type: number, decimal: "
    '","`'
)
_NO_OFFSET = "these times have no offset: in which time zone were they written?"
_DAYS = "only dates: in UTC, each day consists of whole ticks"
_CODES = "few different numbers: if they are codes and not amounts, write `type: category`"
_PATTERNS = (
    "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M",
)  # fmt: skip
"""Patterns of times with a time of day that are sought, the more usual one first."""
_DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")

OPEN = ("[]", UNDECLARED)
"""Placeholders for values that the operator must declare."""


def names_people(column: str) -> bool:
    """Return whether a column's name is that of an identifier of people; `member_type` is none.

    >>> [name for name in ("userAgent", "customer_id", "userid", "Session ID", "users") if names_people(name)]
    ['customer_id', 'userid', 'Session ID']
    """
    whose = _whose(column)
    return whose.endswith(PEOPLE) or whose in PEOPLE_WORDS


def _whose(column: str) -> str:
    """Return the last word of a name, without what says that it is an identifier."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", column)
    return _NAMED.sub("", "_".join(words).lower()).rpartition("_")[2]


def is_numbered(column: str) -> bool:
    """Return whether a column's name suggests identifiers."""
    return _NUMBERED.search(column.lower()) is not None


@dataclass(frozen=True, slots=True)
class ProposedType:
    """The type of a field with its keys; `why_not` is the reason why a column cannot be a field.

    `person`: it names people by its name, and has many values that come again.
    """

    type: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = False
    note: str = ""
    why_not: str = ""
    person: bool = False

    @property
    def dates(self) -> bool:
        """Whether it is a time without a time of day."""
        return self.keys.get("format") in list(map(json.dumps, _DATES))

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
    """The values under one name in the records of a sample; `records` counts all of them. NOT PRIVATE.

    `placed`: the name is a path through objects. `beside`: the values are texts of records' keys or of a header; what
    says so in the file.
    """

    name: str
    records: int
    values: list[object] = field(default_factory=list)
    placed: bool = False
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def there(self) -> list[object]:
        """The values that are not null."""
        return [value for value in self.values if value is not None]

    @property
    def nullable(self) -> bool:
        return len(self.there) < self.records

    @property
    def texts(self) -> list[str]:
        """The different texts, including those in lists, sorted."""
        members = (value if isinstance(value, list) else [value] for value in self.there)
        return sorted({text for some in members for text in some if isinstance(text, str)})

    @property
    def _distinct(self) -> int:
        return len({value for value in self.there if isinstance(value, str | int)})

    def has_few(self, most: int, each: int) -> bool:
        """Return whether it has at most `most` different values, each of which comes `each` times on average."""
        return self._distinct <= most and self._distinct * each <= len(self.there)

    def is_coded(self) -> bool:
        """Return whether an identifier has so few values that it is a category."""
        return self.has_few(FEW if names_people(self.name) else MOST_VALUES, EACH)

    def come_again(self) -> bool:
        """Return whether it has many values, some of which come again."""
        again = len(self.there) - self._distinct
        return self._distinct >= MANY and again * AGAIN_ONE_IN >= len(self.there)

    def proposal(self, *, cells: bool) -> ProposedType:
        """Return the type that fits nearly all values; `cells`: the values are a CSV's cells, all texts."""
        proposed = self._type(cells=cells or bool(self.beside))
        lies = {"path": yaml_key(self.name)} if self.placed else self.beside
        return replace(proposed, keys={**proposed.keys, **lies}) if proposed.type else proposed

    def _type(self, *, cells: bool) -> ProposedType:
        there = self.there
        if not there:
            return ProposedType(
                "text", nullable=True, note="the sample has no value of it: check the type"
            )
        forms = [*_times(self), *_simple(self, cells=cells)]
        counted = [(sum(map(fits, there)), proposed) for proposed, fits in forms]
        most, best = max(counted, key=itemgetter(0))
        if not _nearly(most, there):
            most, best = sum(map(_is_text, there)), _text(self, cells=cells)
        if not _nearly(most, there):
            kinds = {type(value) for value in there}
            held = "objects or lists" if kinds & {dict, list} else "values of several types"
            return ProposedType(why_not=f"holds {held}: left out")
        if cells and best.type == "integer" and self.has_few(MANY, EACH):
            named = names_people(self.name) or is_numbered(self.name)
            if not named:
                best = replace(best, note=_CODES)
            elif self.is_coded():
                best = ProposedType("category", {"domain": "[]"}, self.nullable)
        person = best.type in _NAMING and names_people(self.name) and self.come_again()
        odd = _ODD if most < len(there) else ""
        return replace(best, note="; ".join(filter(None, (best.note, odd))), person=person)


Form = tuple[ProposedType, Callable[[object], bool]]
"""A type, and a test whether a value has its form."""


def _times(column: Column) -> Sequence[Form]:
    """Return the forms of a time: a text, or a whole number from 1980 to 2100 if the column's name fits."""
    late = _LATE if column.nullable else ""
    forms: list[Form] = [
        (ProposedType("time", note=late), lambda value: _moment(value, None)),
        (
            ProposedType("time", {"zone": UNDECLARED}, note=_NO_OFFSET),
            lambda value: _moment(value, _UTC),
        ),
    ]
    for pattern in _PATTERNS:
        first = "; does the day or the month come first?" if "/" in pattern else ""
        keys = {"format": json.dumps(pattern), "zone": UNDECLARED}
        forms.append((ProposedType("time", keys, note=_NO_OFFSET + first), _of_pattern(pattern)))
    for pattern in _DATES:
        first = "; does the day or the month come first?" if "/%Y" in pattern else ""
        keys = {"format": json.dumps(pattern), "zone": "UTC"}
        forms.append((ProposedType("time", keys, note=_DAYS + first), _of_pattern(pattern)))
    if _TIMELY.search(column.name.lower()) is not None:
        forms += [
            (ProposedType("time", {"format": form}, note=late), _of_these_decades(per_second))
            for form, per_second in _EPOCHS.items()
        ]
        forms.append((ProposedType("time", {"format": EPOCH_FLOAT}, note=late), _of_seconds))
    return forms


def _simple(column: Column, *, cells: bool) -> Sequence[Form]:
    """Return the forms of booleans, numbers and JSON lists of texts; of equally good ones the first counts."""
    nullable = column.nullable
    boolean, integer, number = (
        ProposedType(kind, nullable=nullable) for kind in ("boolean", "integer", "number")
    )
    if cells:
        comma = replace(number, keys={"decimal": '","'})
        ambiguous = all(map(_THOUSANDS.search, (text for text in column.texts if "," in text)))
        return [
            (boolean, lambda cell: str(cell).lower() in _TRUTHS),
            (integer, lambda cell: _INTEGER.fullmatch(str(cell)) is not None),
            (number, lambda cell: _NUMBER.fullmatch(str(cell)) is not None),
            (comma, lambda cell: not ambiguous and WITH_COMMA.fullmatch(str(cell)) is not None),
        ]
    listed = ProposedType("list", {"domain": "[]", "most": UNDECLARED}, nullable)
    return [
        (boolean, lambda value: type(value) is bool),
        (integer, lambda value: type(value) is int),
        (number, lambda value: type(value) in (int, float)),
        (listed, lambda value: isinstance(value, list) and all(map(_is_text, value))),
    ]


def _text(column: Column, *, cells: bool) -> ProposedType:
    named = names_people(column.name) or is_numbered(column.name)
    if named and not column.is_coded():
        return ProposedType("text", nullable=column.nullable)
    if cells:
        texts = column.texts
        if _nearly(sum("," in t and WITH_COMMA.fullmatch(t) is not None for t in texts), texts):
            return ProposedType("text", nullable=column.nullable, note=_COMMA)
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
    return (len(values) - fitting) * ODD_ONE_IN <= len(values)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _moment(value: object, zone: ZoneInfo | None) -> bool:
    return isinstance(value, str) and parse_moment(value, zone) is not None


def _of_pattern(pattern: str) -> Callable[[object], bool]:
    form = TimeForm(pattern, _UTC)
    return lambda value: isinstance(value, str) and form.parse(value) is not None


def _of_these_decades(per_second: int) -> Callable[[object], bool]:
    """Return a test whether a whole number, or a cell with one, is a time from 1980 to 2100 in this unit."""
    low, high = _FROM_1980 * per_second, _TO_2100 * per_second

    def fits(value: object) -> bool:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        return type(value) is int and low <= value < high

    return fits


def _of_seconds(value: object) -> bool:
    """Return whether a number, or a cell with one, is a time from 1980 to 2100 in seconds with a fraction."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    return type(value) in (int, float) and _FROM_1980 <= cast("float", value) < _TO_2100


SCHEMA_FILE = "pipeline.schema.json"
_FIELD: TypeAdapter[str] = TypeAdapter(FieldName)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_SAID_OTHERWISE = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_NAMING = ("text", "integer")
_COUNTED = ("category", "list")
_DECLARES = {
    "domain": "the values that may occur, such as [DE, FR]; any other value counts as `other`",
    "most": "the largest number of values in one record, such as 5; a record with more is a dead letter",
    "zone": "such as Europe/Berlin or UTC",
}
_MOST_SERIES, _MAX_EVENTS = 2, 10


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of the file: its name, the lines of its source, and the proposed type of each field.

    The file can be run once its marked places are filled in. `timed` is the field whose times a replay clock uses;
    None: the brokers' stamps are used.
    """

    name: str
    source: Sequence[str]
    fields: Mapping[str, ProposedType]
    timed: str | None = None
    live_for: str = ""
    """Why a file was not made a replay, though no topic was named."""

    def text(self) -> str:
        source = ["source:", *(f"  {line}" for line in self.source)]
        if self.person and self.timed is None:
            source += [
                f"  keyed_by: {yaml_key(self.person)}   # producers use this field as the key of each record",
                "  # partitioner: crc32   # if they use librdkafka (Python, Go, .NET) and not the Java client",
            ]
        parts = (
            self._head(),
            source,
            self._schema(),
            self._privacy(),
            self._clock(),
            self._series(),
        )
        return "\n".join(["\n".join(part) + "\n" for part in parts])

    @property
    def open_places(self) -> int:
        """Number of places that the operator must fill in."""
        clock = 0 if self.timed is None else len(("start", "horizon"))
        return clock + sum(proposed.open for proposed in self.declared.values())

    def told(self, name: str) -> ProposedType:
        """Return the proposal for a column, with the reason if it cannot be a field."""
        proposed = self.fields[name]
        if proposed.why_not or name in self.declared:
            return proposed
        return ProposedType(why_not="has a name that no field can have: left out")

    @property
    def declared(self) -> dict[str, ProposedType]:
        """The columns that can be fields."""
        return {name: of for name, of in self.fields.items() if of.type and _is_field(name)}

    def _head(self) -> Iterator[str]:
        yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
        yield f"# For editors: `stream-dp schema > {SCHEMA_FILE}`. Fill in each value marked: {UNDECLARED}."
        yield "# Everything in this file is public: declare values from what you know, never by looking at the data."
        yield "# You may delete fields that none of your series needs."
        yield "version: 1"
        yield f"name: {self.name}"

    def _schema(self) -> Iterator[str]:
        yield "schema:   # the fields that series may use; a record that does not fit is a dead letter"
        for name, proposed in self.fields.items():
            if name in self.declared:
                yield from _field(name, proposed)
            else:
                yield f"  # {json.dumps(name)} {self.told(name).why_not}"

    @property
    def person(self) -> str:
        """The field whose records are protected together; empty if none is there."""
        people = [name for name, of in self.declared.items() if of.person]
        return min(people, key=_rank, default="")

    def _privacy(self) -> Iterator[str]:
        naming = [name for name, of in self.declared.items() if of.type in _NAMING]
        person = self.person
        seldom = min(filter(names_people, naming), key=_rank, default="")
        yield "privacy:"
        if person:
            yield from _of_person(self, yaml_key(person))
        else:
            yield "  unit: event             # the guarantee protects each single record"
        if seldom and not person:
            yield "  # If one person has many records, protect them together:"
            yield "  # unit: user"
            yield f"  # user: {yaml_key(seldom)}"
            yield f"  # max_events: {_MAX_EVENTS}        # at most this number of records of one user counts ..."
            yield "  # per: 1d               # ... in each day"
        whose = "a user is in the data at all" if person else "a record is in the data at all"
        yield f"  neighbors: add_remove   # hides whether {whose}"
        yield (
            "  epsilon: 1              # the whole budget, for all time: a smaller epsilon is more private and less "
            "exact"
        )
        guessed = (
            "users in a day, and how many records some of them have"
            if person
            else "records in a step"
        )
        yield f"  # With public guesses of yours ({guessed}), `plan` shows how useful each number is:"
        yield f"  # expect: {'{users: 300, events: [1, 2, 3, 10]}' if person else '{records: 40}'}"

    def _clock(self) -> Iterator[str]:
        yield "clock:"
        if self.live_for:
            yield f"  # {self.live_for}."
            yield "  # If a column is a time, use a replay clock and a file source (docs/records.md)."
        if self.timed is None:
            yield "  kind: wall              # ticks follow the brokers' timestamps (the topic has LogAppendTime)"
            yield "  step: 1m                # each series has one release per minute"
            yield "  delay: 2s"
            return
        others = [name for name, of in self.declared.items() if of.type == "time"]
        others.remove(self.timed)
        step, of_steps = ("1d", "a day") if self.fields[self.timed].dates else ("1h", "an hour")
        many = "366" if step == "1d" else "8760"
        or_else = f"   # or {', '.join(map(yaml_key, others))}" if others else ""
        yield "  kind: replay            # ticks follow the times in the records, which are declared public"
        yield f"  field: {yaml_key(self.timed)}{or_else}"
        yield f"  start: {UNDECLARED}     # such as 2024-01-01T00:00:00Z; earlier records do not count"
        longer = "" if step == "1d" else "; `every: 1d` gives a new number once a day"
        yield f"  step: {step}                # each series has one release {of_steps}{longer}"
        yield f"  horizon: {UNDECLARED}   # number of steps, such as {many} for a year; later records do not count"

    def _series(self) -> Iterator[str]:
        person, live = self.person, self.timed is None
        every, running = ("1h", ", running: true") if live and not person else ("1d", "")
        yield (
            "series:   # what is released. The epsilons add up; the rest of the budget is for series that are "
            "created later"
        )
        told = (
            f"# `every`: a number for each {'hour' if every == '1h' else 'day'}; `windows` slide,"
        )
        yield f"  {told} with more noise (docs/windows.md)"
        taken = {"events"}
        if person:
            called = _series_name("users", taken)
            today = ", running: true" if live else ""
            yield f"  - {{name: {called}, statistic: distinct, of: {yaml_key(person)}, every: 1d{today}, epsilon: 0.2}}"
        yield f"  - {{name: events, statistic: count, every: {every}{running}, epsilon: 0.2}}"
        counted = [name for name, of in self.declared.items() if of.type in _COUNTED]
        for name in counted[: _MOST_SERIES - bool(person)]:
            called = _series_name(f"by_{name}", taken)
            by = f"by: {yaml_key(name)}, every: {every}"
            yield f"  - {{name: {called}, statistic: histogram, {by}, epsilon: 0.2}}"
        for name in [name for name, of in self.declared.items() if of.type == "boolean"][:1]:
            called = _series_name(name, taken)
            where = f"where: [{{field: {yaml_key(name)}, equals: true}}]"
            yield f"  - {{name: {called}, statistic: count, {where}, every: {every}, epsilon: 0.2}}"
        yield "confidence: 0.95"


def _rank(name: str) -> tuple[bool, bool]:
    """Order fields of people: a person before what a person has, then identifiers first."""
    return _whose(name).endswith(_BELONGING), not is_numbered(name)


def _of_person(draft: Draft, user: str) -> Iterator[str]:
    gone = "" if draft.timed is not None else ", and `keyed_by` of the source"
    yield (
        f"  # The name of {user} sounds like people, and its values occur again: all records of one {user} are "
        "protected together."
    )
    yield f"  # To protect each record by itself, write `unit: event`, and delete `user`, `max_events`, `per`{gone}."
    if draft.fields[draft.person].nullable:
        yield f"  # Records without {user} are dead letters: with `unit: user`, they do not count."
    yield "  unit: user"
    yield f"  user: {user}"
    yield f"  max_events: {_MAX_EVENTS}          # this many records of one user count: a smaller cap needs less noise"
    yield (
        "  per: 1d                 # in each day; a user who has records on many days is protected for each day by "
        "itself"
    )


def _field(name: str, proposed: ProposedType) -> Iterator[str]:
    """Yield the lines of a field; each open key has its own line, with a comment about the value to write."""
    nullable = ["nullable: true"] if proposed.nullable else []
    note = f"   # {proposed.note}" if proposed.note else ""
    if not proposed.open:
        keys = [f"{key}: {value}" for key, value in proposed.keys.items()]
        yield f"  {yaml_key(name)}: {{{', '.join([f'type: {proposed.type}', *keys, *nullable])}}}{note}"
        return
    yield f"  {yaml_key(name)}:{note}"
    yield f"    type: {proposed.type}"
    for key, value in proposed.keys.items():
        marked = f"{UNDECLARED}: " if value != UNDECLARED else ""
        wanted = f"   # {marked}{_DECLARES[key]}" if value in OPEN else ""
        yield f"    {key}: {value}{wanted}"
    yield from (f"    {line}" for line in nullable)


def yaml_key(name: str) -> str:
    """Return a name, quoted if YAML would read it as something else.

    >>> yaml_key("amount"), yaml_key("on"), yaml_key("a: b")
    ('amount', '"on"', '"a: b"')
    """
    plain = _PLAIN.fullmatch(name) is not None and name.lower() not in _SAID_OTHERWISE
    return name if plain else json.dumps(name, ensure_ascii=False)


def lower_name(text: str) -> str:
    """Return a name for a pipeline or a series, made from this text; empty if no character of it can be used.

    >>> lower_name("by_Net Amount (EUR)"), lower_name("Ü")
    ('by_net_amount_eur', '')
    """
    return re.sub(r"[^a-z0-9.-]+", "_", text.lower()).strip("_.-")[:50]


def _series_name(wanted: str, taken: set[str]) -> str:
    base = lower_name(wanted) or "series"
    numbered = (f"{base}_{number}" for number in count(2))
    name = next(name for name in chain([base], numbered) if name not in taken)
    taken.add(name)
    return name


def _is_field(name: str) -> bool:
    try:
        _FIELD.validate_python(name)
    except ValidationError:
        return False
    return True


SAMPLE = 1000
_ONE_IN = 10
"""A name that fewer than one in this many records have is left out."""
_NOTHING = (
    "the sample holds no record (a row with as many cells as the first line, or a JSON object). A few records "
    "are enough, and they may be made up"
)
_NO_TIME = "No column was recognized as a time, so the file is not replayed: its records count when they arrive"
LOCAL = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True, repr=False)
class SampleColumns:
    """The columns of a sample of `records` records; left out are `bad` records, `rare` names and `unnamed` columns.

    `cells`: the values are a CSV's cells, all texts. `stamped`: brokers stamp records on arrival; None: no topic.
    """

    columns: Sequence[Column]
    records: int
    bad: int
    rare: int = 0
    unnamed: int = 0
    cells: bool = False
    stamped: bool | None = None
    encoding: str = UTF_8


@dataclass(frozen=True, slots=True)
class SampleWanted:
    """The options of `init`: a sample (CSV, JSON lines, or the topic), and the pipeline's topic."""

    csv: Path | None
    jsonl: Path | None
    topic: str
    bootstrap: str
    out: Path | None
    name: str

    @property
    def file(self) -> Path | None:
        return self.csv or self.jsonl

    @property
    def called(self) -> str:
        """The given name, or a name made from that of the topic or of the file."""
        after = self.topic or ("" if self.file is None else self.file.name.partition(".")[0])
        return self.name or lower_name(after) or "pipeline"


@dataclass(frozen=True, slots=True, repr=False)
class Drafted:
    """The path of the new file, its draft, and the sample (NOT PRIVATE)."""

    path: Path
    draft: Draft
    sample: SampleColumns

    @property
    def live(self) -> bool:
        """Whether the pipeline reads a topic by the brokers' stamps."""
        return self.draft.timed is None


async def draft_pipeline(wanted: SampleWanted, tell: Callable[[str], None]) -> Drafted:
    """Read the sample and write the pipeline file; an existing file is never overwritten."""
    if (wanted.csv is not None) + (wanted.jsonl is not None) > 1 or not (
        wanted.file or wanted.topic
    ):
        raise UsageError("name a sample: --csv FILE, --jsonl FILE, or --topic T with --bootstrap B")
    path = wanted.out or Path(f"{wanted.called}.yaml")
    if path.exists():
        raise UsageError(f"{path}: this file exists and is kept; name another file with --out")
    settings = None
    if wanted.file is None:
        settings = settings_at(wanted.bootstrap, None)
        await brokers_there(settings, tell)
        sample = await topic_columns(settings, wanted.topic)
    else:
        cells = wanted.csv is not None
        sample = await asyncio.to_thread(file_columns, wanted.file, cells=cells)
    draft = _draft(wanted, path, sample, settings)
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(draft.text())
    except OSError as error:
        raise WorldError(f"{path}: cannot be written: {error.strerror}") from None
    return Drafted(path, draft, sample)


def _draft(
    wanted: SampleWanted, path: Path, sample: SampleColumns, settings: KafkaSettings | None
) -> Draft:
    fields = {column.name: column.proposal(cells=sample.cells) for column in sample.columns}
    if not any(proposed.type for proposed in fields.values()):
        raise UsageError("no column can be a field, so nothing was written")
    times = _clocks(fields, {column.name for column in sample.columns if column.nullable})
    if wanted.file is not None and not wanted.topic and times:
        source = ["kind: file", f"path: {yaml_key(os.path.relpath(wanted.file, path.parent))}"]
        if sample.encoding != UTF_8:
            source.append(
                f"encoding: {sample.encoding}   # a guess, because the file is not UTF-8: check it with --show-values"
            )
        return Draft(wanted.called, source, fields, times[0])
    address = wanted.bootstrap if settings is None else settings.bootstrap
    source = [
        "kind: kafka",
        f"topic: {wanted.topic or wanted.called}",
        f"bootstrap: {json.dumps(address or LOCAL)}   # a login, TLS: docs/kafka.md",
    ]
    if sample.encoding != UTF_8:
        source.append(
            f"# the sample is not UTF-8: send it with `--encoding {sample.encoding}` (a guess)"
        )
    kinds = {name: proposed.stamped() for name, proposed in fields.items()}
    why = "" if wanted.file is None or wanted.topic else _NO_TIME
    return Draft(wanted.called, source, kinds, live_for=why)


def _clocks(fields: Mapping[str, ProposedType], lacking: Collection[str]) -> list[str]:
    """Return the times among the fields, the likeliest time of the event first."""

    def rank(name: str) -> tuple[bool, bool, bool]:
        return name in lacking, bool(_ASIDE.search(name.lower())), fields[name].dates

    return sorted((name for name, of in fields.items() if of.type == "time"), key=rank)


def file_columns(path: Path, *, cells: bool) -> SampleColumns:
    """Read the first records of a CSV (`cells`) or of JSON lines and return their columns."""
    ending = ".csv" if cells else ".jsonl"
    if not path.name.removesuffix(".gz").endswith(ending):
        raise UsageError(f"{path}: the name must end in {ending} or {ending}.gz")
    with opened_data(path) as (file, _):
        lines = list(islice(lines_of(file), SAMPLE + 1))
    encoding = encoding_of(b"".join(lines)) if cells else UTF_8
    rows = [row.value for row in plain_rows(lines, cells=cells, encoding=encoding)][:SAMPLE]
    names = column_names(path, encoding) if cells else []
    named, unnamed = nameable(names), len(names) - len(nameable(names))
    return replace(_columns(rows, named), cells=cells, unnamed=unnamed, encoding=encoding)


def encoding_of(text: bytes) -> str:
    """Return what a text is likely to be in: UTF-8, or else what is usual in Western Europe.

    >>> encoding_of("Köln".encode()), encoding_of("Köln".encode("latin-1")), encoding_of("5 €".encode("cp1252"))
    ('utf-8', 'latin-1', 'cp1252')
    """
    try:
        text.decode()
    except UnicodeDecodeError:
        return "cp1252" if any(0x80 <= byte < 0xA0 for byte in text) else "latin-1"
    return UTF_8


async def topic_columns(settings: KafkaSettings, topic: str) -> SampleColumns:
    """Return the columns of a topic's last records; raise WorldError if the topic is missing or cannot be read."""
    read = Reading(beside=AllKeysAndHeaders())
    sample = await sample_topic(settings, topic, SAMPLE, marks=False, read=read)
    payloads = [value for batch in sample.batches for value in batch.records.values if value]
    if payloads and not any(value[0] for value in payloads):
        raise UsageError(
            f"topic {topic}: each value begins with a zero byte and the number of a schema "
            "(Confluent's wire format). Give some records as JSON lines (--jsonl), and then add "
            "`values:` to `source:` in the proposed file"
        )
    async with administering(settings, f"topic {topic}") as admin:
        is_stamped = stamped(await config(admin, topic))
    sampled = _columns(map(json_object, payloads), ())
    return replace(sampled, columns=_with_beside(sampled.columns), stamped=is_stamped)


def _with_beside(columns: Sequence[Column]) -> list[Column]:
    """Return the columns with those of key and headers under names of their own; a key that some value repeats is left
    out, for it is `keyed_by`.
    """
    plain = [column for column in columns if not column.name.startswith((KEY_PLACE, HEADER_PLACE))]
    taken = {column.name for column in plain}
    for column in columns:
        if column.name == KEY_PLACE:
            if any(list(map(str, other.values)) == column.values for other in plain):
                continue
            name, column.beside = "key", {"from_key": "true"}
        elif column.name.startswith(HEADER_PLACE):
            name = column.name.removeprefix(HEADER_PLACE)
            column.beside = {"from_header": yaml_key(name)}
        else:
            continue
        column.name = f"record_{name}" if name in taken else name
        taken.add(column.name)
        plain.append(column)
    return plain


def _columns(rows: Iterable[Mapping[str, Any] | None], names: Sequence[str]) -> SampleColumns:
    """Return the columns of rows, in the order of `names`, then of appearance; raise UsageError without rows."""
    everything = list(rows)
    records = [row for row in everything if row is not None]
    if not records:
        raise UsageError(_NOTHING)
    columns = {(name, False): Column(name, len(records)) for name in names}
    for row in records:
        for name, placed, value in _within(row):
            column = columns.setdefault((name, placed), Column(name, len(records), [], placed))
            column.values.append(value)
    columns = {
        (name, placed): column
        for (name, placed), column in columns.items()
        if not (placed and (name, False) in columns) and not _is_object(column, columns)
    }
    frequent = [
        column
        for column in columns.values()
        if names or len(column.values) * _ONE_IN >= len(records)
    ]
    rare = len(columns) - len(frequent)
    return SampleColumns(frequent, len(records), len(everything) - len(records), rare)


def _within(row: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, bool, Any]]:
    """Yield the values of an object and of those in it, each with its name, or its path and True; of a list of objects
    the texts in all of them.
    """
    for key, value in row.items():
        name = f"{above}.{key}" if above else key
        nameable = "." not in key and key
        if isinstance(value, dict) and value and nameable:
            yield from _within(value, name)
        elif nameable and (lists := _texts_within(value)):
            for inner, texts in lists.items():
                yield f"{name}{ENTRIES}.{inner}", True, texts
        elif not above or ("." not in key and key):
            yield name, bool(above), value


def _is_object(column: Column, columns: Iterable[tuple[str, bool]]) -> bool:
    """Return whether there are values within this one, which itself is null where it is no object."""
    above = (f"{column.name}.", f"{column.name}{ENTRIES}.")
    within = any(placed and name.startswith(above) for name, placed in columns)
    return within and not any(value not in ({}, []) for value in column.there)


def _texts_within(value: object) -> dict[str, list[object]]:
    """Return the texts in the entries of a list of objects, by their key."""
    entries = value if isinstance(value, list) else []
    if not all(isinstance(entry, dict) for entry in entries):
        return {}
    lists: dict[str, list[object]] = {}
    for key, found in chain.from_iterable(entry.items() for entry in entries):
        lists.setdefault(key, []).append(found)
    nameable = (key for key in lists if key and "." not in key)
    return {key: lists[key] for key in nameable if all(map(_is_text, lists[key]))}


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFAULTED: Final = "journal"  # follows from the source
_AS_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_AS_BOOLEAN: Final = {"type": "string", "enum": ["true", "false"]}
_AS_INTEGER: Final = {"type": "string", "pattern": r"^[+-]?\d+$"}


class _AsYaml(GenerateJsonSchema):
    """Models as YAML writes them: every scalar is a text to the reader, but has a type for an editor."""

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return {"$schema": DIALECT, **super().generate(schema, mode)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """A title would repeat the key."""
        return False

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        return {**super().str_schema(schema), **_AS_SCALAR}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), _AS_INTEGER]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"anyOf": [super().bool_schema(schema), _AS_BOOLEAN]}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Drop null: an optional key is left out, because a key without a value is refused."""
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, *args: Any, **named: Any) -> bool:
        """Require a model's tag, whose default is only for programs."""
        inner = field["schema"]
        tag = inner["schema"] if inner["type"] == "default" else {"type": ""}
        is_tag = tag["type"] == "literal" and tag["expected"] == [inner.get("default")]
        return is_tag or super().field_is_required(field, *args, **named)


def pipeline_schema() -> dict[str, Any]:
    schema = PipelineSpec.model_json_schema(schema_generator=_AsYaml)
    schema["required"].remove(_DEFAULTED)
    return schema


def schema_text() -> str:
    """Return the schema of a whole pipeline file as JSON; nothing is read for it."""
    return json.dumps(pipeline_schema(), indent=1)
