"""A topic's records as producers of several formats write them, with the pipeline that reads each."""

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from stream_dp.pipeline.spec import PipelineSpec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEAD = b"\0\0\0\0\7"
MESSAGE = "shop.Order"
SCHEMA: dict[str, Any] = {
    "customer": {"type": "text"},
    "country": {"type": "category", "domain": ["DE", "FR"]},
    "coupon": {"type": "category", "domain": ["X", "Y"], "nullable": "true"},
    "cents": {"type": "integer"},
    "price": {"type": "number"},
    "rate": {"type": "number"},
    "paid": {"type": "boolean"},
    "at": {"type": "text"},
    "day": {"type": "text"},
    "items": {"type": "list", "domain": ["p", "q"], "most": "2"},
}
PATHS = {
    "cents": "pay.cents",
    "price": "pay.price",
    "paid": "pay.more.paid",
    "coupon": "offer.coupon",
}
SERIES: list[dict[str, Any]] = [
    {"statistic": "count"},
    {"statistic": "histogram", "by": "country"},
    {"statistic": "histogram", "by": "coupon"},
    {"statistic": "histogram", "by": "items"},
    {"statistic": "sum", "of": "price", "clamp": ["-50", "50"], "step": "0.01"},
    {"statistic": "sum", "of": "rate", "clamp": ["0", "1"], "step": "0.001"},
    {"statistic": "count", "where": [{"field": "paid", "equals": "true"}]},
    {"statistic": "count", "where": [{"field": "cents", "at_least": "0"}]},
    {"statistic": "count", "where": [{"field": "day", "one_of": ["1969-12-31", "2013-01-02"]}]},
    {"statistic": "distinct", "of": "at"},
    {"statistic": "distinct", "of": "customer"},
]
Event = Mapping[str, Any]


def events(seed: int, number: int = 300) -> list[Event]:
    """Records with values as Python has them; some have too long lists, which makes them dead letters."""
    lot = Random(seed)
    return [
        {
            "customer": lot.choice(["a", "b", "ü€😀", ""]),
            "country": lot.choice(["DE", "FR", "JP"]),
            "coupon": lot.choice(["X", "Y", "Z", None]),
            "cents": lot.choice([0, -1, 7, 2**63 - 1, -(2**63)]),
            "price": Decimal(lot.randrange(-9999, 9999)) / 100,
            "rate": lot.randrange(1001) / 1000,
            "paid": lot.random() < 0.5,
            "at": EPOCH + timedelta(milliseconds=lot.randrange(-(10**10), 10**12)),
            "day": (EPOCH + timedelta(days=lot.choice([-1, 15_707]))).date(),
            "items": [lot.choice("pqr") for _ in range(lot.choice([0, 1, 2, 2, 3]))],
        }
        for _ in range(number)
    ]


def spec_of(
    folder: Path, values: Mapping[str, Any] | None, *, nested: bool = False, **keys: Any
) -> PipelineSpec:
    source: dict[str, Any] = {"kind": "kafka", "topic": "orders", "bootstrap": "localhost:9092"}
    paths = PATHS if nested else {}
    told = {
        "version": "1",
        "name": "orders",
        "source": source | ({} if values is None else {"values": values}),
        "schema": {
            name: field | ({"path": paths[name]} if name in paths else {})
            for name, field in SCHEMA.items()
        },
        "privacy": {"epsilon": "100"},
        "clock": {"kind": "wall", "step": "1s", "horizon": "3", "start": "1970-01-01T00:00:00Z"},
        "journal": {"kind": "sqlite", "path": "j"},
        "series": [
            {"name": f"s{at}", "epsilon": "0.5", **series} for at, series in enumerate(SERIES)
        ],
    }
    return PipelineSpec.model_validate(told | keys, context={"folder": folder})


def placed(event: Event, *, nested: bool) -> dict[str, Any]:
    """The record with its values where the pipeline reads them."""
    whole: dict[str, Any] = {}
    for name, value in event.items():
        *above, key = PATHS[name].split(".") if nested and name in PATHS else [name]
        inner = whole
        for each in above:
            inner = inner.setdefault(each, {})
        inner[key] = value
    return whole


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return str(value)


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")[:-6] + "Z"


def as_json(event: Event, *, nested: bool = False) -> bytes:
    told = {**event, "at": _time(event["at"])}
    return json.dumps(placed(told, nested=nested), default=_plain, ensure_ascii=False).encode()


def _record(name: str, **fields: Any) -> dict[str, Any]:
    told = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": told}


_AVRO: dict[str, Any] = {
    "customer": "string",
    "unread": {"type": "map", "values": ["null", "double"]},
    "country": {"type": "enum", "name": "Country", "symbols": ["DE", "FR", "JP"]},
    "coupon": ["null", "string"],
    "cents": "long",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "rate": "float",
    "paid": "boolean",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "items": {"type": "array", "items": "string"},
}


def _avro_type(tree: Mapping[str, Any], name: str = "Order") -> dict[str, Any]:
    fields = {
        key: _avro_type(what, f"{name}_{key}") if isinstance(what, dict) else _AVRO[what]
        for key, what in tree.items()
    }
    return _record(name, **fields, **({"unread": _AVRO["unread"]} if name == "Order" else {}))


def avro_schema(*, nested: bool = False) -> dict[str, Any]:
    return _avro_type(placed({name: name for name in SCHEMA}, nested=nested))


def avro_bytes(schema: Any, record: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), record)
    return written.getvalue()


def as_avro(event: Event, *, nested: bool = False) -> bytes:
    record = placed(event, nested=nested) | {"unread": {"x": None, "y": 2.5}}
    return HEAD + avro_bytes(avro_schema(nested=nested), record)


def descriptors(*, nested: bool = False) -> descriptor_pb2.FileDescriptorSet:
    """What protoc writes for the message, which is the second one of its file."""
    kinds = {
        "customer": "STRING", "country": "ENUM", "coupon": "STRING", "cents": "SINT64", "price": "DOUBLE",
        "rate": "FLOAT", "paid": "BOOL", "at": "MESSAGE", "day": "STRING", "items": "STRING",
    }  # fmt: skip
    tree = placed({name: name for name in SCHEMA}, nested=nested)
    stamp = descriptor_pb2.FileDescriptorProto(
        name="google/protobuf/timestamp.proto", package="google.protobuf", syntax="proto3"
    )
    time = stamp.message_type.add(name="Timestamp")
    time.field.add(name="seconds", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    time.field.add(name="nanos", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append(stamp.name)
    file.message_type.add(name="Other")
    country = file.enum_type.add(name="Country")
    for number, name in enumerate(("DE", "FR", "JP")):
        country.value.add(name=name, number=number)

    def filled(message: Any, tree: Mapping[str, Any]) -> None:
        for number, (key, what) in enumerate(tree.items(), 1):
            if isinstance(what, dict):
                filled(file.message_type.add(name=f"{message.name}_{key}"), what)
                kind, of = "MESSAGE", f".shop.{message.name}_{key}"
            else:
                kind = kinds[what]
                of = {"country": ".shop.Country", "at": ".google.protobuf.Timestamp"}.get(what, "")
            field = message.field.add(
                name=key, number=number, type=f"TYPE_{kind}", type_name=of or None
            )
            field.label = "LABEL_REPEATED" if what == "items" else "LABEL_OPTIONAL"
            if what == "coupon":
                field.proto3_optional, field.oneof_index = True, 0
                message.oneof_decl.add(name="_coupon")

    filled(file.message_type.add(name="Order"), tree)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, file])


def message_class(told: descriptor_pb2.FileDescriptorSet, name: str = MESSAGE) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in told.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


SECOND = b"\2\2"
"""How the wire format says that the second message of a file comes."""


def as_protobuf(event: Event, *, nested: bool = False) -> bytes:
    told = {**event, "price": float(event["price"]), "day": str(event["day"])}
    message = message_class(descriptors(nested=nested))()

    def fill(message: Any, tree: Mapping[str, Any]) -> None:
        for key, value in tree.items():
            if isinstance(value, dict):
                getattr(message, key).SetInParent()
                fill(getattr(message, key), value)
            elif isinstance(value, list):
                getattr(message, key).extend(value)
            elif key == "country":
                message.country = ("DE", "FR", "JP").index(value)
            elif key == "at":
                micros = (value - EPOCH) // timedelta(microseconds=1)
                message.at.seconds, message.at.nanos = micros // 10**6, micros % 10**6 * 1000
            elif value is not None:
                setattr(message, key, value)

    fill(message, placed(told, nested=nested))
    body: bytes = message.SerializeToString()
    return HEAD + SECOND + body


def written(folder: Path, form: str, *, nested: bool) -> dict[str, Any] | None:
    """Write the schema of a form; return what the pipeline file says of its values."""
    if form == "plain":
        return None
    if form == "json":
        return {"format": "json", "ids": ["7"]}
    path = folder / f"{form}-{nested}"
    schemas = {"format": form, "schemas": {"7": path.name}}
    if form == "avro":
        path.write_text(json.dumps(avro_schema(nested=nested)))
        return schemas
    path.write_bytes(descriptors(nested=nested).SerializeToString())
    return {**schemas, "message": MESSAGE}


def payloads(form: str, told: Sequence[Event], *, nested: bool) -> list[bytes]:
    writers: dict[str, Any] = {
        "plain": as_json,
        "json": lambda event, nested: HEAD + as_json(event, nested=nested),
        "avro": as_avro,
        "protobuf": as_protobuf,
    }
    return [writers[form](event, nested=nested) for event in told]
