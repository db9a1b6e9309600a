"""Fields whose values are texts outside of JSON: cells of a table, and the key and the headers of a Kafka record.

Rules: a text is converted to the declared type, and one that does not convert stays a text, so it fits no number. Key
and headers join the JSON of their record's value as its last members, under names that no field can have. So the
decoder reads them like any other field, and what a record is depends on that record alone: what is no object stays
none, and a member of a value under such a name is overruled. Of headers of one name the last counts, among the first
`MOST_HEADERS` of the record. A missing header, a header without a value and a missing key are null, so that no member
of a value passes for one.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from stream_dp.core.time import EPOCH_FLOAT
from stream_dp.records.leaf_values import Read
from stream_dp.records.schema import (
    HEADER_PLACE,
    KEY_PLACE,
    Fields,
    FieldSpec,
    ListField,
    NumberField,
    TimeField,
    key_path,
)

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
MOST_HEADERS: Final = 64  # of a record that are read
WITH_COMMA = re.compile(r"-?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]+)?", re.ASCII)
"""A number with a decimal comma; points may group its thousands."""
_INTEGER = re.compile(r"-?[0-9]{1,400}")
_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_UNFIT = b"{}"
_PLACED = b'"\x7f.'  # begins both places
_SPACES = b" \t\r\n"
_encoded = msgspec.json.Encoder().encode


def _number(text: str) -> int | float | str:
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


def _with_comma(text: str) -> int | float | str:
    match = WITH_COMMA.fullmatch(text)
    return text if match is None else _number(text.replace(".", "").replace(",", "."))


def _integer(text: str) -> int | str:
    return int(text) if _INTEGER.fullmatch(text) else text


_CONVERT: Mapping[str, Callable[[str], object]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda text: _BOOLEANS.get(text.lower(), text),
    "time": _integer,
}


def text_reader(field: FieldSpec) -> Callable[[str], object]:
    """Return a converter of texts to the declared type; other texts stay texts."""
    if isinstance(field, ListField) and (separator := field.separator) is not None:
        return lambda text: text.split(separator) if text else []
    if isinstance(field, TimeField) and field.form.patterned:
        return str
    if isinstance(field, TimeField) and field.format == EPOCH_FLOAT:
        return _number
    if isinstance(field, NumberField) and field.decimal == ",":
        return _with_comma
    return _CONVERT.get(field.type, str)


def cell_reader(field: FieldSpec) -> Callable[[str], object]:
    """Return a converter of CSV cells as `text_reader` does; an empty cell is None, or an empty list."""
    convert = text_reader(field)
    listed = isinstance(field, ListField) and field.separator is not None
    return lambda cell: convert(cell) if cell or listed else None


def joined(value: bytes, members: bytes) -> bytes:
    """Return the JSON object `value` with more members behind its own; what is no object stays as it is.

    >>> joined(b'{"a":1} ', b'"b":2'), joined(b"{ }", b'"b":2'), joined(b"[1]", b'"b":2')
    (b'{"a":1,"b":2}', b'{ "b":2}', b'[1]')
    """
    value = value.rstrip(_SPACES)
    if not members or not value.endswith(b"}"):
        return value
    # It is an object with the members if and only if it is one without them: before the last brace of an object a
    # member has ended, or none has begun.
    begun = value[:-1]
    return b"%b%b%b}" % (begun, b"" if begun.strip(_SPACES) == b"{" else b",", members)


class KeyAndHeaders:
    """The fields that lie in the key or in a header of their record."""

    def __init__(self, fields: Fields) -> None:
        beside = {name: field for name, field in fields.items() if field.beside}
        self._of_key: Callable[[bytes | None], bytes] | None = None
        self._of_header: dict[str, Callable[[bytes | None], bytes]] = {}
        for name, field in beside.items():
            member = _member(key_path(name, field)[0], text_reader(field))
            if field.from_header is None:
                self._of_key = member
            else:
                self._of_header[field.from_header] = member
        own = [(f"f{at}", msgspec.Raw, msgspec.Raw()) for at in range(len(beside))]
        rename = {f"f{at}": name for at, name in enumerate(beside)}
        record = msgspec.defstruct("Own", own, rename=rename)
        self._own = msgspec.json.Decoder(record).decode
        self._beside = list(beside.values())

    @classmethod
    def of(cls, fields: Fields) -> "KeyAndHeaders | None":
        """Return those among these fields; None: there are none."""
        return cls(fields) if any(field.beside for field in fields.values()) else None

    def members(self, key: bytes | None, headers: Headers) -> bytes:
        """Return key and headers as members of a JSON object, without its braces."""
        found = [] if self._of_key is None else [self._of_key(key)]
        if self._of_header:
            last = dict(headers[:MOST_HEADERS])
            found += [member(last.get(name)) for name, member in self._of_header.items()]
        return b",".join(found)

    def sent(self, payload: bytes) -> tuple[bytes | None, list[tuple[str, bytes]]]:
        """Return the key and the headers with which `send`, `replay` and agents write a record: its members under the
        names of these fields.
        """
        try:
            own = self._own(payload)
            texts = [
                _text(field, bytes(getattr(own, f"f{at}"))) for at, field in enumerate(self._beside)
            ]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None, []
        written = [(f.from_header, text) for f, text in zip(self._beside, texts, strict=True)]
        key = next((text for header, text in written if header is None), None)
        return key, [(header, text) for header, text in written if header and text is not None]

    def placed(self, payload: bytes) -> bytes:
        """Return the payload with key and headers as a reader would find them if it were sent; one that was read from a
        topic has its own.
        """
        if _PLACED in payload:
            return payload
        return joined(payload, self.members(*self.sent(payload)))


class AllKeysAndHeaders:
    """The key and all headers as texts, for a look at records without a schema."""

    def members(self, key: bytes | None, headers: Headers) -> bytes:
        places = {KEY_PLACE: key}
        places |= {f"{HEADER_PLACE}{name}": value for name, value in headers[:MOST_HEADERS]}
        texts = {place: _utf8(value) for place, value in places.items() if value is not None}
        return _encoded({place: text for place, text in texts.items() if text is not None})[1:-1]


class Reading(NamedTuple):
    """How a topic's records become JSON: what reads values that are none, and which keys and headers join them."""

    value: Read | None = None
    beside: KeyAndHeaders | AllKeysAndHeaders | None = None


Sent: TypeAlias = Callable[[bytes], tuple[bytes | None, list[tuple[str, bytes]]]]
"""From a payload to the key and the headers that it is written with."""


def value_alone(_: bytes) -> tuple[None, list[tuple[str, bytes]]]:
    return None, []


def sent_with(fields: Fields) -> Sent:
    """Return how programs that feed a topic write key and headers of records with these fields."""
    beside = KeyAndHeaders.of(fields)
    return value_alone if beside is None else beside.sent


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _member(place: str, convert: Callable[[str], object]) -> Callable[[bytes | None], bytes]:
    label = _encoded(place) + b":"
    missing = label + b"null"

    def member(data: bytes | None) -> bytes:
        if data is None:
            return missing
        text = _utf8(data)
        if text is None:
            return label + _UNFIT
        value = convert(text)
        return label + (b"%d" % value if type(value) is int else _encoded(value))

    return member


def _text(field: FieldSpec, raw: bytes) -> bytes | None:
    """Return how a JSON value is written into a key or a header; None: it is not."""
    if raw in (b"", b"null"):
        return None
    if raw[:1] == b'"':
        text: str = msgspec.json.decode(raw)
        return text.encode()
    entries: Any = msgspec.json.decode(raw) if isinstance(field, ListField) else None
    if isinstance(entries, list) and all(isinstance(entry, str) for entry in entries):
        return str(getattr(field, "separator", None) or ",").join(entries).encode()
    return raw
