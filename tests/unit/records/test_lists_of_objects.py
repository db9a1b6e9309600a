"""Texts from the entries of lists of objects (`items[].sku`), against a walk through each record by itself."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from unit.records.value_worlds import HEAD, spec_of

from stream_dp.journal.dead_letters import MISSING_FIELD, TOO_MANY_ENTRIES, WRONG_TYPE
from stream_dp.pipeline.fingerprints import fingerprint, meaning
from stream_dp.records.decoder import ListDecoder
from stream_dp.records.endpoints import KafkaSourceSpec
from stream_dp.records.schema import FieldSpec, ListField, NumberField

FIELDS: dict[str, Any] = {
    "sku": ListField(domain=("a", "b"), most=2, path="cart.items[].sku"),
    "currency": ListField(domain=("E",), most=3, path="cart.items[].price.currency", nullable=True),
    "notes": ListField(domain=("x", "y"), most=2, path="notes[].text", nullable=True),
    "tags": ListField(domain=("t", "u"), most=2, path="more.tags", nullable=True),
}
Outcome = dict[str, set[int]] | set[tuple[str, str]]
"""The codes of each field's texts, or the possible reasons of a refusal."""
_MISSING = object()


def walked(record: Any, fields: Mapping[str, ListField]) -> Outcome:
    """The oracle: one record and one field after the other; a code is a place in the domain, or its length."""
    codes, wrong = dict[str, set[int]](), set[tuple[str, str]]()
    for name, field in fields.items():
        try:
            texts = _texts(record, field)
        except _WrongError as error:
            wrong.add((error.args[0], name))
        else:
            domain = [*field.domain]
            codes[name] = {domain.index(t) if t in domain else len(domain) for t in texts}
    return wrong or codes


class _WrongError(Exception):
    pass


def _texts(record: Any, field: ListField) -> Sequence[str | None]:
    before, _, after = str(field.path).partition("[].")
    found = _at(record, before.split("."), nullable=field.nullable)
    if found is None:
        return [None]
    if not isinstance(found, list):
        raise _WrongError(WRONG_TYPE)
    if after:
        found = [_at(each, after.split("."), nullable=field.nullable) for each in found]
    if any(not isinstance(text, str) and (text is not None or not after) for text in found):
        raise _WrongError(WRONG_TYPE)
    if len(found) > field.most:
        raise _WrongError(TOO_MANY_ENTRIES)
    return found


def _at(value: Any, keys: Sequence[str], *, nullable: bool) -> Any:
    """What lies at these keys; None stands for null, and for what is not there and need not be."""
    for key in keys:
        if not isinstance(value, dict):
            raise _WrongError(WRONG_TYPE)
        value = value.get(key, _MISSING)
        if value is _MISSING and not nullable:
            raise _WrongError(MISSING_FIELD)
        if value is _MISSING or (value is None and nullable):
            return None
    if value is None:
        raise _WrongError(WRONG_TYPE)
    return value


def decoded(payloads: Sequence[bytes], fields: Mapping[str, ListField]) -> list[Outcome]:
    decoder = ListDecoder(fields, fields)
    got = decoder.decode(payloads)
    found: dict[int, Outcome] = {
        dead.position: {(dead.reason, str(dead.field))} for dead in got.refused
    }
    for at, position in enumerate(got.positions):
        found[position] = {name: _codes(got.lists[decoder.attribute(name)], at) for name in fields}
    return [found[at] for at in range(len(payloads))]


def _codes(entries: Any, at: int) -> set[int]:
    assert entries.records is not None
    here = [
        int(code) for code, own in zip(entries.codes, entries.records, strict=True) if own == at
    ]
    assert len(here) == len(set(here))
    return set(here)


def agree(outcome: Outcome, right: Outcome, fields: Mapping[str, ListField]) -> bool:
    """Refusals name a field with a reason of it, or one that lies in the same list."""
    if isinstance(right, dict) or isinstance(outcome, dict):
        return outcome == right
    ((reason, name),) = outcome
    lists = {key: str(field.path).partition("[].")[0] for key, field in fields.items()}
    return any(why == reason and lists[key] == lists[name] for why, key in right) or any(
        lists[key].partition(".")[0] == lists[name].partition(".")[0] and why == reason for why, key in right
    )  # fmt: skip


ODD: Any = st.none() | st.integers(0, 5) | st.just({}) | st.just([]) | st.just("a")
TEXT = st.sampled_from(["a", "b", "q", "", "E", "x", "ü", '"', "a\\"]) | ODD


def some(inner: Mapping[str, Any]) -> Any:
    return st.fixed_dictionaries({}, optional=inner) | ODD


ENTRY = some({"sku": TEXT, "price": some({"currency": TEXT, "amount": st.integers()}), "n": ODD})
USUAL = st.fixed_dictionaries({"sku": st.sampled_from("abq"), "price": st.just({"currency": "E"})})
RECORD = st.fixed_dictionaries(
    {},
    optional={
        "cart": st.fixed_dictionaries(
            {}, optional={"items": st.lists(USUAL | ENTRY, max_size=4) | st.lists(USUAL, max_size=3) | ODD}
        ) | ODD,
        "notes": st.lists(some({"text": TEXT}), max_size=3) | ODD,
        "more": some({"tags": st.lists(TEXT, max_size=3) | ODD}),
        "tags": ODD,
    },
)  # fmt: skip
USED = st.lists(st.sampled_from([*FIELDS]), min_size=1, unique=True)


@given(st.lists(RECORD, min_size=1, max_size=4), USED, st.booleans())
@example(
    [{"cart": {"items": [entry, {"sku": "a"}]}} for entry in ({}, {"sku": None})], ["sku"], True
)
def test_entries_are_those_of_a_walk(records: list[Any], used: list[str], escaped: bool) -> None:
    fields = {name: FIELDS[name] for name in used}
    payloads = [json.dumps(record, ensure_ascii=escaped).encode() for record in records]
    found = decoded(payloads, fields)
    right = [walked(record, fields) for record in records]
    assert all(agree(*pair, fields) for pair in zip(found, right, strict=True)), (found, right)
    assert [decoded([payload], fields)[0] for payload in payloads] == found


def test_a_list_at_a_path_is_a_function_of_its_record_alone() -> None:
    """A key that comes twice, of which the first list is none of texts, beside a record that evens a count out."""
    fields = {"labels": ListField(domain=("a",), most=2, path="tags")}
    odd = b'{"tags":["a",5],"tags":["a"],"x":"labels","y":"labels"}'
    even = b'{"tags":["a"]}'
    alone = decoded([odd], fields) + decoded([even], fields)
    assert decoded([odd, even], fields) == alone
    assert alone == [{(WRONG_TYPE, "labels")}, {"labels": {0}}]


def test_a_record_with_a_million_entries_is_one_dead_letter() -> None:
    fields = {name: FIELDS[name] for name in ("sku", "currency")}
    entry = b'{"sku":"a","price":{"currency":"E"}}'
    million = b'{"cart":{"items":[' + b",".join([entry] * 10**6) + b"]}}"
    good = b'{"cart":{"items":[' + entry + b"]}}"
    found = decoded([good, million, good], fields)
    right: Outcome = {"sku": {0}, "currency": {0}}
    assert found == [right, {(TOO_MANY_ENTRIES, "sku")}, right]


# The same records in Avro, Protobuf and behind a schema's number.

SCHEMA = {
    "sku": {"type": "list", "domain": ["a", "b"], "most": "2", "path": "cart.items[].sku"},
    "currency": {"type": "list", "domain": ["E"], "most": "3", "path": "cart.items[].price.currency"},
}  # fmt: skip
COUNT = [{"name": "s", "statistic": "histogram", "by": "sku", "epsilon": "0.5"}]
_PRICE = {"type": "record", "name": "Price", "fields": [{"name": "currency", "type": "string"}]}
_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "sku", "type": "string"},
        {"name": "price", "type": _PRICE},
    ],
}
_CART = {
    "type": "record",
    "name": "Cart",
    "fields": [{"name": "items", "type": {"type": "array", "items": _ROW}}],
}
_AVRO = {"type": "record", "name": "R", "fields": [{"name": "cart", "type": _CART}]}


def _protobuf() -> tuple[bytes, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="shop", syntax="proto3")
    text, number, of = (
        descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
        descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
    )
    one, many = (
        descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
    )
    for name, fields in {
        "R": [("cart", of, one, ".shop.Cart")],
        "Cart": [("items", of, many, ".shop.Row")],
        "Row": [("n", number, one, ""), ("sku", text, one, ""), ("price", of, one, ".shop.Price")],
        "Price": [("currency", text, one, "")],
    }.items():
        message = file.message_type.add(name=name)
        for at, (key, kind, label, type_name) in enumerate(fields, 1):
            named = {"type_name": type_name} if type_name else {}
            message.field.add(name=key, number=at, type=kind, label=label, **named)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.R"))
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), kind


ROWS = st.lists(
    st.fixed_dictionaries(
        {"n": st.integers(0, 9), "sku": st.sampled_from(["a", "b", "q", ""]),
         "price": st.fixed_dictionaries({"currency": st.sampled_from(["E", "D"])})}
    ),
    max_size=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "r.avsc").write_text(json.dumps(_AVRO))
    (folder / "r.desc").write_bytes(_protobuf()[0])
    return {
        "avro": spec_with(folder, {"format": "avro", "schemas": {7: "r.avsc"}}),
        "protobuf": spec_with(folder, {"format": "protobuf", "message": "shop.R", "schemas": {7: "r.desc"}}),
        "json": spec_with(folder, {"format": "json", "ids": [7]}),
    }  # fmt: skip


def spec_with(folder: Path, values: Mapping[str, Any] | None, schema: Any = SCHEMA) -> Any:
    return spec_of(folder, values, schema=schema, series=COUNT)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_each_format_gives_the_same_entries(formats: Mapping[str, Any], every: list[Any]) -> None:
    message = _protobuf()[1]
    for form, spec in formats.items():
        assert isinstance(spec.source, KafkaSourceSpec)
        read = spec.source.read(spec.fields)
        assert read is not None
        assert read.value is not None
        payloads = []
        for rows in every:
            record = {"cart": {"items": rows}}
            if form == "avro":
                fastavro.schemaless_writer(out := io.BytesIO(), _AVRO, record)
                payloads.append(out.getvalue())
            elif form == "protobuf":
                payloads.append(b"\0" + message(**record).SerializeToString())
            else:
                payloads.append(json.dumps(record).encode())
        values = [read.value(HEAD + payload) for payload in payloads]
        assert not any(isinstance(value, str) for value in values)
        found = decoded(values, spec.fields)  # type: ignore[arg-type]
        right = [walked({"cart": {"items": rows}}, spec.fields) for rows in every]
        assert all(agree(*pair, spec.fields) for pair in zip(found, right, strict=True)), form


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"path": "a[].b[].c"}, r"`b\[\]` is a list within the entries of another"),
        ({"path": "a[].b[]"}, r"`b\[\]` is a list within the entries of another"),
        ({"path": "a[]"}, r"of a list of texts leave \[\] out"),
        ({"path": "[].b"}, "must name a list and a member"),
        ({"path": "a[].b", "separator": "|"}, "this list is one of objects"),
    ],
)
def test_paths_that_no_field_reads_are_refused_by_name(field: dict[str, Any], why: str) -> None:
    told = {"type": "list", "domain": ["x"], "most": 2, **field}
    with pytest.raises(ValidationError, match=why):
        TypeAdapter[Any](FieldSpec).validate_python(told)


def test_only_a_list_reads_entries_and_two_may_read_one_list(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="only a field of `type: list` reads them"):
        NumberField(path="items[].price")
    whole = {"items": {"type": "list", "domain": ["x"], "most": "2", "path": "cart.items"}}
    with pytest.raises(ValidationError, match="is the place of field 'items', or lies within"):
        spec_with(tmp_path, None, SCHEMA | whole)
    longer = {**SCHEMA, "sku": SCHEMA["sku"] | {"most": "3"}}
    prints = [fingerprint(spec_with(tmp_path, None, schema)) for schema in (SCHEMA, longer)]
    assert prints[0] != prints[1]
    # "items[]" once was the text of a key: a file of then must not go on with another meaning
    path = meaning(spec_with(tmp_path, None, SCHEMA))["schema"]["sku"]["path"]
    assert path == [("cart", "items"), ("sku",)]
