"""What a record looks like: the fields of `schema:`. Every model is frozen and refuses unknown keys."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from stream_dp.pipeline.scalars import Domain, Frozen


class _Field(Frozen):
    nullable: bool = False


class TimeField(Frozen):
    """The record's own time: RFC 3339 text with an offset, or integer milliseconds since 1970."""

    type: Literal["time"] = "time"
    format: Literal["iso", "epoch_ms"] = "iso"


class CategoryField(_Field):
    """Text from a declared domain; every other text (and null, where allowed) counts in `other`."""

    type: Literal["category"] = "category"
    domain: Domain


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
    TimeField | CategoryField | TextField | IntegerField | NumberField | BooleanField,
    Field(discriminator="type"),
]
