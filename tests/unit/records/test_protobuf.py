"""Protobuf messages by themselves: each type by each field, what is absent, and what a file may say of them."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from pydantic import TypeAdapter
from unit.records.value_worlds import descriptors, message_class

from stream_dp.errors import UsageError
from stream_dp.journal.dead_letters import UNKNOWN_SCHEMA, UNREADABLE_VALUE
from stream_dp.pipeline.yaml import load
from stream_dp.records import protobuf
from stream_dp.records.leaf_values import Read
from stream_dp.records.schema import FieldSpec

NUMBER, TEXT, INTEGER, BOOLEAN = (
    {"type": kind} for kind in ("number", "text", "integer", "boolean")
)
LIST = {"type": "list", "domain": ["p"], "most": 2}


def told() -> descriptor_pb2.FileDescriptorSet:
    """A file whose third message is `m.Whole`, which has one of everything; its first is within the second."""
    known = [descriptor_pb2.FileDescriptorProto() for _ in range(2)]
    for file, module in zip(known, (timestamp_pb2, wrappers_pb2), strict=True):
        module.DESCRIPTOR.CopyToProto(file)
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="m", syntax="proto3")
    file.dependency.extend(one.name for one in known)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    file.message_type.add(name="A")
    file.message_type.add(name="B").nested_type.add(name="Inner")
    whole = file.message_type.add(name="Whole")
    entry = whole.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type="TYPE_STRING", label="LABEL_OPTIONAL")
    parts = {
        "text": "STRING", "data": "BYTES", "real": "FLOAT", "wide": "DOUBLE", "big": "UINT64", "sure": "BOOL",
        "kind": "ENUM:.m.Kind", "at": "MESSAGE:.google.protobuf.Timestamp", "again": "MESSAGE:.m.Whole",
        "maybe": "MESSAGE:.google.protobuf.StringValue", "tags": "MESSAGE:.m.Whole.TagsEntry", "many": "STRING",
    }  # fmt: skip
    for number, (name, told) in enumerate(parts.items(), 1):
        form, _, of = told.partition(":")
        field = whole.field.add(name=name, number=number, type=f"TYPE_{form}", type_name=of or None)
        field.label = "LABEL_REPEATED" if name in ("tags", "many") else "LABEL_OPTIONAL"
    return descriptor_pb2.FileDescriptorSet(file=[*known, file])


TOLD = told()
WHOLE = message_class(TOLD, "m.Whole")
HEAD = b"\2\4"


def reading(**fields: Any) -> Read:
    known = {n: TypeAdapter[Any](FieldSpec).validate_python(field) for n, field in fields.items()}
    return protobuf.reader(TOLD.SerializeToString(), "m.Whole", known, 0)


@pytest.mark.parametrize(
    ("given", "field", "json"),
    [
        ({"text": "p"}, TEXT, '{"text":"p"}'),
        ({"text": ""}, TEXT, '{"text":""}'),
        ({"data": b"p"}, TEXT, '{"data":{}}'),
        ({"real": 0.1}, NUMBER, '{"real":0.1}'),
        ({"real": float("nan")}, NUMBER, '{"real":{}}'),
        ({"wide": float("inf")}, NUMBER, '{"wide":{}}'),
        ({"big": 2**64 - 1}, INTEGER, f'{{"big":{2**64 - 1}}}'),
        ({"sure": True}, BOOLEAN, '{"sure":true}'),
        ({"kind": 0}, TEXT, '{"kind":"NONE"}'),
        ({"kind": 7}, TEXT, '{"kind":"7"}'),
        ({"maybe": {"value": ""}}, TEXT, '{"maybe":""}'),
        ({"again": {}}, TEXT, '{"again":{}}'),
        ({"again": {"text": "p"}}, TEXT | {"path": "again.text"}, '{"again":{"text":"p"}}'),
        ({"again": {}}, TEXT | {"path": "again.again.text"}, '{"again":{}}'),
        ({"tags": {"a": "p", "b": "q"}}, TEXT | {"path": "tags.b"}, '{"tags":{"b":"q"}}'),
        ({"tags": {"a": "p"}}, TEXT | {"path": "tags.b"}, '{"tags":{}}'),
        ({"tags": {"a": "p"}}, TEXT, '{"tags":{}}'),
        ({"text": "p"}, TEXT | {"path": "text.x"}, '{"text":0}'),
        ({"many": ["p"]}, TEXT | {"path": "many.x"}, '{"many":0}'),
        ({"many": ["p"] * 9}, LIST, '{"many":["p","p","p"]}'),
        ({"many": ["p"]}, TEXT, '{"many":{}}'),
        ({}, TEXT | {"path": "nothing"}, "{}"),
        ({"at": {"seconds": -1, "nanos": 999999999}}, {"type": "time"}, '{"at":"1969-12-31T23:59:59.999999999Z"}'),
        ({"at": {"seconds": 5}}, {"type": "time", "format": "epoch_ms"}, '{"at":5000}'),
        ({"at": {"seconds": 2**62}}, {"type": "time"}, '{"at":{}}'),
        ({"at": {"seconds": 2**62}}, {"type": "time", "format": "epoch_us"}, '{"at":{}}'),
    ],
)  # fmt: skip
def test_each_type_by_each_field(given: dict[str, Any], field: dict[str, Any], json: str) -> None:
    name = field.get("path", next(iter(given), "x")).split(".")[-1]
    assert reading(**{name: field})(HEAD + WHOLE(**given).SerializeToString()) == json.encode()


def test_what_says_that_it_is_absent_is_absent() -> None:
    read = reading(at={"type": "time"}, maybe=TEXT, again=TEXT | {"path": "again.text"}, text=TEXT)
    assert read(HEAD) == b'{"text":""}'


@pytest.mark.parametrize(
    "payload",
    [b"\xff", b"\x0a\xff\xff\xff\xff\x07a", b"\x0a\1\xff", b"\x4b" * 10**5, b"\x4a\x7f" * 10**5],
)
def test_hostile_bytes_are_dead_letters(payload: bytes) -> None:
    assert reading(text=TEXT)(HEAD + payload) == UNREADABLE_VALUE


def test_nesting_has_a_limit() -> None:
    deep = b""
    for _ in range(200):
        size, written = len(deep), bytearray()
        while size > 0x7F:
            written.append(size & 0x7F | 0x80)
            size >>= 7
        deep = b"\x4a" + bytes((*written, size)) + deep
    assert reading(text=TEXT)(HEAD + deep) == UNREADABLE_VALUE


def test_what_a_registry_gives_is_taken_as_it_is() -> None:
    """One file in base64, without the well-known files that it imports."""
    text = base64.b64encode(TOLD.file[2].SerializeToString()) + b"\n"
    field = {"at": TypeAdapter[Any](FieldSpec).validate_python({"type": "time"})}
    read = protobuf.reader(text, "m.Whole", field, 0)
    payload = HEAD + WHOLE(at={"seconds": 1}).SerializeToString()
    assert read(payload) == b'{"at":"1970-01-01T00:00:01Z"}'


def test_only_the_message_of_the_file_counts() -> None:
    content, body = TOLD.SerializeToString(), b""
    for name, head in (
        ("m.A", b"\0"),
        ("m.A", b"\2\0"),
        ("m.B", b"\2\2"),
        ("m.B.Inner", b"\4\2\0"),
    ):
        read = protobuf.reader(content, name, {}, 0)
        assert read(head + body) == b"{}"
        assert read(b"\2\4" + body) == UNKNOWN_SCHEMA
        assert read(b"") == UNKNOWN_SCHEMA


FILE = """\
version: 1
name: orders
source:
  kind: kafka
  topic: orders
  bootstrap: localhost:9092
  values: {{{values}}}
schema: {{a: {{type: integer}}}}
privacy: {{epsilon: 1}}
clock: {{kind: wall, step: 1m}}
series:
  - {{name: n, statistic: count, epsilon: 0.1}}
"""


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ("format: avro", "source.values.schemas: is missing"),
        ("format: avro, schemas: {7: nothing}", ":7:39: source.values.schemas.7: cannot be read"),
        ("format: avro, schemas: {7: set}", "source.values.schemas.7: is no Avro schema: it is not JSON"),
        ("format: avro, schemas: {x: set}", "source.values.schemas.x"),
        ("format: protobuf, schemas: {7: set}", "source.values.message: is missing"),
        ("format: protobuf, message: m.C, schemas: {7: set}", "schemas.7: has no message 'm.C'"),
        ("format: protobuf, message: m.A, schemas: {7: text}", "schemas.7: is not a complete descriptor set"),
        ("format: protobuf, message: m.A, schemas: {7: part}", "schemas.7: is not a complete descriptor set"),
        ("format: json", "source.values.ids: is missing"),
        ("format: json, ids: [-1]", "source.values.ids[0]"),
        ("format: json, ids: [7], schemas: {7: text}", "source.values.schemas"),
        ("format: thrift", "source.values"),
    ],
)  # fmt: skip
def test_a_file_says_what_is_wrong_with_its_values(tmp_path: Path, values: str, wrong: str) -> None:
    (tmp_path / "set").write_bytes(TOLD.SerializeToString())
    part = descriptor_pb2.FileDescriptorSet(file=TOLD.file[2:])
    part.file[0].dependency.append("shop/other.proto")
    (tmp_path / "part").write_bytes(part.SerializeToString())
    (tmp_path / "text").write_text("message A {}")
    (tmp_path / "p.yaml").write_text(FILE.format(values=values))
    with pytest.raises(UsageError) as refused:
        load(tmp_path / "p.yaml")
    assert wrong in str(refused.value)


def test_a_replayed_topic_holds_plain_json(tmp_path: Path) -> None:
    told = FILE.format(values="format: json, ids: [7]").replace(
        "clock: {kind: wall, step: 1m}",
        "clock: {kind: replay, field: t, step: 1m, start: 2026-01-01T00:00:00Z, horizon: 3}",
    )
    (tmp_path / "p.yaml").write_text(told.replace("schema: {", "schema: {t: {type: time}, "))
    with pytest.raises(UsageError, match=r"source\.values: a replay clock reads what"):
        load(tmp_path / "p.yaml")


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set").write_bytes(descriptors().SerializeToString())
    values = "format: protobuf, message: shop.Order, schemas: {7: set}"
    (tmp_path / "p.yaml").write_text(FILE.format(values=values))
    load(tmp_path / "p.yaml")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(UsageError, match=r"pip install 'stream_dp\[protobuf\]'"):
        load(tmp_path / "p.yaml")
