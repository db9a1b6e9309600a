"""Avro's encoding by itself: each type by each field, bytes that mean harm, and fastavro as the oracle."""

import json
import struct
import tracemalloc
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter
from unit.records.value_worlds import avro_bytes

from stream_dp.journal.dead_letters import UNREADABLE_VALUE
from stream_dp.records import avro
from stream_dp.records.leaf_values import Read
from stream_dp.records.schema import FieldSpec

NUMBER, TEXT, INTEGER = ({"type": kind} for kind in ("number", "text", "integer"))
LIST: dict[str, Any] = {"type": "list", "domain": ["p"], "most": 2}
ISO = {"type": "time"}
MOMENT = datetime(2013, 1, 1, 10, 0, 0, 500_000, UTC)


def epoch(unit: str) -> dict[str, str]:
    return {"type": "time", "format": f"epoch_{unit}"}


def logical(kind: Any, name: str, **keys: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **keys}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


def of(*fields: tuple[str, Any]) -> dict[str, Any]:
    told = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "R", "namespace": "n", "fields": told}


def reading(schema: Any, **fields: Any) -> Read:
    known = {n: TypeAdapter[Any](FieldSpec).validate_python(told) for n, told in fields.items()}
    return avro.reader(json.dumps(schema).encode(), known, 0)


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
MONEY = logical("bytes", "decimal", precision=6, scale=2)


@pytest.mark.parametrize(
    ("kind", "value", "field", "told"),
    [
        ("string", 'a"ü', TEXT, '"a\\"ü"'),
        ("long", -(2**63), INTEGER, str(-(2**63))),
        ("int", 7, NUMBER, "7"),
        ("double", 60.0, INTEGER, "60.0"),
        ("double", 0.1, NUMBER, "0.1"),
        ("double", float("nan"), NUMBER, "{}"),
        ("double", float("-inf"), NUMBER, "{}"),
        ("float", 0.1, NUMBER, "0.1"),
        ("float", 16777217.0, NUMBER, "16777216.0"),
        ("float", float("nan"), NUMBER, "{}"),
        ("boolean", True, {"type": "boolean"}, "true"),
        ("null", None, NUMBER, "null"),
        ("bytes", b"abc", TEXT, "{}"),
        (fixed(3), b"abc", TEXT, "{}"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", TEXT, '"B"'),
        (["null", "string"], "p", TEXT, '"p"'),
        (["null", "string"], None, TEXT, "null"),
        (["double", MILLIS], MOMENT, ISO, '"2013-01-01T10:00:00.500Z"'),
        (MONEY, Decimal("12.50"), NUMBER, "12.50"),
        (MONEY, Decimal("-0.05"), NUMBER, "-0.05"),
        (MONEY, Decimal("12.50"), TEXT, '"12.50"'),
        (MONEY, Decimal("12.00"), INTEGER, "12.00"),
        (logical("bytes", "decimal", precision=3), Decimal(-12), INTEGER, "-12"),
        (logical(fixed(4), "decimal", precision=6, scale=2), Decimal("1.25"), NUMBER, "1.25"),
        (logical(fixed(16), "uuid"), uuid.UUID(int=1).bytes, TEXT, f'"{uuid.UUID(int=1)}"'),
        (logical("string", "uuid"), uuid.UUID(int=1), TEXT, f'"{uuid.UUID(int=1)}"'),
        (MILLIS, MOMENT, ISO, '"2013-01-01T10:00:00.500Z"'),
        (MICROS, MOMENT, ISO, '"2013-01-01T10:00:00.500Z"'),
        (MICROS, MOMENT.replace(microsecond=1), TEXT, '"2013-01-01T10:00:00.000001Z"'),
        (MICROS, MOMENT, epoch("s"), "1357034400"),
        (MILLIS, MOMENT, epoch("us"), "1357034400500000"),
        (MILLIS, MOMENT, INTEGER, "1357034400500"),
        (logical("long", "no-such-type"), -1, INTEGER, "-1"),
        (logical("long", "timestamp-nanos"), -1, epoch("ms"), "-1"),
        (logical("long", "timestamp-nanos"), -1, ISO, '"1969-12-31T23:59:59.999999999Z"'),
        (MILLIS, 2**62, ISO, "{}"),
        (MILLIS, 2**62, epoch("us"), "{}"),
        (logical("long", "local-timestamp-millis"), 1, ISO, '"1970-01-01T00:00:00.001"'),
        (logical("long", "local-timestamp-millis"), 1, epoch("ms"), '"1970-01-01T00:00:00.001"'),
        (logical("int", "date"), date(2013, 1, 2), TEXT, '"2013-01-02"'),
        (logical("int", "date"), date(1970, 1, 2), INTEGER, "1"),
        (logical("int", "date"), 2**30, TEXT, "{}"),
        ({"type": "array", "items": "string"}, ["p", "q"], LIST, '["p","q"]'),
        ({"type": "array", "items": "string"}, ["p"] * 9, LIST, '["p","p","p"]'),
        ({"type": "array", "items": ["null", "long"]}, [None, 5], LIST, "[null,5]"),
        ({"type": "array", "items": "string"}, ["p"], TEXT, "{}"),
        ({"type": "map", "values": "string"}, {"p": "q"}, TEXT, "{}"),
        (of(), {}, TEXT, "{}"),
    ],
)  # fmt: skip
def test_each_type_by_each_field(kind: Any, value: Any, field: Any, told: str) -> None:
    schema = of(("before", "string"), ("x", kind), ("behind", "long"))
    if isinstance(kind, dict) and kind.get("type") == "record":
        kind["name"] = "Inner"
    read = reading(schema, x=field)
    payload = avro_bytes(schema, {"before": "b", "x": value, "behind": 3})
    assert read(payload) == f'{{"x":{told}}}'.encode()


def test_a_decimal_beyond_its_precision_fits_nothing() -> None:
    read = reading(of(("x", logical("bytes", "decimal", precision=2))), x=NUMBER)
    assert read(b"\2\x63") == b'{"x":99}'
    assert read(b"\2\x64") == read(b"\x90\x4e" + b"\x7f" * 5000) == b'{"x":{}}'


def test_paths_lead_through_records_and_maps() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "long"}]}
    schema = of(
        ("a", ["null", inner]),
        ("m", {"type": "map", "values": "long"}),
        ("t", "string"),
        ("again", "I"),
    )
    read = reading(
        schema,
        b=INTEGER | {"path": "a.b"}, none=INTEGER | {"path": "a.c"}, m=INTEGER | {"path": "m.k"},
        t=TEXT | {"path": "t.x"}, again=INTEGER | {"path": "again.b"},
    )  # fmt: skip
    record: dict[str, Any] = {"a": {"b": 1}, "m": {"j": 2, "k": 3}, "t": "t", "again": {"b": 4}}
    told = b'{"a":{"b":1},"m":{"k":3},"t":0,"again":{"b":4}}'
    assert read(avro_bytes(schema, record)) == told
    record |= {"a": None, "m": {}}
    told = b'{"a":null,"m":{},"t":0,"again":{"b":4}}'
    assert read(avro_bytes(schema, record)) == told


LINKED = of(("x", "long"), ("next", ["null", "R"]))
TREE = of(("x", "long"), ("below", {"type": "array", "items": "R"}))
NOTHINGS = of(("x", "long"), ("a", {"type": "array", "items": {"type": "array", "items": "null"}}))
ENDLESS = of(("x", "long"), ("again", "R"))
MOST = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2^63 - 1


def of_hostile_bytes() -> list[tuple[Any, bytes]]:
    text, items = of(("x", "string")), of(("x", {"type": "array", "items": "long"}))
    options = of(("x", ["null", "long"]))
    symbols = of(("x", {"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    return [
        (text, b"\xfe\xff\xff\xff\x0f" + b"a" * 9),
        (text, MOST),
        (text, b"\x01a"),
        (text, b"\x04\xff\xfe"),
        (text, b"\xff" * 9 + b"\x7f"),
        (text, b"\x80" * 10**6),
        (text, b"\x80" * 20 + b"\0"),
        (of(("x", "string"), ("y", "string")), b"\x81\0"),
        (text, b""),
        (items, MOST + b"\2" * 9),
        (items, b"\x01" + MOST),
        (items, b"\x80" * 9 + b"\1\2\2"),
        (items, b"\xff" * 9 + b"\1\2\2"),
        (options, b"\x04\0"),
        (options, b"\x01\2"),
        (symbols, b"\x04"),
        (symbols, b"\x01"),
        (of(("x", "boolean")), b"\2"),
        (of(("x", "double")), b"\0" * 7),
        (of(("x", "float")), b"\0" * 5),
        (of(("x", fixed(2**40))), b"\0" * 9),
        (LINKED, b"\0\2" * 10**6 + b"\0\0"),
        (TREE, b"\0\2" * 10**6),
        (ENDLESS, b"\0" * 10**5),
        (NOTHINGS, b"\0\2" + MOST + b"\0\0"),
        (NOTHINGS, b"\0" + (b"\xd0\x0f" + b"\x80\x89\x7a\0" * 1000)),
        (of(("x", {"type": "map", "values": "null"})), MOST + b"\0" * 9),
    ]


@pytest.mark.parametrize(("schema", "payload"), of_hostile_bytes())
@pytest.mark.parametrize("name", ["x", "unread"])
def test_hostile_bytes_are_dead_letters_and_take_no_memory(
    schema: Any, payload: bytes, name: str
) -> None:
    read = reading(
        schema, **{name: LIST if name == "x" and schema["fields"][0]["type"] != "string" else TEXT}
    )
    tracemalloc.start()
    try:
        outcome = read(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    skipped = name == "unread" and payload == b"\x04\xff\xfe"  # no text is made of it
    assert outcome == (b"{}" if skipped else UNREADABLE_VALUE)
    assert peak < 2 * len(payload) + 100_000


def test_nesting_has_a_limit_of_its_own() -> None:
    def linked(depth: int) -> bytes:
        return b"\0\2" * (depth - 1) + b"\0\0"

    read = reading(LINKED, x=INTEGER)
    assert read(linked(avro.MOST_NESTED)) == b'{"x":0}'
    assert read(linked(avro.MOST_NESTED + 1)) == UNREADABLE_VALUE

    def deeper(levels: int) -> Any:
        return deeper(levels - 1) if levels else read(linked(avro.MOST_NESTED))

    assert deeper(300) == b'{"x":0}'


class Made:
    """A random schema, and values of it."""

    def __init__(self, seed: int) -> None:
        self.lot, self.names = Random(seed), 0

    def kind(self, depth: int) -> Any:
        plain = [
            "null",
            "boolean",
            "int",
            "long",
            "float",
            "double",
            "bytes",
            "string",
            "enum",
            "fixed",
        ]
        choice = self.lot.choice(plain + ["array", "map", "record", "union"] * (depth > 0) * 2)
        self.names += 1
        name = f"N{self.names}"
        match choice:
            case "enum":
                return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
            case "fixed":
                return {"type": "fixed", "name": name, "size": self.lot.randrange(4)}
            case "array":
                return {"type": "array", "items": self.kind(depth - 1)}
            case "map":
                return {"type": "map", "values": self.kind(depth - 1)}
            case "record":
                fields = [
                    {"name": f"f{n}", "type": self.kind(depth - 1)}
                    for n in range(self.lot.randrange(4))
                ]
                return {"type": "record", "name": name, "fields": fields}
            case "union":
                return [
                    "null",
                    self.lot.choice(["string", "double"]),
                    self.record_of(name, depth - 1),
                ]
        return choice

    def record_of(self, name: str, depth: int) -> Any:
        return {"type": "record", "name": name, "fields": [{"name": "u", "type": self.kind(depth)}]}

    def value(self, kind: Any) -> Any:
        lot = self.lot
        if isinstance(kind, list):
            branch = lot.choice(kind)
            return (
                (f"n.{branch['name']}", self.value(branch))
                if isinstance(branch, dict)
                else self.value(branch)
            )
        if isinstance(kind, str):
            single = struct.unpack("<f", struct.pack("<f", lot.gauss(0, 1e6)))[0]
            return {
                "null": None, "boolean": lot.random() < 0.5, "int": lot.randrange(-(2**31), 2**31),
                "long": lot.choice([0, -1, lot.randrange(-(2**63), 2**63)]), "float": single,
                "double": lot.gauss(0, 1e9), "bytes": lot.randbytes(lot.randrange(200)),
                "string": lot.choice(["", "ü" * 70, "a"]),
            }[kind]  # fmt: skip
        match kind["type"]:
            case "enum":
                return lot.choice(kind["symbols"])
            case "fixed":
                return lot.randbytes(kind["size"])
            case "array":
                return [self.value(kind["items"]) for _ in range(lot.randrange(4))]
            case "map":
                return {f"k{n}": self.value(kind["values"]) for n in range(lot.randrange(4))}
        return {field["name"]: self.value(field["type"]) for field in kind["fields"]}


def has_nothings(kind: Any) -> bool:
    """Whether it may have arrays of items without bytes, of which there may be no more than bytes."""
    text = json.dumps(kind)
    return '"array"' in text and ('"null"' in text or '"size": 0' in text or '"fields": []' in text)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_lies_between_is_passed_over_as_fastavro_wrote_it(seed: int) -> None:
    made = Made(seed)
    kinds = [made.kind(4) for _ in range(4)]
    told = [(f"u{n}", kind) for n, kind in enumerate(kinds)]
    schema = of(told[0], ("a", "long"), told[1], told[2], ("b", "string"), told[3], ("c", "double"))
    record: dict[str, Any] = {f"u{n}": made.value(kind) for n, kind in enumerate(kinds)}
    record |= {"a": made.value("long"), "b": made.value("string"), "c": made.value("double")}
    payload = avro_bytes(schema, record)
    read = reading(schema, a=INTEGER, b=TEXT, c=NUMBER)
    outcome = read(payload)
    if outcome == UNREADABLE_VALUE and has_nothings(kinds):
        return
    assert isinstance(outcome, bytes)
    assert json.loads(outcome) == {name: record[name] for name in "abc"}
    assert read(payload + b"\0") == UNREADABLE_VALUE
    assert read(payload[:-1]) == UNREADABLE_VALUE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not JSON"),
        ("\xff", "it is not JSON"),
        ("[" * 10**5, "do not have the form"),
        ('"string"', "the schema of a record is needed"),
        ('{"type": "record", "name": "R"}', "no name or no type"),
        ('{"type": "record", "fields": []}', "a type has no name"),
        (json.dumps(of(("x", "Nothing"))), "it does not define 'Nothing'"),
        (json.dumps(of(("x", "Nothing"))).replace("Nothing", "a.B"), "it does not define 'a.B'"),
        (json.dumps(of(("x", {"type": "enum", "name": "E"}))), "an enum has no symbols"),
        (json.dumps(of(("x", {"type": "fixed", "name": "E"}))), "a fixed type has no size"),
        (json.dumps(of(("x", of()), ("y", 5))), "twice"),
        (json.dumps(of(("x", {"type": "array"}))), "it does not define"),
        (json.dumps({**of(), "fields": 5}), "do not have the form"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        avro.reader(text.encode("latin-1"), {}, 0)
