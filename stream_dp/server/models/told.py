"""Messages to a running engine and what is answered, as readers of the OpenAPI document see them.

Rules: these models describe; the engine decides what a message means, and its answers leave as the bytes that they are.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from stream_dp.server.models.answer import Absent, Answer, Documented, Tick, Time


class AnalystMessage(Documented):
    """A message, without an envelope: the token takes the place of the signature. Further keys belong to `do`."""

    model_config = ConfigDict(extra="allow")
    id: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$", examples=["c1f"])]
    """Used once for ever; the same message again has the same answer."""
    analyst: str | Absent = None
    """Whose ledger pays; empty: the pipeline's own, which takes the operator's token."""
    until: Time
    """When it expires, 24 hours from now at most."""
    do: Annotated[str, Field(examples=["ask"])]
    """What to do: create, preview, halt, list, ask, watch or unwatch."""


class AskParameters(Documented):
    """What is asked: of a released one some keys, a range or all, and a window; of a monitor a watch at a threshold."""

    keys: Annotated[tuple[str, ...] | Absent, Field(min_length=1)] = None
    """These keys."""
    from_: Annotated[str | Absent, Field(alias="from")] = None
    """The first key of a range, in the order of the series."""
    to: str | Absent = None
    """The last key of a range."""
    window: str | Absent = None
    """One window of a series with windows."""
    watch: str | Absent = None
    """The watch of a monitor."""
    threshold: int | Absent = None
    """The threshold to compare with."""


class MessageRefusal(Answer):
    """Why a message was refused; it changed nothing."""

    kind: Annotated[str, Field(examples=["budget"])]
    """What is wrong: usage, unknown, forbidden, derivation or budget."""
    exit_code: Annotated[int, Field(ge=1, le=5)]
    """The exit code of the command line for the same."""
    detail: str
    """What is wrong, where, and what to do."""


class MessageAnswer(Answer):
    """The answer to a message, on record: the same bytes for ever. It has one of `answer` and `refused`."""

    v: int
    """The version of this form: 1."""
    number: Annotated[int, Field(ge=1)]
    """Its number among all answers of the pipeline."""
    id: str
    """The id of the message."""
    do: str | Absent = None
    """What was to be done."""
    places: tuple[int, ...] | Absent = None
    """Where in the queue the message lay, if it came by that."""
    tick: Tick | None
    """The last tick before it was done; null before the first."""
    end: Time
    """When that tick ended."""
    answer: dict[str, Any] | Absent = None
    """What is answered; docs/messages.md says what, for each `do`."""
    refused: MessageRefusal | Absent = None
    """Why nothing was done."""
