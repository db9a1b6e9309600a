"""From a JSON payload to the few fields that the series need, or to the reason why not.

Rules: one record is decoded at a time, so none can influence another; a bad one never drops its batch. Types are
strict: 60.0 is no integer, "60" is no number, integers have 64 bits, a list has texts and no more of them than
declared. A nullable field may be null or absent, and so may an object of which only such fields are read. Other fields
are skipped. Plain lists are read together, which decides nothing: what is not plain is decoded strictly. A refusal
keeps a reason code and a field name of the schema, never the decoder's message, which may carry content. Nothing a
payload holds raises out of here.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, compress, islice
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from stream_dp.core.mechanism import IntArray
from stream_dp.core.time import EPOCH_FLOAT, EPOCH_UNITS, TickGrid, TimeForm, float_moments
from stream_dp.journal.dead_letters import MISSING_FIELD, NOT_JSON, TOO_MANY_ENTRIES, WRONG_TYPE
from stream_dp.records.list_columns import Entries, ListReader
from stream_dp.records.native import FEWEST, Column, Made, Plan, Values, plan_of, told
from stream_dp.records.schema import (
    ENTRIES,
    MOST_OF_PATH,
    CategoryField,
    ListField,
    TextField,
    TimeField,
    formula_of,
    key_path,
)

OUTSIDE: Final = -1  # the time lies outside the grid
NO_TIME: Final = -2  # it is no time
_UNKNOWN = -3  # the number of the first new time in a reading; the next ones have -4, -5 and so on
_CACHED_TIMES = 1 << 14
_AT_ONCE = 1 << 12
_LONGEST_TIME = 40
_NONE = np.empty(0, np.int64)
_ENDLESS = 2**62  # milliseconds


class OwnTicks:
    """The ticks of times of one form on a grid; each depends on its own time alone."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        self._grid, self._unit = grid, EPOCH_UNITS.get(form.format)
        self._floats = form.format == EPOCH_FLOAT
        self._tick_of = _Ticks(grid, form)

    def of(self, times: Iterable[Any], number: int) -> IntArray:
        """Return the tick of each of `number` times; `OUTSIDE` or `NO_TIME` where there is none."""
        if self._unit is not None:
            return self._of_integers(np.fromiter(times, np.int64, number), *self._unit)
        if self._floats:
            moments = float_moments(np.fromiter(times, np.float64, number))
            within = np.abs(moments) < _ENDLESS
            counts = np.where(within, moments, 0).astype(np.int64)
            return np.where(within, self._of_integers(counts, 1, 1), OUTSIDE)
        every = iter(times)
        parts = [
            self._tick_of.of(list(islice(every, _AT_ONCE))) for _ in range(0, number, _AT_ONCE)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])

    def _of_integers(self, counts: IntArray, times: int, over: int) -> IntArray:
        grid = self._grid
        end = _ENDLESS // over if grid.horizon is None else grid.start(grid.horizon)
        low, high = (-(-moment * over // times) for moment in (grid.origin, end))
        inside = (counts >= low) & (counts < high)
        # of what is outside it could overflow
        moments = np.where(inside, counts, 0) * times // over
        return np.where(inside, (moments - grid.origin) // grid.step, OUTSIDE)


class _Ticks(dict[str, int]):
    """From the text of a time to its tick; remembers short texts, and no more than it has room for."""

    def __init__(self, grid: TickGrid, form: TimeForm) -> None:
        super().__init__()
        self._find, self._form = grid.find, form
        self._new: list[str] = []

    def of(self, times: Sequence[str]) -> IntArray:
        """Return the tick of each time; those that are new are read together."""
        new: list[str] = []
        self._new = new
        try:
            ticks = np.fromiter(map(self.__getitem__, times), np.int64, len(times))
            if new:
                places = ticks <= _UNKNOWN
                ticks[places] = np.array(self._read(new), np.int64)[_UNKNOWN - ticks[places]]
        except BaseException:
            self.clear()  # it may hold numbers of new times in place of ticks
            raise
        return ticks

    def __missing__(self, time: Any) -> int:
        self[time] = number = _UNKNOWN - len(self._new)
        self._new.append(time)
        return number

    def _read(self, new: list[str]) -> list[int]:
        """Return the ticks of new times, which have numbers here, and remember them as far as there is room."""
        moments = self._form.parse_all(new)
        ticks = [NO_TIME if moment is None else self._tick(moment) for moment in moments]
        known = dict(zip(new, ticks, strict=True))
        for time in [time for time in new if len(time) > _LONGEST_TIME]:
            del self[time], known[time]
        if len(self) > _CACHED_TIMES:
            self.clear()
            known = dict(islice(known.items(), _CACHED_TIMES))
        self.update(known)
        return ticks

    def _tick(self, moment: int) -> int:
        tick = self._find(moment)
        return OUTSIDE if tick is None else tick


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Mapping[str, Any] = {
    "category": str,
    "text": str,
    "integer": Int64,
    "number": float,
    "boolean": bool,
}
_ENTRY = re.compile(r"\[\d+\](?=[.`])")  # how a list's entry is called, behind the list's name
_TOO_LONG = "Expected `array` of length <= "
_REST = 15
_OFTEN = 128  # one record in so many may be refused at first: it takes five times as long
MOST_ODD = 0.1  # of the records in columns; with more, columns take longer than they save
_MOST_KNOWN = 1024  # a larger domain takes longer to look through than its texts to make
# TypeError: a payload that is None (a Kafka tombstone); RecursionError: nested without end.
_REFUSALS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError)


class Refusal(NamedTuple):
    """Why a record cannot be used; `position` counts within the batch."""

    position: int
    reason: str
    field: str | None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of a batch that could be read, where they stood, the refusals, and the entries of lists.

    Lists go by their attributes; only a `ListDecoder` finds their entries. `units`: how many of the totals that series
    share each record adds, by the field that each is of, as a guard has said. `columns` are fields, by their
    attributes, that were read without an object for each record.
    """

    records: Sequence[Any]
    positions: Sequence[int]
    refused: list[Refusal]
    lists: Mapping[str, Entries] = field(default_factory=dict)
    units: Mapping[str, IntArray] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)

    def values(self, attribute: str) -> list[Any]:
        """Return a field's value in each record."""
        column = self.columns.get(attribute)
        found = None if column is None else column.objects()
        return list(map(attrgetter(attribute), self.records)) if found is None else found

    def at(self, places: IntArray) -> "Decoded":
        order = places.tolist()
        whole = isinstance(self.positions, range)  # then each stands at its place
        positions = order if whole else list(map(self.positions.__getitem__, order))
        lists = {name: entries.at(places) for name, entries in self.lists.items()}
        units = {of: each[places] for of, each in self.units.items()}
        columns = {name: column.at(places) for name, column in self.columns.items()}
        records = self._some(lambda: list(map(self.records.__getitem__, order)), len(order))
        return Decoded(records, positions, self.refused, lists, units, columns)

    def _some(self, make: Callable[[], list[Any]], number: int) -> Sequence[Any]:
        return Made(number, make) if self.columns else make()

    def beside(self, other: "Decoded") -> "Decoded":
        """Return the records and refusals of both, in the order of their batch."""
        both = Decoded.joined((self, other))
        return both.at(np.argsort(np.array(both.positions, np.int64)))

    @classmethod
    def joined(cls, parts: Sequence["Decoded"]) -> "Decoded":
        """Return the records and refusals of all parts, of one at least, one part behind the other."""
        if len(parts) == 1:
            return parts[0]
        numbers = [len(part.records) for part in parts]
        places = np.split(np.arange(sum(numbers)), np.cumsum(numbers)[:-1])
        lists = {}
        for name in parts[0].lists:
            entries = [part.lists[name] for part in parts]
            owners = [own.of(here) for own, here in zip(entries, places, strict=True)]
            codes = np.concatenate([own.codes for own in entries])
            lists[name] = Entries(codes, np.concatenate(owners))
        return cls(
            list(chain.from_iterable(part.records for part in parts)),
            list(chain.from_iterable(part.positions for part in parts)),
            list(chain.from_iterable(part.refused for part in parts)),
            lists,
        )

    def part(self, stays: Sequence[bool]) -> "Decoded":
        """Return what was decoded of the payloads that stay in their batch, with their new positions."""
        kept = list(map(stays.__getitem__, self.positions))
        records = self._some(lambda: list(compress(self.records, kept)), sum(kept))
        staying = np.flatnonzero(kept) if self.lists or self.columns else _NONE
        lists = {name: entries.at(staying) for name, entries in self.lists.items()}
        columns = {name: column.at(staying) for name, column in self.columns.items()}
        refused = [dead for dead in self.refused if stays[dead.position]]
        if not refused:
            return Decoded(records, range(len(records)), [], lists, columns=columns)
        places = [place - 1 for place in accumulate(stays)]
        positions = [places[position] for position in compress(self.positions, kept)]
        refused = [dead._replace(position=places[dead.position]) for dead in refused]
        return Decoded(records, positions, refused, lists, columns=columns)


class RecordDecoder:
    """Decodes records of the given fields; each field becomes the attribute `attribute(name)`, for `attrgetter`."""

    def __init__(self, fields: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> None:
        """`fields` are the used fields of the `schema`: decoders of one schema call a field the same."""
        made = {name: of for name, field in fields.items() if (of := formula_of(field)) is not None}
        sources = dict.fromkeys(name for of in made.values() for name in of.names)
        if made and schema is not None:
            lying = {name: field for name, field in fields.items() if name not in made}
            fields = {name: schema[name] for name in sources} | lying
        numbers = {name: i for i, name in enumerate(fields if schema is None else schema)}
        self._paths = {name: key_path(name, field) for name, field in fields.items()}
        self._leaves = {name: f"f{numbers[name]}" for name in fields}
        self._attributes = {
            name: ".".join([*map(node, path[:-1]), self._leaves[name]])
            for name, path in self._paths.items()
        }
        self._tables = [
            (self._attributes[name].rpartition(".")[0], self._leaves[name], field.map)
            for name, field in fields.items()
            if isinstance(field, CategoryField) and field.map is not None
        ]
        self._sources = {name: attrgetter(self._attributes[name]) for name in sources}
        self._made = {f"f{numbers[name]}": of for name, of in made.items()}
        self._attributes |= {name: f"f{numbers[name]}" for name in made}
        self._fields = fields
        self._beside = {name for name, each in fields.items() if each.beside}
        self._objects: dict[tuple[str, ...], dict[str, ListField]] = {}
        """The fields that read a list of objects, by where it lies."""
        for name, each in fields.items():
            if isinstance(each, ListField) and each.inner:
                self._objects.setdefault(self._paths[name], {})[name] = each
                self._attributes[name] = self._leaves[name]
        self._parts = [
            (
                attrgetter(".".join([*map(node, path[:-1]), self._list_of(readers)])),
                self._leaves[name],
                attrgetter(".".join([*map(node, field.inner[:-1]), self._leaves[name]])),
            )
            for path, readers in self._objects.items()
            for name, field in readers.items()
        ]
        self._decode = self._decoder_of(_kind)
        self._strict_for = 0  # batches, before texts from the domains are expected again
        self._missing, self._wrong = dict[str, str](), dict[str, str]()
        for name, path in self._paths.items():
            listed = isinstance(fields[name], ListField)
            inner = fields[name].inner if listed else ()
            keys = (*path[:-1], f"{path[-1]}{ENTRIES}", *inner) if inner else path
            for depth, key in enumerate(keys):
                above, at = ".".join(("$", *keys[:depth])), ".".join(("$", *keys[: depth + 1]))
                place = f" - at `{above}`" if depth else ""
                if not _optional(fields[name]):  # what is below it may be absent, and so may it
                    lacking = key.removesuffix(ENTRIES) if inner else key
                    lacks = f"Object missing required field `{lacking}`{place}"
                    self._missing.setdefault(lacks, name)
                self._wrong.setdefault(f"`{at}`", name)
            if listed:
                at = ".".join(("$", *path))
                self._wrong.setdefault(f"`{at}`", name)
                self._wrong.setdefault(f"`{at}{ENTRIES}`", name)

    def _list_of(self, readers: Mapping[str, ListField]) -> str:
        """Return the attribute of a list of objects which these fields read."""
        return f"l{self._leaves[next(iter(readers))]}"

    def _decoder_of(self, kind_of: Callable[[Any], Any]) -> Callable[[bytes], Any]:
        leaves = [
            (self._paths[name], _member(self._leaves[name], field, kind_of))
            for name, field in self._fields.items()
            if self._paths[name] not in self._objects
        ]
        for path, readers in self._objects.items():
            inner = [
                (
                    field.inner,
                    _member(self._leaves[name], TextField(nullable=field.nullable), _kind),
                )
                for name, field in readers.items()
            ]
            most = min(field.most for field in readers.values())
            kind = _listed(record_type(inner), most)
            leaf = self._list_of(readers), kind
            optional = all(field.nullable for field in readers.values())
            leaves.append((path, (leaf[0], kind | None, None) if optional else leaf))
        # Whatever a record has at such a key, longer than any field's, another value takes its place.
        made = [*self._made, *(leaf for _, leaf, _ in self._parts)]
        leaves += [((leaf.ljust(MOST_OF_PATH + 1, "_"),), (leaf, Any, None)) for leaf in made]
        return msgspec.json.Decoder(record_type(leaves)).decode

    def attribute(self, field: str) -> str:
        return self._attributes[field]

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        return self._decoded(payloads, self._first, self._decode)

    @cached_property
    def _first(self) -> Callable[[bytes], Any]:
        """Decodes as `_decode`, but only where categories are in their domains: no texts are made of these."""
        known = any(isinstance(each, CategoryField) for each in self._fields.values())
        return self._decoder_of(_known_kind) if known else self._decode

    def _decoded(
        self, payloads: Sequence[bytes], first: Callable[[bytes], Any], strict: Callable[[bytes], Any]
    ) -> Decoded:  # fmt: skip
        """Decode each payload by `first`, or by `strict` what that refuses."""
        if self._strict_for:
            self._strict_for -= 1
            first = strict
        decoded = self._each(payloads, first, strict)
        for list_of, leaf, text_of in self._parts:
            for record in decoded.records:
                objects = list_of(record)
                texts = None if objects is None else list(map(text_of, objects))
                setattr(record, leaf, texts)
        for above, leaf, table in self._tables:
            objects = map(attrgetter(above), decoded.records) if above else decoded.records
            for each in objects:
                value = getattr(each, leaf)
                setattr(each, leaf, table.get(value, value))
        if self._made:
            columns = {name: [*map(of, decoded.records)] for name, of in self._sources.items()}
            for leaf, formula in self._made.items():
                values = formula.of(columns, len(decoded.records))
                for record, made in zip(decoded.records, values, strict=True):
                    setattr(record, leaf, made)
        return decoded

    def _each(
        self, payloads: Sequence[bytes], first: Callable[[bytes], Any], strict: Callable[[bytes], Any]
    ) -> Decoded:  # fmt: skip
        records, refused, others = list[Any](), list[Refusal](), 0
        reading, often = map(first, payloads), len(payloads) // _OFTEN + 1
        while True:
            try:
                records.extend(reading)  # keeps what was read before an error
                break
            except _REFUSALS:
                position, others = len(records) + len(refused), others + 1
            if others == often:
                self._strict_for, reading = _REST, map(strict, islice(payloads, position + 1, None))
            try:
                records.append(strict(payloads[position]))
            except _REFUSALS as error:
                refused.append(Refusal(position, *self._reason(error)))
        places, dead = range(len(payloads)), {each.position for each in refused}
        positions = [place for place in places if place not in dead] if dead else places
        return Decoded(records, positions, refused)

    def _reason(self, error: Exception) -> tuple[str, str | None]:
        if not isinstance(error, msgspec.ValidationError):
            return NOT_JSON, None
        message = str(error)
        for spelled in (message, _ENTRY.sub(ENTRIES, message)):
            if spelled in self._missing:
                return MISSING_FIELD, self._missing[spelled]
        reason = TOO_MANY_ENTRIES if message.startswith(_TOO_LONG) else WRONG_TYPE
        place = message.partition(" - at ")[2]
        name = self._wrong.get(place) or self._wrong.get(_ENTRY.sub(ENTRIES, place))
        if name in self._beside and "got `null`" in message:
            return MISSING_FIELD, name
        return reason, name


class ListDecoder(RecordDecoder):
    """Decodes records with columns of what their lists hold; lists themselves are not for reading."""

    def __init__(self, fields: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> None:
        super().__init__(fields, schema)
        self._lists = {
            self.attribute(name): ListReader(self._paths[name][-1], field)
            for name, field in fields.items()
            if isinstance(field, ListField)
        }
        self._of_objects = {leaf for _, leaf, _ in self._parts}
        self._plain = self._lists.keys() > self._of_objects
        self._decode_raw = self._decoder_of(_raw_kind) if self._plain else self._decode
        self._rest = 0  # batches that are decoded strictly before plain lists, or plain records, are sought again

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode each payload on its own; lists that are plain are read together."""
        if not self._lists:
            return self._in_columns(payloads) or super().decode(payloads)
        if self._rest or not self._plain:
            self._rest = max(0, self._rest - 1)
            return self._strictly(payloads, range(len(payloads)))
        # its refused payloads are read strictly
        raw = self._decoded(payloads, self._decode_raw, self._decode_raw)
        records, positions = raw.records, raw.positions
        read = payloads if not raw.refused else [payloads[at] for at in positions]
        odd: set[int] = set()
        lists: dict[str, Entries] = {}
        for name, reader in self._lists.items():
            values = list(map(attrgetter(name), records))
            if name in self._of_objects:
                lists[name] = reader.texts(values)
            else:
                lists[name], some = reader.plain(values, read)
                odd |= some
        decoded = Decoded(records, positions, [], lists)
        if not odd and read is payloads:
            return decoded
        if 2 * len(odd) > len(payloads):  # a producer that escapes all that is not ASCII, perhaps
            self._rest = _REST
        plain = decoded.at(np.array([at for at in range(len(records)) if at not in odd], np.int64))
        others = sorted({*range(len(payloads))}.difference(plain.positions))
        return plain.beside(self._strictly(payloads, others))

    @cached_property
    def _step(self) -> Plan | None:
        fields = self._fields.items()
        leaves = [(self._paths[name], self._attributes[name], field) for name, field in fields]
        return None if self._made or self._lists else plan_of(leaves)

    @property
    def says(self) -> str:
        """In words, what decodes."""
        return told(self._step)

    def _in_columns(self, payloads: Sequence[bytes]) -> Decoded | None:
        """Read plain records by the compiled step, and others as without it; None where it is of no use."""
        if self._rest or len(payloads) < FEWEST or self._step is None:
            self._rest = max(0, self._rest - 1)
            return None
        values = Values.of(payloads)
        columns, plain = self._step.read(values)
        odd = np.flatnonzero(~plain)
        if len(odd) > MOST_ODD * len(payloads):
            self._rest = _REST
            return None
        positions: Sequence[int] = range(len(payloads))
        refused, decode = list[Refusal](), super().decode
        if len(odd):
            others = decode(values.chosen(~plain))
            there = odd[np.asarray(others.positions, np.int64)]
            columns = self._step.put(columns, there, others.values)
            plain[there] = True
            places = odd.tolist()
            refused = [dead._replace(position=places[dead.position]) for dead in others.refused]
        if refused:
            kept, values = np.flatnonzero(plain), values.chosen(plain)
            positions = kept.tolist()
            columns = {name: column.at(kept) for name, column in columns.items()}
        records = Made(len(positions), lambda: decode(values).records)
        return Decoded(records, positions, refused, columns=columns)

    def _strictly(self, payloads: Sequence[bytes], places: Sequence[int]) -> Decoded:
        decoded = super().decode([payloads[place] for place in places])
        return Decoded(
            decoded.records,
            [places[position] for position in decoded.positions],
            [dead._replace(position=places[dead.position]) for dead in decoded.refused],
            {
                name: reader.texts(list(map(attrgetter(name), decoded.records)))
                for name, reader in self._lists.items()
            },
        )


Leaf: TypeAlias = tuple[str, Any] | tuple[str, Any, None]
"""The attribute and the type of a value, and None behind them where it may be null or absent."""


def record_type(leaves: Sequence[tuple[Sequence[str], Leaf]]) -> Any:
    """Return the type of JSON objects with these values, each at a path of keys; an object above them is an attribute
    `node(key)`. It may be null or absent if all below it may, which then is null.
    """
    members: list[Leaf] = []
    rename: dict[str, str] = {}
    below: dict[str, list[tuple[Sequence[str], Leaf]]] = {}
    for (key, *rest), leaf in leaves:
        if rest:
            below.setdefault(key, []).append((rest, leaf))
        else:
            members.append(leaf)
            rename[leaf[0]] = key
    absent: dict[str, Any] = {}
    for key, inner in below.items():
        inside, kind = node(key), record_type(inner)
        rename[inside] = key
        if all(len(leaf) > 2 for _, leaf in inner):
            absent[inside] = kind()
            members.append((inside, kind | None, None))
        else:
            members.append((inside, kind))

    def fill(record: Any) -> None:
        for inside, nothing in absent.items():
            if getattr(record, inside) is None:
                setattr(record, inside, nothing)

    filled = {"__post_init__": fill} if absent else {}
    return msgspec.defstruct(
        "Record", members, rename=rename, kw_only=True, gc=False, namespace=filled
    )


def node(key: str) -> str:
    """Return the attribute of the object at this key."""
    return f"o{key.encode().hex()}"


def _optional(field: Any) -> bool:
    return not isinstance(field, TimeField) and field.nullable


def _member(attribute: str, field: Any, kind_of: Callable[[Any], Any]) -> Leaf:
    kind = kind_of(field)
    if not _optional(field):
        return attribute, kind
    # A raw null is raw as well.
    return attribute, kind if kind is msgspec.Raw else kind | None, None


def _listed(entry: Any, most: int) -> Any:
    return Annotated[GenericAlias(list, (entry,)), msgspec.Meta(max_length=most)]


def _kind(field: Any) -> Any:
    if isinstance(field, TimeField):
        if field.format == EPOCH_FLOAT:
            return float
        return Int64 if field.format in EPOCH_UNITS else str
    if isinstance(field, ListField):
        return _listed(str, field.most)
    return _TYPES[field.type]


def _known_kind(field: Any) -> Any:
    if not isinstance(field, CategoryField):
        return _kind(field)
    texts = tuple({**dict.fromkeys(field.domain), **(field.map or {})})
    return Literal[texts] if len(texts) <= _MOST_KNOWN else str


def _raw_kind(field: Any) -> Any:
    return msgspec.Raw if isinstance(field, ListField) else _kind(field)
