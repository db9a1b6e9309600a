"""What an analyst needs to ask: who she is to the engine and what she may spend, and what can be asked at all."""

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.server.models.answer import Absent, Answer, Time
from stream_dp.server.models.configured import Account


class Me(Answer):
    """Whose token was shown, and the ledger that pays for what she creates."""

    analyst: str
    """Her name in the pipeline file; empty: the operator, who may act for everyone."""
    epsilon: Account
    """Her ledger; of the operator the pipeline's own."""
    token: Annotated[str | Absent, Field(examples=["3f9a12bc0d11"])] = None
    """The id of the token, by which the operator revokes it; missing where it is made from the key alone."""
    expires: Time | Absent = None
    """Until when the token is valid; missing where it has no end."""


class FieldEntry(Answer):
    """A field of the records, as the pipeline file declares it."""

    name: str
    type: Literal["category", "list", "text", "integer", "number", "boolean"]
    nullable: bool
    domain: tuple[str, ...] | Absent = None
    """Its declared values, in order; all others count as `other`."""
    most: Annotated[int, Field(ge=1)] | Absent = None
    """How many entries a list may have."""


class KeyEntry(Answer):
    """A key of the definition of a statistic, beside `name`, `epsilon` and `where`."""

    key: Annotated[str, Field(examples=["by", "threshold"])]
    kind: Literal["grouping", "amount", "range", "whole", "shares", "flag", "windows"]
    """What stands there: fields to go by, a field of numbers, two bounds, a whole number, shares, a flag, windows."""
    required: bool


class StatisticEntry(Answer):
    """A statistic that can be created while the engine runs, with its simple keys; docs/pipeline.md has all."""

    statistic: Annotated[str, Field(examples=["count", "histogram"])]
    about: str
    """What it tells."""
    keys: tuple[KeyEntry, ...]


class Schema(Answer):
    """What can be asked: the declared fields, and the statistics."""

    fields: tuple[FieldEntry, ...]
    statistics: tuple[StatisticEntry, ...]
