"""What a record looks like: the fields of `schema:`. Every model is frozen and refuses unknown keys."""

from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from stream_dp.core.moments import TimeForm
from stream_dp.pipeline.scalars import Domain, Frozen, problem, refuse
from stream_dp.pipeline.zones import ZoneName


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
