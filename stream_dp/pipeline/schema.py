"""What a record looks like, which records a series selects, and what it says about them.

Rules: every model is frozen and refuses unknown keys. Conditions keep what was written; `typed` says what it
means beside its field, and null never matches. What depends on two places of the file is checked in `checks`.
"""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from stream_dp.pipeline.scalars import Domain, Epsilon, Frozen, Name, Value, exact

_INT64 = 2**63
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


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


class Condition(Frozen):
    """One comparison of one field with public values; null never matches."""

    field: str
    at_least: Value | None = None
    at_most: Value | None = None
    equals: Value | None = None
    one_of: Annotated[tuple[Value, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_operator(self) -> "Condition":
        given = [self.at_least, self.at_most, self.equals, self.one_of]
        if sum(value is not None for value in given) != 1:
            raise ValueError("needs exactly one of at_least, at_most, equals, one_of")
        return self

    @property
    def operator(self) -> str:
        """The one operator that is given."""
        names = ("at_least", "at_most", "equals", "one_of")
        return next(name for name in names if getattr(self, name) is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """What is compared with, as written."""
        value: str | tuple[str, ...] = getattr(self, self.operator)
        return (value,) if isinstance(value, str) else value


Where: TypeAlias = tuple[Condition, ...]


def typed(field: Any, operator: str, text: str) -> str | int | float | bool:
    """What `text` means beside a `field` of the schema.

    Raises:
        ValueError: this field cannot be compared like this, or not with this text.
    """
    match field, operator:
        case IntegerField(), _:
            if _INTEGER.fullmatch(text) is None or not -_INT64 <= int(text) < _INT64:
                raise ValueError(f"'{text}' is not a 64-bit integer")
            return int(text)
        case NumberField(), _:
            return float(exact(text))
        case BooleanField(), "equals":
            if text not in ("true", "false"):
                raise ValueError(f"'{text}' is neither true nor false")
            return text == "true"
        case CategoryField(domain=domain), "equals" | "one_of":
            if text not in domain:
                raise ValueError(f"'{text}' is not in the domain of the field")
            return text
        case TextField(), "equals" | "one_of":
            return text
    raise ValueError(f"a {field.type} field cannot be compared with {operator}")


class _Series(Frozen):
    name: Name
    epsilon: Epsilon
    where: Where = ()


class CountSeries(_Series):
    """How many events so far."""

    statistic: Literal["count"] = "count"


class HistogramSeries(_Series):
    """How many events so far, by category."""

    statistic: Literal["histogram"] = "histogram"
    by: str
    method: Literal["tree", "hss", "auto"] = "auto"
    expected_events: Annotated[int, Field(ge=1, le=10**15)] | None = None


class MaximumSeries(_Series):
    """How many events so far in the category that has most."""

    statistic: Literal["maximum"] = "maximum"
    by: str
    method: Literal["hss"] = "hss"
    expected_events: Annotated[int, Field(ge=1, le=10**15)] | None = None


class AlertsSeries(_Series):
    """Per category: have about `threshold` events come since its last alert?"""

    statistic: Literal["alerts"] = "alerts"
    by: str
    threshold: Annotated[int, Field(ge=1, le=10**15)]


Series: TypeAlias = Annotated[
    CountSeries | HistogramSeries | MaximumSeries | AlertsSeries, Field(discriminator="statistic")
]
