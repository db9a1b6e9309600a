"""How values of a topic are written: `source.values` of a pipeline file, in Confluent's wire format.

Rules: a value begins with a zero and the number of its schema, four bytes. The file names the schemas by these numbers,
and their texts are read when it is; a number that it does not name makes a dead letter, and no record causes a look-up.
So what a record is depends on its bytes and on the file with its schemas alone. One record is read at a time. Nothing
that a value holds raises.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from stream_dp.journal.dead_letters import NO_SCHEMA_ID, UNKNOWN_SCHEMA
from stream_dp.records import avro, protobuf
from stream_dp.records.leaf_values import Read
from stream_dp.records.scalars import Frozen, problem, refuse
from stream_dp.records.schema import Fields

_HEAD = 5


class Content(NamedTuple):
    """What a file held when the pipeline file that names it was read."""

    path: Path
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def _content(named: Any, info: ValidationInfo) -> Content:
    if isinstance(named, Content):
        return named
    if not isinstance(named, str | Path) or not str(named):
        raise ValueError("must be the path of a file")
    path = Path((info.context or {}).get("folder") or ".") / named
    try:
        return Content(path, path.read_bytes())
    except (OSError, ValueError):
        raise ValueError("cannot be read: is there such a file?") from None


_PATH = {"type": "string", "minLength": 1, "format": "path"}
SchemaFile: TypeAlias = Annotated[Content, PlainValidator(_content), WithJsonSchema(_PATH)]
SchemaId: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
Schemas: TypeAlias = Annotated[Mapping[SchemaId, SchemaFile], Field(min_length=1, max_length=1000)]


class _Values(Frozen):
    """A format: how the schemas of each number are read."""

    @property
    def counting(self) -> dict[str, Any]:
        """What says which records count: part of a pipeline's fingerprint."""
        raise NotImplementedError

    def readers(self, fields: Fields) -> dict[int, Read]:
        """Return how values become JSON with what `fields` need, by the number of the schema."""
        raise NotImplementedError

    def read(self, fields: Fields) -> Read:
        """Return how any value becomes JSON with what `fields` need, or why it does not."""
        readers = {number.to_bytes(4, "big"): own for number, own in self.readers(fields).items()}

        def read(payload: bytes) -> bytes | str:
            if len(payload) < _HEAD or payload[0]:
                return NO_SCHEMA_ID
            own = readers.get(payload[1:_HEAD])
            return UNKNOWN_SCHEMA if own is None else own(payload)

        return read


class JsonValues(_Values):
    """JSON behind the number of a JSON Schema, which is not looked at: `schema` of the file says what fits."""

    format: Literal["json"]
    ids: Annotated[tuple[SchemaId, ...], Field(min_length=1, max_length=1000)]

    @property
    def counting(self) -> dict[str, Any]:
        return {"format": self.format, "ids": sorted(set(self.ids))}

    def readers(self, fields: Fields) -> dict[int, Read]:
        return dict.fromkeys(self.ids, lambda payload: payload[_HEAD:])


class _WithSchemas(_Values):
    format: str
    schemas: Schemas

    @property
    def counting(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "schemas": {str(number): content.digest for number, content in self.schemas.items()},
        }

    def reader(self, data: bytes, fields: Fields) -> Read:
        """Return how values of the schema become JSON; raise ValueError if it is none."""
        raise NotImplementedError

    def readers(self, fields: Fields) -> dict[int, Read]:
        return {
            number: self.reader(content.data, fields) for number, content in self.schemas.items()
        }

    @model_validator(mode="after")
    def _sound(self) -> "_WithSchemas":
        wrong = []
        for number, content in self.schemas.items():
            try:
                self.reader(content.data, {})
            except ValueError as error:
                wrong.append(problem(("schemas", str(number)), str(error)))
        refuse(wrong)
        return self


class AvroValues(_WithSchemas):
    """Avro's binary encoding; `schemas` are the writers' schemas, files of JSON."""

    format: Literal["avro"]

    def reader(self, data: bytes, fields: Fields) -> Read:
        return avro.reader(data, fields, _HEAD)


class ProtobufValues(_WithSchemas):
    """Protobuf; `schemas` are descriptor sets, and `message` is the full name of the message, such as shop.Order."""

    format: Literal["protobuf"]
    message: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=500)]

    @property
    def counting(self) -> dict[str, Any]:
        return super().counting | {"message": self.message}

    def reader(self, data: bytes, fields: Fields) -> Read:
        return protobuf.reader(data, self.message, fields, _HEAD)


if TYPE_CHECKING:
    Values: TypeAlias = _Values
else:
    Values = Annotated[AvroValues | ProtobufValues | JsonValues, Field(discriminator="format")]
