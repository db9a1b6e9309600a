"""Reads Avro's binary encoding of records of one writer schema.

Rules: what a record is depends on its bytes and on the schema, never on other records or on how deep the program is:
nesting has a limit here. Lengths are checked before anything is read, so no bytes take more memory than they have;
items without bytes are limited, too. All bytes of a value belong to its record, no more and no fewer. What no field of
the pipeline needs is passed over. No library reads here, for what counts must not change with one: of those there are,
fastavro dies of a value that is nested without end, and takes numbers below 0 for branches and symbols.
"""

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from stream_dp.journal.dead_letters import UNREADABLE_VALUE
from stream_dp.records.leaf_values import (
    MICROS,
    NO_OBJECT,
    UNFIT,
    Read,
    Shape,
    Wanted,
    date,
    decimal,
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

MOST_NESTED: Final = 64
"""Records, arrays and maps within each other; a value that is nested more deeply cannot be read."""
_SINGLE, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_INSTANTS = {"millis": 1000, "micros": MICROS, "nanos": 10**9}
_UUID_BYTES = 16


class _Cursor:
    """A place in a value; `items` of arrays and maps were read, and `depth` of these and of records are open."""

    __slots__ = ("at", "data", "depth", "items")

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.items, self.depth = data, at, 0, 0


_Reader: TypeAlias = Callable[[_Cursor], Any]
_FAILURES = (ValueError, IndexError, struct.error)


def reader(text: bytes, fields: Fields, begin: int) -> Read:
    """Return how values of this schema, which begin behind `begin` bytes, become JSON with what `fields` need.

    Raises ValueError: it is no schema of records.
    """
    root = _Compiled(text).reader(wanted(fields))

    def read(payload: bytes) -> bytes | str:
        cursor = _Cursor(payload, begin)
        try:
            value = root(cursor)
        except _FAILURES:
            return UNREADABLE_VALUE
        return encoded(value) if cursor.at == len(payload) else UNREADABLE_VALUE

    return read


def _null(_: _Cursor) -> None:
    return None


def _boolean(cursor: _Cursor) -> bool:
    byte = cursor.data[cursor.at]
    if byte > 1:
        raise ValueError
    cursor.at += 1
    return byte == 1


def _long(cursor: _Cursor) -> int:
    data, at = cursor.data, cursor.at
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or value >> 64:
            raise ValueError
    cursor.at = at + 1
    return (value >> 1) ^ -(value & 1)


def _float(cursor: _Cursor) -> Any:
    cursor.at += 4
    return _SINGLE.unpack_from(cursor.data, cursor.at - 4)[0]


def _double(cursor: _Cursor) -> Any:
    cursor.at += 8
    return _DOUBLE.unpack_from(cursor.data, cursor.at - 8)[0]


def _taken(cursor: _Cursor, size: int) -> bytes:
    begin, end = cursor.at, cursor.at + size
    if size < 0 or end > len(cursor.data):
        raise ValueError
    cursor.at = end
    return cursor.data[begin:end]


def _bytes(cursor: _Cursor) -> bytes:
    return _taken(cursor, _long(cursor))


def _string(cursor: _Cursor) -> str:
    return _taken(cursor, _long(cursor)).decode()


_PRIMITIVES: Mapping[str, tuple[_Reader, Shape]] = {
    "null": (_null, same),
    "boolean": (_boolean, same),
    "int": (_long, same),
    "long": (_long, same),
    "float": (_float, single),
    "double": (_double, double),
    "bytes": (_bytes, unfit),
    "string": (_string, same),
}
_NAMED = ("record", "enum", "fixed")


class _Compiled:
    """The readers of a schema."""

    def __init__(self, text: bytes) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._passed: dict[str, _Reader] = {}
        try:
            self._root = json.loads(text)
            self._known(self._root, "")
            if not isinstance(self._root, dict) or self._root.get("type") != "record":
                raise _no_schema("the schema of a record is needed")
            self.reader({})
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise _no_schema("it is not JSON") from None
        except (TypeError, AttributeError, RecursionError):
            raise _no_schema(
                "its parts do not have the form that the specification gives"
            ) from None

    def reader(self, want: Wanted) -> _Reader:
        return self._reader(self._root, "", want)

    def _known(self, schema: Any, space: str) -> None:
        """Remember each definition by its name."""
        if isinstance(schema, list):
            for branch in schema:
                self._known(branch, space)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if kind in _NAMED:
                name = _full(schema, space)
                if name in self._named:
                    raise _no_schema(f"it defines {name!r} twice")
                self._named[name] = (schema, space := name.rpartition(".")[0])
            for field in schema.get("fields", ()) if kind == "record" else ():
                self._known(field.get("type") if isinstance(field, dict) else None, space)
            for inner in (kind, schema.get("items"), schema.get("values")):
                if not isinstance(inner, str):
                    self._known(inner, space)

    def _reader(self, schema: Any, space: str, want: Any) -> _Reader:
        """Return what reads `want` of a schema: a field, an object's keys, or nothing (None): it is passed over."""
        if isinstance(schema, list):
            return _union([self._reader(branch, space, want) for branch in schema])
        node = {"type": schema} if isinstance(schema, str) else schema
        kind: Any = node.get("type") if isinstance(node, dict) else None
        if isinstance(kind, dict | list):
            return self._reader(kind, space, want)
        if kind in _PRIMITIVES:
            return _leaf(*_PRIMITIVES[kind], node, want)
        if kind in ("array", "map"):
            return self._repeated(node, space, want)
        named = node if kind in _NAMED else None
        if named is None:
            name = str(kind)
            full = (
                name if "." in name or f"{space}.{name}" not in self._named else f"{space}.{name}"
            )
            if full not in self._named:
                raise _no_schema(f"it does not define {full!r}")
            named, space = self._named[full]
        else:
            full = _full(named, space)
            space = full.rpartition(".")[0]
        if named["type"] == "enum":
            return _leaf(_enum(named), same, named, want)
        if named["type"] == "fixed":
            size = named.get("size")
            if type(size) is not int or size < 0:
                raise _no_schema("a fixed type has no size")
            return _leaf(lambda cursor: _taken(cursor, size), unfit, named, want)
        return self._record(named, space, full, want)

    def _record(self, node: dict[str, Any], space: str, full: str, want: Any) -> _Reader:
        if not isinstance(want, dict):
            passed = self._passing(node, space, full)
            return passed if want is None else lambda cursor: passed(cursor) or UNFIT
        return _objects(
            [
                (name, name in want, self._reader(kind, space, want.get(name)))
                for name, kind in _fields(node)
            ]
        )

    def _passing(self, node: dict[str, Any], space: str, full: str) -> _Reader:
        """Return what passes a record over; it may hold records of its own kind."""
        if full not in self._passed:
            self._passed[full] = lambda cursor: made(cursor)
            made = _objects(
                [("", False, self._reader(kind, space, None)) for _, kind in _fields(node)]
            )
        return self._passed[full]

    def _repeated(self, node: dict[str, Any], space: str, want: Any) -> _Reader:
        inner = node.get("items" if node["type"] == "array" else "values")
        passed = self._reader(inner, space, None)
        if node["type"] == "array":
            most = 0 if isinstance(want, dict) else entries(want)
            if not most:
                return _placed(lambda cursor: _blocks(cursor, passed), unfit, want)
            item = self._reader(inner, space, entry(want))
            return lambda cursor: _first(cursor, item, passed, most)
        if not isinstance(want, dict):
            return _placed(lambda cursor: _mapped(cursor, passed, {}), unfit, want)
        values = {key: self._reader(inner, space, what) for key, what in want.items()}
        return lambda cursor: _mapped(cursor, passed, values)


def _no_schema(why: str) -> ValueError:
    return ValueError(f"is no Avro schema: {why}")


def _full(node: Mapping[str, Any], space: str) -> str:
    name, own = node.get("name"), node.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str):
        raise _no_schema("a type has no name")
    return name if "." in name or not own else f"{own}.{name}"


def _fields(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    try:
        return [(str(field["name"]), field["type"]) for field in node["fields"]]
    except (KeyError, TypeError):
        raise _no_schema("a field has no name or no type") from None


def _placed(read: _Reader, shape: Shape, want: Any) -> _Reader:
    """Return what reads a value that is no object."""
    if want is None or (shape is same and not isinstance(want, dict)):
        return read
    if isinstance(want, dict):
        return read if read is _null else lambda cursor: (read(cursor), NO_OBJECT)[1]
    return lambda cursor: shape(read(cursor))


def _leaf(read: _Reader, shape: Shape, node: Mapping[str, Any], want: Any) -> _Reader:
    if want is None or isinstance(want, dict):
        return _placed(_PASSED.get(read, read), shape, want)
    kind, logical = node["type"], str(node.get("logicalType"))
    local, _, unit = logical.rpartition("timestamp-")
    if kind in ("int", "long") and logical == "date":
        shape = date(want)
    elif kind == "long" and unit in _INSTANTS and local in ("", "local-"):
        shape = instant(want, _INSTANTS[unit], local=bool(local))
    elif kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is int and type(scale) is int:
            shape = decimal(want, precision, scale) or unfit
    elif kind == "fixed" and logical == "uuid" and node.get("size") == _UUID_BYTES:
        shape = _uuid
    return _placed(read, shape, want)


def _uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


_PASSED: Mapping[_Reader, _Reader] = {_string: _bytes}


def _union(branches: list[_Reader]) -> _Reader:
    def read(cursor: _Cursor) -> Any:
        at = _long(cursor)
        if at < 0:
            raise ValueError
        return branches[at](cursor)

    return read


def _enum(node: Mapping[str, Any]) -> _Reader:
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise _no_schema("an enum has no symbols")

    def read(cursor: _Cursor) -> Any:
        at = _long(cursor)
        if at < 0:
            raise ValueError
        return symbols[at]

    return read


def _objects(parts: list[tuple[str, bool, _Reader]]) -> _Reader:
    """Return what reads an object of these parts: name, whether it is wanted, and how it is read."""

    def read(cursor: _Cursor) -> dict[str, Any]:
        _deeper(cursor)
        found = {}
        for name, kept, part in parts:
            if kept:
                found[name] = part(cursor)
            else:
                part(cursor)
        cursor.depth -= 1
        return found

    return read


def _counted(cursor: _Cursor) -> int:
    """Return how many items the next block has; 0 behind the last one."""
    number = _long(cursor)
    if number < 0:
        number = -number
        _long(cursor)  # the block's length, which nobody needs
    cursor.items += number
    if cursor.items > len(cursor.data):
        raise ValueError
    return number


def _blocks(cursor: _Cursor, item: _Reader) -> None:
    _deeper(cursor)
    while number := _counted(cursor):
        for _ in range(number):
            item(cursor)
    cursor.depth -= 1


def _deeper(cursor: _Cursor) -> None:
    cursor.depth += 1
    if cursor.depth > MOST_NESTED:
        raise ValueError


def _first(cursor: _Cursor, item: _Reader, passed: _Reader, most: int) -> list[Any]:
    found: list[Any] = []
    _blocks(cursor, lambda at: found.append(item(at)) if len(found) < most else passed(at))
    return found


def _mapped(cursor: _Cursor, passed: _Reader, values: Mapping[str, _Reader]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def entry(cursor: _Cursor) -> None:
        key = _string(cursor)
        if key in values:
            found[key] = values[key](cursor)
        else:
            passed(cursor)

    _blocks(cursor, entry)
    return found
