"""What a record looks like: the fields of `schema:`. Every model is frozen and refuses unknown keys."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.core.moments import TimeForm
from stream_dp.records.scalars import Domain, Frozen, problem, refuse
from stream_dp.records.zones import ZoneName


class _Field(Frozen):
    nullable: bool = False


class TimeField(Frozen):
    """The record's own time: text with an offset (or in `zone`), or whole seconds, ms or µs since 1970."""

    type: Literal["time"] = "time"
    format: Literal["iso", "epoch_s", "epoch_ms", "epoch_us"] = "iso"
    zone: ZoneName | None = None

    @model_validator(mode="after")
    def _zone_of_texts(self) -> "TimeField":
        if self.zone is not None and self.format != "iso":
            wrong = f"{self.format} counts from 1970 in UTC and has no zone: leave it out"
            refuse([problem(("zone",), wrong)])
        return self

    @property
    def form(self) -> TimeForm:
        """How these times are read."""
        return TimeForm(self.format, None if self.zone is None else ZoneInfo(self.zone))


class CategoryField(_Field):
    """Text from a declared domain; every other text (and null, where allowed) counts in `other`."""

    type: Literal["category"] = "category"
    domain: Domain


class ListField(_Field):
    """At most `most` texts, of which those from a declared domain count, each once however often it is listed.

    All other texts together count once in `other`, and so does null, where allowed; an empty list counts nowhere. A
    list with more entries, as written, is a dead letter. JSON and Parquet have lists; a cell of text in a file holds
    one where the `separator` between its entries is declared.
    """

    type: Literal["list"] = "list"
    domain: Domain
    most: Annotated[int, Field(ge=1, le=10_000)]
    separator: Annotated[str, Field(min_length=1, max_length=10)] | None = None

    @model_validator(mode="after")
    def _whole_entries(self) -> "ListField":
        if (apart := self.separator) is not None:
            wrong = "'{}' holds the separator, so no cell can hold it"
            held = [(at, text) for at, text in enumerate(self.domain) if apart in text]
            refuse([problem(("domain", at), wrong.format(text)) for at, text in held])
        return self

    @property
    def ones(self) -> int:
        """The most entries of a row that one record sets: `most`, or all that there are, `other` included."""
        return min(self.most, len(self.domain) + 1)


class TextField(_Field):
    """Any text."""

    type: Literal["text"] = "text"


class IntegerField(_Field):
    """A 64-bit integer; 60.0 is not one."""

    type: Literal["integer"] = "integer"


class NumberField(_Field):
    """A number, read as an IEEE double; bounds in conditions are rounded to one too."""

    type: Literal["number"] = "number"


class BooleanField(_Field):
    """True or false."""

    type: Literal["boolean"] = "boolean"


FieldSpec: TypeAlias = Annotated[
    TimeField | CategoryField | ListField | TextField | IntegerField | NumberField | BooleanField,
    Field(discriminator="type"),
]
Fields: TypeAlias = Mapping[str, FieldSpec]


def field_problems(
    at: tuple[str | int, ...], name: str, fields: Fields, types: Collection[str], wrong: str
) -> list[InitErrorDetails]:
    """Return that `name`, which stands `at` this place, is no field, or one of another type than `types`.

    `wrong` says what is wrong with another type; it stands behind "'delay' is an integer".
    """
    if name not in fields:
        return [problem(at, f"'{name}' is not in the schema", fields)]
    kind = fields[name].type
    article = "an" if kind == "integer" else "a"
    return [] if kind in types else [problem(at, f"'{name}' is {article} {kind}{wrong}")]
