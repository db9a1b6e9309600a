"""The base of all answers, the kinds of values in them, and the two smallest: health and refusal.

Rules: answers are frozen and refuse keys that are not theirs, so that nothing leaves which is not documented. A key
that may be missing is typed `X | Absent`, one that may be null `X | None`. Amounts of privacy that are charged are
decimal strings (never rounded by a reader's floats), those that a plan shows are numbers.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StrictFloat,
    StrictInt,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema

Absent: TypeAlias = SkipJsonSchema[None]
"""The other type of a key that may be missing; its default is None, which is never sent."""

Amount: TypeAlias = Annotated[
    StrictInt | StrictFloat, WithJsonSchema({"type": "number", "minimum": 0})
]
"""A privacy parameter as a number, rounded up: to be shown, not to be reckoned with."""

Decimal: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$", examples=["0.2"])]
"""A charged amount, exact: costs are rounded up, what is left is rounded down."""

Tick: TypeAlias = Annotated[int, Field(ge=0, examples=[412])]
"""The number of a tick of the public grid, from 0."""

HalfWidth: TypeAlias = Annotated[int | float, Field(ge=0, examples=[37])]
"""Half the width of an error band, in what the series counts."""

Confidence: TypeAlias = Annotated[float, Field(gt=0, lt=1, examples=[0.95])]
"""The probability with which a band holds at one tick, for one value."""

Time: TypeAlias = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$"),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2013-01-18T06:00:00Z"]}),
]
"""A time in UTC, ISO 8601 with a Z."""


class Documented(BaseModel):
    """Base of all that the OpenAPI document describes: no titles that repeat a key, no default that is never sent."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema as pydantic writes it, less what says nothing."""
        schema = handler(core_schema)
        for entry in handler.resolve_ref_schema(schema).get("properties", {}).values():
            entry.pop("title", None)
            if entry.get("default", "") is None:
                del entry["default"]
        return schema


class Answer(Documented):
    """Base of everything the API says of its own."""

    @classmethod
    def documented(cls, answer: Mapping[str, Any]) -> Self:
        """Return the documented keys of an answer; the others stay here."""
        return cls.model_validate({key: answer[key] for key in cls.model_fields if key in answer})


class Health(Answer):
    """The server runs. How busy it is, and what waits, would be private; `behind` is of public ticks."""

    status: Literal["ok", "catching up"]
    """`catching up`: the engine has lost its brokers and tries again; releases come late, and none is lost."""
    behind: Annotated[int, Field(ge=0, examples=[7200])] | Absent = None
    """For so many seconds the next tick should have been released; only where it is ten or more."""
    caught_up_in: Annotated[int, Field(ge=0, examples=[180])] | Absent = None
    """In so many seconds releases will have caught up, if ticks become public as fast as in the last half minute."""


class Refusal(Answer):
    """Why a request was refused; it changed nothing, and no part of it is repeated here."""

    detail: str
    """What is wrong, where, and what to do."""
    exit_code: Annotated[int, Field(ge=1, le=5)]
    """The exit code of the command line: 1 a bug of ours, 2 usage, 3 budget, 4 stopped, 5 broker, network or disk."""


class Visitor(Answer):
    """As whom the server knows a client."""

    reads: Literal["anyone", "known"]
    """Whether everyone may read, or only those who are known."""
    admitted: bool
    """Whether this client may read."""
    name: str
    """The analyst, the reader or the proxy's user; empty: nobody who is known, or the operator."""
    asks: bool
    """Whether it may ask with what it showed: a token in the header, or an analyst's user, as the proxy says."""
    cookie: bool
    """Whether it is known by the cookie of `/api/login`."""
