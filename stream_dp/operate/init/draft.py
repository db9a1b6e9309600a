"""The text of a first pipeline file: commented, with marked places for the operator's decisions.

Rules: no part of the text comes from a value of the data. Names of columns do; they are quoted if YAML would read
them as something else. The file can be run once the marked places are filled in.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from stream_dp.operate.init.column import OPEN, ProposedType, is_numbered, names_people
from stream_dp.records.scalars import UNDECLARED, FieldName

SCHEMA_FILE = "pipeline.schema.json"
_FIELD: TypeAdapter[str] = TypeAdapter(FieldName)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_SAID_OTHERWISE = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
_NAMING = ("text", "integer", "category")
_COUNTED = ("category", "list")
_DECLARES = {
    "domain": "the values that may come, such as [DE, FR]; anything else counts in `other`",
    "most": "how many of them one record counts in, such as 5",
    "zone": "such as Europe/Berlin or UTC",
}
_MOST_SERIES = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of the file: its name, the lines of its source, and the proposed type of each field.

    `timed` is the field whose times a replay clock uses; None: the brokers' stamps are used.
    """

    name: str
    source: Sequence[str]
    fields: Mapping[str, ProposedType]
    timed: str | None = None

    def text(self) -> str:
        """Return the text of the file."""
        parts = (
            self._head(), self._source(), self._schema(), self._privacy(), self._clock(), self._series(),
        )  # fmt: skip
        return "\n".join(["\n".join(part) + "\n" for part in parts])

    @property
    def open_places(self) -> int:
        """Number of places that the operator must fill in."""
        clock = 0 if self.timed is None else len(("start", "horizon"))
        return clock + sum(each.open for each in self.declared.values())

    def told(self, name: str) -> ProposedType:
        """Return the proposal for a column, with the reason if it cannot be a field."""
        found = self.fields[name]
        if found.why_not or name in self.declared:
            return found
        return ProposedType(why_not="has a name that no field can have: left out")

    @property
    def declared(self) -> dict[str, ProposedType]:
        """The columns that can be fields."""
        return {name: each for name, each in self.fields.items() if each.type and _is_field(name)}

    def _head(self) -> Iterator[str]:
        yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
        yield f"# For editors: `stream-dp schema > {SCHEMA_FILE}`. What is yours to say is marked: {UNDECLARED}."
        yield "# Whatever stands here is public: declare it from what you know, never by looking at the data."
        yield "# Fields that no series of yours needs can be deleted."
        yield "version: 1"
        yield f"name: {self.name}"

    def _source(self) -> Iterator[str]:
        yield "source:"
        yield from (f"  {line}" for line in self.source)

    def _schema(self) -> Iterator[str]:
        yield "schema:   # the fields that series may use; a record that does not fit is a dead letter"
        for name, each in self.fields.items():
            if name in self.declared:
                yield from _field(name, each)
            else:
                yield f"  # {json.dumps(name)} {self.told(name).why_not}"

    def _privacy(self) -> Iterator[str]:
        people = sorted(
            (
                name
                for name, each in self.declared.items()
                if each.type in _NAMING and names_people(name)
            ),
            key=lambda name: not is_numbered(name),
        )
        yield "privacy:"
        yield "  unit: event             # each single record is protected"
        if people:
            yield "  # Where one person has many records, protect all of them together:"
            yield "  # unit: user"
            yield f"  # user: {yaml_key(people[0])}"
            yield "  # max_events: 20        # so many of one user's records count ..."
            yield "  # per: 1d               # ... in each day"
        yield "  neighbors: add_remove   # whether it is there at all"
        yield "  epsilon: 1              # the whole budget, for ever: smaller is more private and less exact"

    def _clock(self) -> Iterator[str]:
        yield "clock:"
        if self.timed is None:
            yield "  kind: wall              # the brokers' stamps decide (the topic has LogAppendTime)"
            yield "  step: 1m                # one release of each series a minute"
            yield "  delay: 2s"
            return
        yield "  kind: replay            # the records' own times decide; they are declared public"
        yield f"  field: {yaml_key(self.timed)}"
        yield f"  start: {UNDECLARED}     # such as 2024-01-01T00:00:00Z; records before it do not count"
        yield "  step: 1h                # one release of each series an hour"
        yield f"  horizon: {UNDECLARED}   # how many steps, such as 8760 for a year; records after it do not count"

    def _series(self) -> Iterator[str]:
        yield "series:   # what is released; their epsilons add up, what they leave is for live series"
        yield "  - {name: events, statistic: count, epsilon: 0.2}"
        counted = [name for name, each in self.declared.items() if each.type in _COUNTED]
        taken = {"events"}
        for name in counted[:_MOST_SERIES]:
            called = _series_name(f"by_{name}", taken)
            yield f"  - {{name: {called}, statistic: histogram, by: {yaml_key(name)}, epsilon: 0.2}}"
        for name in [n for n, each in self.declared.items() if each.type == "boolean"][:1]:
            called = _series_name(name, taken)
            where = f"where: [{{field: {yaml_key(name)}, equals: true}}]"
            yield f"  - {{name: {called}, statistic: count, {where}, epsilon: 0.2}}"
        yield "confidence: 0.95"


def _field(name: str, each: ProposedType) -> Iterator[str]:
    """Yield the lines of a field; each open key has its own line, with a comment about the value to write."""
    nullable = ["nullable: true"] if each.nullable else []
    note = f"   # {each.note}" if each.note else ""
    if not each.open:
        keys = [f"{k}: {value}" for k, value in each.keys.items()]
        yield f"  {yaml_key(name)}: {{{', '.join([f'type: {each.type}', *keys, *nullable])}}}{note}"
        return
    yield f"  {yaml_key(name)}:{note}"
    yield f"    type: {each.type}"
    for k, value in each.keys.items():
        marked = f"{UNDECLARED}: " if value != UNDECLARED else ""
        wanted = f"   # {marked}{_DECLARES[k]}" if value in OPEN else ""
        yield f"    {k}: {value}{wanted}"
    yield from (f"    {line}" for line in nullable)


def yaml_key(name: str) -> str:
    """A name as YAML reads it as this text and nothing else.

    >>> yaml_key("amount"), yaml_key("on"), yaml_key("a: b")
    ('amount', '"on"', '"a: b"')
    """
    plain = _PLAIN.fullmatch(name) is not None and name.lower() not in _SAID_OTHERWISE
    return name if plain else json.dumps(name, ensure_ascii=False)


def lower_name(text: str) -> str:
    """A name that a pipeline or a series may have, after this text; empty where nothing of it is left.

    >>> lower_name("by_Net Amount (EUR)"), lower_name("Ü")
    ('by_net_amount_eur', '')
    """
    return re.sub(r"[^a-z0-9.-]+", "_", text.lower()).strip("_.-")[:50]


def _series_name(wanted: str, taken: set[str]) -> str:
    name = base = lower_name(wanted) or "series"
    number = 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name


def _is_field(name: str) -> bool:
    try:
        _FIELD.validate_python(name)
    except ValidationError:
        return False
    return True
