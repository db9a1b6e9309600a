"""Reads Protobuf messages of one type of a descriptor set, which `protoc --descriptor_set_out` writes.

Rules: as in `avro`, but a cut between two fields makes another message, which no reader can tell. A field that says
whether it is there (`optional`, a message, one of a `oneof`) is absent where it is not; any other has its default.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from stream_dp.journal.dead_letters import UNKNOWN_SCHEMA, UNREADABLE_VALUE
from stream_dp.records.leaf_values import (
    NO_OBJECT,
    UNFIT,
    Read,
    Wanted,
    double,
    encoded,
    entries,
    entry,
    instant,
    same,
    single,
    unfit,
    wanted,
)
from stream_dp.records.schema import Fields

_Getter: TypeAlias = Callable[[Any], Any]
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPER = re.compile(r"google\.protobuf\.(Bool|Bytes|Double|Float|String|U?Int(32|64))Value")
_NANOS = 10**9


def reader(content: bytes, message: str, fields: Fields, begin: int) -> Read:
    """Return how values of this message, which begin behind `begin` bytes, become JSON with what `fields` need.

    Between comes which message of its file it is. Raises ValueError: it is no descriptor set, or has no such message.
    """
    kind, error = _message(content, message)
    prefixes = _prefixes(kind.DESCRIPTOR)
    parse, parts = kind.FromString, _parts(kind.DESCRIPTOR, wanted(fields))

    def read(payload: bytes) -> bytes | str:
        prefix = next((each for each in prefixes if payload.startswith(each, begin)), None)
        if prefix is None:
            return UNKNOWN_SCHEMA
        try:
            parsed = parse(payload[begin + len(prefix) :])
            return encoded(_object(parsed, parts))
        except (error, ValueError, RecursionError):
            return UNREADABLE_VALUE

    return read


def _message(content: bytes, name: str) -> tuple[Any, type[Exception]]:
    """Return the class of a message, and the error that its parser raises."""
    try:
        from google.protobuf import (
            descriptor_pb2,
            descriptor_pool,
            message,
            message_factory,
            timestamp_pb2,
            wrappers_pb2,
        )
    except ImportError:
        raise ValueError(
            "Protobuf values need the package protobuf: pip install 'stream_dp[protobuf]'"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(_packed(content)).file
        names = {each.name for each in files}
        for known in (timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR):
            if known.name not in names:
                pool.AddSerializedFile(known.serialized_pb)
        for each in files:
            pool.Add(each)
    except (message.DecodeError, TypeError, ValueError):
        raise ValueError(
            "is not a complete descriptor set. Make one with protoc --include_imports "
            "--descriptor_set_out, or use the registry's file of a schema without imports"
        ) from None
    try:
        return message_factory.GetMessageClass(
            pool.FindMessageTypeByName(name)
        ), message.DecodeError
    except KeyError:
        raise ValueError(f"has no message {name!r}") from None


def _packed(content: bytes) -> bytes:
    """Return a descriptor set: this one, or that of the one file which a registry gives in base64."""
    try:
        file = base64.b64decode(content.strip(), validate=True)
    except ValueError:
        return content
    return b"\x0a" + _varint(len(file)) + file


def _prefixes(kind: Any) -> tuple[bytes, ...]:
    """Return how Confluent's wire format says which message of its file comes.

    The numbers of the message and of those around it, from the outside, with how many there are before them; the first
    of a file is also written as a single zero.
    """
    path = []
    while kind is not None:
        above = kind.containing_type
        beside = kind.file.message_types_by_name.values() if above is None else above.nested_types
        path.append([each.full_name for each in beside].index(kind.full_name))
        kind = above
    whole = b"".join(_varint(2 * number) for number in (len(path), *reversed(path)))
    return (b"\0", whole) if path == [0] else (whole,)


def _varint(left: int) -> bytes:
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*written, left))


def _object(message: Any, parts: Mapping[str, _Getter]) -> dict[str, Any]:
    found = ((key, get(message)) for key, get in parts.items())
    return {key: value for key, value in found if value is not _ABSENT}


_ABSENT = object()


def _parts(kind: Any, want: Wanted) -> dict[str, _Getter]:
    known = kind.fields_by_name
    return {key: _getter(known[key], what) for key, what in want.items() if key in known}


def _getter(field: Any, want: Any) -> _Getter:
    """Return what reads `want`, a field or an object's keys, of a message; None where it is not there."""
    name, of, whole = field.name, field.message_type, isinstance(want, dict)
    if of is not None and of.GetOptions().map_entry:
        if not whole or of.fields_by_name["key"].cpp_type != field.CPPTYPE_STRING:
            return lambda message: NO_OBJECT if whole else UNFIT
        values = {key: _shape(of.fields_by_name["value"], what) for key, what in want.items()}
        return lambda message: dict(_of_map(getattr(message, name), values))
    shape = _shape(field, entry(want) if field.is_repeated else want)
    if field.is_repeated:
        most = 0 if whole else entries(want)
        if not most:
            return lambda message: NO_OBJECT if whole else UNFIT
        return lambda message: [shape(each) for each in getattr(message, name)[:most]]
    if not field.has_presence:
        return lambda message: shape(getattr(message, name))
    return lambda message: shape(getattr(message, name)) if message.HasField(name) else _ABSENT


def _of_map(held: Any, values: Mapping[str, _Getter]) -> Iterator[tuple[str, Any]]:
    return ((key, shape(held[key])) for key, shape in values.items() if key in held)


def _shape(field: Any, want: Any) -> _Getter:
    """Return what a single value of a field is in JSON."""
    kind, of = field.cpp_type, field.message_type
    if of is not None:
        if isinstance(want, dict):
            parts = _parts(of, want)
            return lambda message: _object(message, parts)
        if of.full_name == _TIMESTAMP:
            shape = instant(want, _NANOS)
            return lambda stamp: shape(stamp.seconds * _NANOS + stamp.nanos)
        if _WRAPPER.fullmatch(of.full_name):
            inner = _shape(of.fields_by_name["value"], want)
            return lambda wrapper: inner(wrapper.value)
        return unfit
    if isinstance(want, dict):
        return lambda value: NO_OBJECT
    if field.enum_type is not None:
        symbols = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: symbols.get(number, str(number))
    if field.type == field.TYPE_BYTES:
        return unfit
    return {field.CPPTYPE_FLOAT: single, field.CPPTYPE_DOUBLE: double}.get(kind, same)
