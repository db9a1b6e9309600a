"""What surrounds a pipeline: source, clock, journal, and the file of releases.

Rules: all of it is declared and public. Secrets are named by the file that holds them. Paths are relative to
the pipeline file's folder (validation context `folder`). This file opens nothing but the schemas of values.
"""

import codecs
import hashlib
import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails

from stream_dp.core.time import TickGrid
from stream_dp.journal.dead_letters import NO_SCHEMA_ID, UNKNOWN_SCHEMA
from stream_dp.records import avro, protobuf
from stream_dp.records.cells import KeyAndHeaders, Reading
from stream_dp.records.leaf_values import Read
from stream_dp.records.scalars import (
    HOOK,
    TOPIC,
    Duration,
    FieldName,
    Frozen,
    LocalPath,
    Moment,
    Share,
    Size,
    must,
    problem,
    refuse,
)
from stream_dp.records.schema import Fields

# How clients and brokers know each other: `source.security` of a pipeline file. A secret is named by the file that
# holds it, never written here. `token` names code that is imported, so whoever writes the pipeline file is trusted
# with what the engine may do.

Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PASSWORD, _TOKEN = ("username", "password_file"), ("token_file", "token")
_LOGIN = ("mechanism", *_PASSWORD, *_TOKEN)
_CERTIFICATE = ("key_file", "key_password_file")
_TLS = ("ca_file", "certificate_file", *_CERTIFICATE)


class Security(Frozen):
    """How to speak to the brokers: TLS, the client's certificate, its login; secrets stay in files of their own."""

    protocol: Protocol
    mechanism: Mechanism | None = None
    username: Annotated[str, Field(min_length=1)] | None = None
    password_file: LocalPath | None = None
    token_file: LocalPath | None = None
    token: Annotated[str, Field(pattern=HOOK)] | None = None
    ca_file: LocalPath | None = None
    certificate_file: LocalPath | None = None
    key_file: LocalPath | None = None
    key_password_file: LocalPath | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Security":
        beside = f"protocol {self.protocol}"
        sasl = self.protocol.startswith("SASL")
        problems = self._login() if sasl else self._none(_LOGIN, beside)
        problems += [] if self.protocol.endswith("SSL") else self._none(_TLS, beside)
        if self.certificate_file is None:
            named = [key for key in _CERTIFICATE if getattr(self, key) is not None]
            problems += [problem((key,), "needs a certificate_file beside it") for key in named]
        refuse(problems)
        return self

    def _none(self, keys: tuple[str, ...], beside: str) -> list[InitErrorDetails]:
        there = [key for key in keys if getattr(self, key) is not None]
        return [problem((key,), f"does not go with {beside}") for key in there]

    def _login(self) -> list[InitErrorDetails]:
        if self.mechanism is None:
            return [problem(("mechanism",), f"is missing: protocol {self.protocol} needs one")]
        by_token, beside = self.mechanism == "OAUTHBEARER", f"mechanism {self.mechanism}"
        wanted, other = (_TOKEN, _PASSWORD) if by_token else (_PASSWORD, _TOKEN)
        problems = self._none(other, beside)
        missing = [key for key in wanted if getattr(self, key) is None]
        if not by_token:
            return problems + [problem((k,), f"is missing: {beside} needs one") for k in missing]
        if len(missing) != 1:
            problems.append(problem(("token_file",), f"{beside} needs either token_file or token"))
        return problems


_LAST_MOMENT = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last that a release can print
_SHORTEST_DELAY = 100
_SETTLING = f"must be {_SHORTEST_DELAY}ms or more: half of it is for clocks that differ, half for the commit"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})", re.ASCII)


def addresses(value: str) -> str:
    """Return the addresses of some brokers unchanged, or raise ValueError.

    >>> addresses("one:9092,[::1]:9092")
    'one:9092,[::1]:9092'
    """
    for address in value.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is None or not 0 < int(match[2]) < 65536:
            raise ValueError("must be host:port, or several of them separated by commas")
    return value


# How values of a topic are written: `source.values`, in Confluent's wire format. A value begins with a zero and the
# number of its schema, four bytes. The file names the schemas by these numbers, and their texts are read when it is; a
# number that it does not name makes a dead letter, and no record causes a look-up. So what a record is depends on its
# bytes and on the file with its schemas alone. One record is read at a time. Nothing that a value holds raises.

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

    def only(self, numbers: Collection[int]) -> "_Values":
        """Return this format with those of its schemas that have these numbers."""
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

    def only(self, numbers: Collection[int]) -> "JsonValues":
        return self.model_copy(update={"ids": tuple(n for n in self.ids if n in numbers)})


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

    def only(self, numbers: Collection[int]) -> "_WithSchemas":
        kept = {number: content for number, content in self.schemas.items() if number in numbers}
        return self.model_copy(update={"schemas": kept})

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


_COUNTING = {"open_transactions", "largest_batch", "keyed_by", "partitioner"}


def _ticks(value: object) -> object:
    if isinstance(value, str) and value[:1].isdigit() and value[-1:].isalpha():
        raise ValueError("must be a whole number of ticks, not a duration: 1440 ticks of 1m are 1d")
    return value


Horizon: TypeAlias = Annotated[int, Field(ge=1, le=10**9), BeforeValidator(_ticks)]


class SourceSpec(Frozen):
    """Where events come from.

    A source is a subclass with a line in `SOURCES`, and an adapter with a line in `operate.run.wiring.OPENERS`.
    `stamped`: records carry the time of their arrival, which a wall clock needs; `journals` are the kinds that can
    go with it, the first one by default. The operator is told where more than `warn_dead` of the records cannot be
    used.
    """

    stamped: ClassVar[bool] = False
    journals: ClassVar[tuple[str, ...]] = ("sqlite",)

    kind: str
    warn_dead: Share = Fraction(1, 10)

    @property
    def counting(self) -> dict[str, Any]:
        return {}


class Workers(Frozen):
    """Who reads a topic in place of the engine: `stream-dp worker`, by so many lanes, fixed at the first start.

    `pad`: rows have lengths of powers of 2, so that their sizes tell less.
    """

    lanes: Annotated[int, Field(ge=1, le=1024)]
    pad: bool = False


class KafkaSourceSpec(SourceSpec):
    """A Kafka topic."""

    stamped: ClassVar[bool] = True
    journals: ClassVar[tuple[str, ...]] = ("kafka", "sqlite")

    kind: Literal["kafka"] = "kafka"
    topic: Annotated[str, Field(pattern=TOPIC)]
    bootstrap: Annotated[str, AfterValidator(addresses)]
    security: Security | None = None
    patience: Duration = 300_000
    """How long a run that has lost its brokers tries again, in ms."""
    open_transactions: Literal["late", "wait"] = "late"
    """What is committed when its ticks have settled: late, or the ticks wait for the ends of all transactions."""
    largest_batch: Size = 16 * 2**20
    """A batch that would expand to more bytes is not unpacked: its records are dead letters."""
    keyed_by: FieldName | None = None
    """Producers give each record the text of this field as its key, which says its partition."""
    partitioner: Literal["murmur2", "crc32"] = "murmur2"
    """How they choose a partition by a key: as the Java client does, or librdkafka."""
    processes: Annotated[int, Field(ge=1, le=256)] | Literal["cores"] = 1
    """How many processes read the topic, if it has as many partitions; by default the engine's own."""
    workers: Workers | None = None
    """Workers that read the topic, on whatever machines, in place of the engine."""
    values: Values | None = None
    """How values are written, where they are no plain JSON."""

    def read(self, fields: Fields) -> Reading | None:
        """Return how records become JSON with what `fields` need; None where their values alone are that."""
        value = None if self.values is None else self.values.read(fields)
        beside = KeyAndHeaders.of(fields)
        return None if value is None and beside is None else Reading(value, beside)

    @property
    def counting(self) -> dict[str, Any]:
        counting = self.model_dump(include=_COUNTING, exclude_defaults=True)
        return counting if self.values is None else counting | {"values": self.values.counting}

    def as_counted(self, counting: Mapping[str, Any]) -> "KafkaSourceSpec":
        """Return this source with the schemas alone that were there when it counted so."""
        before = schemas_of(counting)
        if self.values is None or not before:
            return self
        return self.model_copy(update={"values": self.values.only({*map(int, before)})})


def schemas_of(counting: Mapping[str, Any]) -> dict[str, str]:
    """Return the numbers of the schemas of a source that counts so, each with the digest of its text ("" in JSON)."""
    values = counting.get("values") or {}
    schemas: dict[str, str] = values.get("schemas") or {}
    return schemas or {str(number): "" for number in values.get("ids") or ()}


UTF_8 = "utf-8"
# A byte is a character in each, those of ASCII are the same, so a byte that means nothing spoils its own line alone.
_ENCODINGS = re.compile(
    r"utf-8|ascii|iso8859-\d+|cp125\d|cp437|cp85\d|koi8-[rtu]|mac-roman", re.ASCII
)


def encoding_name(name: str) -> str:
    """Return the one name of an encoding of files.

    >>> encoding_name("latin-1"), encoding_name("UTF8"), encoding_name("windows-1252")
    ('iso8859-1', 'utf-8', 'cp1252')
    """
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        known = ""
    if _ENCODINGS.fullmatch(known) is None:
        raise ValueError(
            "must be utf-8 or an encoding with one byte for each character, such as latin-1 or "
            "cp1252"
        )
    return known


class FileSourceSpec(SourceSpec):
    """A CSV or JSON-lines file, gzip or not."""

    kind: Literal["file"] = "file"
    path: LocalPath
    encoding: Annotated[str, Field(max_length=40), AfterValidator(encoding_name)] = UTF_8
    """Of a CSV: what its bytes mean."""

    @property
    def counting(self) -> dict[str, str | int]:
        return {} if self.encoding == UTF_8 else {"encoding": self.encoding}

    @model_validator(mode="after")
    def _known_format(self) -> "FileSourceSpec":
        name = self.path.name.removesuffix(".gz")
        if not name.endswith((".csv", ".jsonl")):
            refuse([problem(("path",), "must end in .csv, .jsonl, .csv.gz or .jsonl.gz")])
        if self.encoding != UTF_8 and not name.endswith(".csv"):
            refuse([problem(("encoding",), "is of a CSV; JSON is UTF-8: leave it out")])
        return self


SOURCES: tuple[type[SourceSpec], ...] = (KafkaSourceSpec, FileSourceSpec)

if TYPE_CHECKING:
    Source: TypeAlias = SourceSpec
else:
    Source = Annotated[reduce(or_, SOURCES), Field(discriminator="kind")]


def source_named(kind: object) -> type[SourceSpec] | None:
    return {source.model_fields["kind"].default: source for source in SOURCES}.get(kind)


class ReplayClock(Frozen):
    """The records' own, public times decide; the grid is declared."""

    kind: Literal["replay"] = "replay"
    field: str
    start: Moment
    step: Duration
    horizon: Horizon
    block: Horizon = 1

    @property
    def grid(self) -> TickGrid:
        return TickGrid(self.start, self.step, self.horizon)

    @model_validator(mode="after")
    def _printable(self) -> "ReplayClock":
        if self.grid.end(self.horizon - 1) > _LAST_MOMENT:
            refuse([problem(("horizon",), "the last tick would end after the year 9999")])
        return self


class WallClock(Frozen):
    """The broker's append stamps decide; a tick is published `delay` after its end, whatever came in.

    Half of the delay is how far the clocks of brokers and engine may differ, half is for the commit.
    """

    kind: Literal["wall"] = "wall"
    step: Duration
    delay: Annotated[Duration, must(lambda delay: delay >= _SHORTEST_DELAY, _SETTLING)] = 500
    horizon: Horizon | None = None
    start: Moment | None = None


Clock: TypeAlias = Annotated[ReplayClock | WallClock, Field(discriminator="kind")]


class KafkaJournalSpec(Frozen):
    """Commits and releases in topics of the source's broker. Commits of ticks that ended `keep` before the last public
    one are deleted; without it, none are.
    """

    kind: Literal["kafka"] = "kafka"
    keep: Duration | None = None


class SqliteJournalSpec(Frozen):
    """Commits in a local database file. Those of ticks that ended `keep` before the last public one are deleted;
    without it, none are.
    """

    kind: Literal["sqlite"] = "sqlite"
    path: LocalPath
    keep: Duration | None = None


Journal: TypeAlias = Annotated[KafkaJournalSpec | SqliteJournalSpec, Field(discriminator="kind")]


class Releases(Frozen):
    """Where releases go when there is no Kafka journal, and how they write the values of keys."""

    path: LocalPath | None = None
    values: Literal["by_key", "array"] = "by_key"
    """`array`: in the order of the keys, which the first release of each series names."""
