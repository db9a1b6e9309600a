"""Messages of analysts to a running engine: a model for each action, the reader of their JSON, and their signatures.

Rules: a message comes from anyone who has a token. Unknown keys are refused, and every problem is named with its key.
Nothing that a message holds is repeated, because answers are public. The definition of a series or of a watch is handed
over as its bytes in the message. A message is its sender's if it is signed with a token of the analyst whom it names,
or with the operator's, which may act for everyone. Whether a token has expired is decided by the stamp of the message.
The JSON Schema of docs/messages.json is made of these models.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import msgspec
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from stream_dp.engine.messages.addressed import Addressed, Wanted
from stream_dp.engine.messages.conversation import not_accepted
from stream_dp.engine.messages.issued_tokens import IssuedToken
from stream_dp.errors import FailClosed, UsageError, WorldError
from stream_dp.journal.answer_body import RefusalKind
from stream_dp.live.envelope import Envelope, is_signed, read_envelope
from stream_dp.pipeline.problems import NOTHING, Written, known_keys, suggestion, with_expected
from stream_dp.pipeline.problems import message as in_words
from stream_dp.records.scalars import Frozen, Moment, Name

_ID, _ANALYST = r"^[A-Za-z0-9_.-]{1,64}$", r"^([a-z0-9][a-z0-9_.-]{0,62})?$"
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_MOST_KEYS, _LARGEST, _LONGEST_WATCH, _LONGEST_WINDOW = 10_000, 2**62, 300, 32

Id: TypeAlias = Annotated[str, Field(pattern=_ID, examples=["c1f"])]
Analyst: TypeAlias = Annotated[str, Field(pattern=_ANALYST, examples=["ann"])]
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_WORDS: Mapping[tuple[str, str], str] = {
    ("id", "string_pattern_mismatch"): "must be 1 to 64 of the characters A-Z a-z 0-9 _ . -",
    ("analyst", "string_pattern_mismatch"): "must be the name of an analyst, or empty",
    ("keys", "too_short"): "must hold a key, or be left out",
    ("", "bytes_type"): "must be a JSON object",
    ("", "int_type"): "must be a whole number",
}
"""The wording of problems, by key ("": any) and kind."""
OPERATOR = ""
_NOT_VALID = (
    "token: has expired or was revoked; ask the operator for another one (`stream-dp token`)"
)
_NOT_READ = "token: the engine cannot read its list of tokens now; tell the operator"
_NOT_HERS = "analyst: the message names another than whose token was shown; name that one, or show the operator's token"


def _written(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a time with its offset, such as 2013-01-01T10:00:00Z")  # noqa: TRY004
    return value


Until: TypeAlias = Annotated[
    Moment,
    BeforeValidator(_written),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-23T10:00:00Z"]}),
]
Definition: TypeAlias = Annotated[
    bytes, Field(strict=True), WithJsonSchema({"type": "object", "additionalProperties": True})
]
"""The bytes of a JSON object, as they stand in the message."""
AcceptNoise: TypeAlias = Annotated[bool, Field(strict=True)]


class Message(Frozen):
    """What every message says."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    definition_key: ClassVar[str] = ""
    """The key whose value stays bytes, if there is one."""

    id: Id
    """1 to 64 of the characters A-Z a-z 0-9 _ . - ; used once for ever within its pipeline."""
    analyst: Analyst = ""
    """Whose ledger pays; empty: the pipeline's own, which takes the operator's token."""
    until: Until
    """RFC 3339, UTC: the message is executed only if it has arrived by then, and not more than 24 h before."""


class CreateMessage(Message):
    """Create a series, at the next cut between two ticks."""

    definition_key = "series"
    do: Literal["create"]
    series: Definition
    """The series, as an entry of `series:` in the pipeline file."""
    accept_noise: AcceptNoise = False
    """Create it even if it fires mostly by noise, which is refused otherwise; `preview` says so under `noise`."""


class PreviewMessage(Message):
    """Tell what creating a series would cost; changes nothing."""

    definition_key = "series"
    do: Literal["preview"]
    series: Definition
    """The series, as an entry of `series:` in the pipeline file."""


class HaltMessage(Message):
    """End a series that was created."""

    do: Literal["halt"]
    series: Name
    """Its name."""


class ListMessage(Message):
    """List every series."""

    do: Literal["list"]


class AskMessage(Message):
    """Ask a series. Of released ones: `keys`, or a range, or all; a window. Of a monitor: one watch, at a threshold."""

    do: Literal["ask"]
    series: Name
    """Its name."""
    keys: Annotated[tuple[str, ...] | None, Field(min_length=1, max_length=_MOST_KEYS)] = None
    """These keys of a histogram."""
    from_: Annotated[str | None, Field(alias="from")] = None
    """The first key of a range, in the order of the declared domain; without it the range begins with the first."""
    to: str | None = None
    """The last key of a range; without it the range ends with the last."""
    window: Annotated[str | None, Field(min_length=1, max_length=_LONGEST_WINDOW)] = None
    """One window of a series with windows, `tick` or as the series declares it; without it all of them."""
    watch: Annotated[str | None, Field(min_length=1, max_length=_LONGEST_WATCH)] = None
    """The watch of a monitor; of one with a `by`, the value that is asked about behind a stroke: `busy/ATL`."""
    threshold: Annotated[int | None, Field(strict=True, ge=-_LARGEST, le=_LARGEST)] = None
    """The threshold that the watch is compared with."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What is asked, by its keys in the message, without those that are not there."""
        given = {
            "keys": self.keys and list(self.keys), "from": self.from_, "to": self.to,
            "window": self.window, "watch": self.watch, "threshold": self.threshold,
        }  # fmt: skip
        return {key: value for key, value in given.items() if value is not None}


class WatchMessage(Message):
    """Add a watch to a monitor."""

    definition_key = "watch"
    do: Literal["watch"]
    series: Name
    """The monitor's name."""
    watch: Definition
    """The watch, as an entry of `watch:` of a monitor."""
    accept_noise: AcceptNoise = False
    """Add it even if it fires mostly by noise, which is refused otherwise."""


class UnwatchMessage(Message):
    """End a watch of a monitor."""

    do: Literal["unwatch"]
    series: Name
    """The monitor's name."""
    watch: Name
    """The watch's name."""


class ApplyMessage(Message):
    """Go on with a changed pipeline file; takes the operator's token."""

    definition_key = "file"
    do: Literal["apply"]
    file: Definition
    """What the file says, as `stream-dp apply` writes it."""


AnyMessage: TypeAlias = (
    CreateMessage
    | PreviewMessage
    | HaltMessage
    | ListMessage
    | AskMessage
    | WatchMessage
    | UnwatchMessage
    | ApplyMessage
)
MESSAGES: Mapping[str, type[Message]] = {
    get_args(model.model_fields["do"].annotation)[0]: model for model in get_args(AnyMessage)
}
"""The models, by the value of `do`."""

_M = TypeVar("_M", bound=Message)
_ENVELOPED, _EPOCH = {*Message.model_fields, "do", "series"}, "1970-01-01T00:00:00Z"


class Address(Message):
    """What a message says of itself before what it wants."""

    model_config = ConfigDict(extra="ignore")
    do: str = ""


def read_address(text: str) -> Address:
    """Read the id of a message, its sender, and until when it is valid; its request may be wrong.

    Raises `UsageError` as `read_message`.
    """
    parts = _parts(text)
    values = {key: _value(parts[key]) for key in Message.model_fields.keys() & parts.keys()}
    do = str(_value(parts.get("do", msgspec.Raw(b"0"))))
    return _validated(Address, {**values, "do": do if do in MESSAGES else ""})


def content_of(text: str) -> bytes:
    """Return the bytes that identify a message: all of it word for word, except its `until`."""
    parts = sorted(_parts(text).items())
    return b"\n".join(
        json.dumps(key).encode() + b" " + bytes(raw) for key, raw in parts if key != "until"
    )


def read_message(text: str) -> AnyMessage:
    """Read the JSON text of a message.

    Raises `UsageError`: every problem is named with its key, and no value is repeated.
    """
    parts = _parts(text)
    kind = MESSAGES.get(str(_value(parts.get("do", msgspec.Raw(b"0")))))
    if kind is None:
        raise UsageError(f"do: must be one of {', '.join(MESSAGES)}")
    values: dict[str, Any] = {}
    for key, raw in parts.items():
        values[key] = _object(raw) if key == kind.definition_key else _value(raw)
    return _validated(kind, values)  # type: ignore[return-value]  # one of the union


def read_ask(series: str, parameters: bytes) -> AskMessage:
    """Read the parameters of a query to a series: a JSON object without the rest of its message; errors as of
    `read_message`.
    """
    try:
        parts = _parts(parameters.decode())
    except UnicodeDecodeError:
        raise UsageError("a message must be a JSON object") from None
    others = sorted(parts.keys() & _ENVELOPED)
    if others:
        (every,) = known_keys(AskMessage, ("",))
        known = ", ".join(key for key in every if key not in _ENVELOPED)
        raise UsageError(
            f"{', '.join(others)}: unknown here, where only parameters are asked for; the known "
            f"parameters are {known}"
        )
    values = {key: _value(raw) for key, raw in parts.items()}
    return _validated(
        AskMessage, {**values, "id": "-", "until": _EPOCH, "do": "ask", "series": series}
    )


def _validated(kind: type[_M], values: Mapping[str, Any]) -> _M:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = dict.fromkeys(map(_told, with_expected(error, kind)))
        raise UsageError("\n".join(problems)) from None


def _parts(text: str) -> dict[str, msgspec.Raw]:
    """Return the value of each key, as its bytes."""
    try:
        return _OBJECT.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UsageError("a message must be a JSON object") from None


def _value(raw: msgspec.Raw) -> Any:
    """Return a plain value; one that is nested too deeply becomes an `object()`, which no model accepts."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return object()


def _object(raw: msgspec.Raw) -> Any:
    """Return the bytes of a JSON object; None for any other value."""
    text = bytes(raw)
    return text if text[:1] == b"{" else None


def _told(error: ErrorDetails) -> str:
    """Return one problem with its key; an unknown key is repeated only if it looks like a key."""
    place = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden" and _KEY.fullmatch(place[-1]) is None:
        known = ", ".join(error["ctx"]["known"][0])
        return f"a key is not known, nor anything that could be one; known are {known}"
    words = _WORDS.get((place[0], error["type"])) or _WORDS.get(("", error["type"]))
    written = Written(place[-1]) if error["type"] == "extra_forbidden" else NOTHING
    return f"{place[0]}: {words or in_words(error, written) + suggestion(error, written)}"


@dataclass(frozen=True, slots=True)
class SignedMessages:
    """The `MessageReader` of `pipeline`; `token_of` gives the token of an analyst ("": the operator).

    `issued` gives a token that the operator has made, by its id.
    """

    pipeline: str
    token_of: Callable[[str], str]
    issued: Callable[[str], tuple[IssuedToken, str] | None] = lambda _id: None

    def opened(self, value: bytes, stamp: int) -> Addressed:
        try:
            envelope = read_envelope(value)
        except UsageError:
            raise not_accepted(RefusalKind.UNREADABLE) from None
        message = self._addressed(envelope.message.encode(), operator=False)
        if envelope.token:
            self._require_issued(envelope, message.analyst, stamp)
            return message
        signers = [
            name
            for name in (OPERATOR, message.analyst)
            if is_signed(self.token_of(name), self.pipeline, envelope)
        ]
        if not signers:
            raise not_accepted(RefusalKind.SIGNATURE)
        return replace(message, operator=OPERATOR in signers)

    def _require_issued(self, envelope: Envelope, analyst: str, stamp: int) -> None:
        """Raise `NotAccepted` unless a token of the analyst signed, and was valid when the message came."""
        try:
            issued = self.issued(envelope.token)
        except (FailClosed, WorldError):
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_READ) from None
        if issued is None or issued[0].analyst != analyst:
            raise not_accepted(RefusalKind.SIGNATURE)
        if not is_signed(issued[1], self.pipeline, envelope):
            raise not_accepted(RefusalKind.SIGNATURE)
        if issued[0].state(stamp) != "valid":
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_VALID)

    def said(self, text: bytes, signer: str) -> Addressed:
        message = self._addressed(text, operator=signer == OPERATOR)
        if not message.operator and message.analyst != signer:
            raise not_accepted(RefusalKind.SIGNATURE, _NOT_HERS)
        return message

    def wanted(self, message: Addressed) -> Wanted:
        match read_message(message.text.decode()):
            case CreateMessage(do=do, series=definition, accept_noise=accept):
                return Wanted(do, definition=definition, accept_noise=accept)
            case PreviewMessage(do=do, series=definition):
                return Wanted(do, definition=definition)
            case HaltMessage(do=do, series=series):
                return Wanted(do, series)
            case ListMessage(do=do):
                return Wanted(do)
            case AskMessage(do=do, series=series, parameters=parameters):
                return Wanted(do, series, parameters=parameters)
            case WatchMessage(do=do, series=series, watch=definition, accept_noise=accept):
                return Wanted(do, series, definition, accept_noise=accept)
            case UnwatchMessage(do=do, series=series, watch=watch):
                return Wanted(do, series, parameters={"watch": watch})
            case ApplyMessage(do=do, file=definition):
                return Wanted(do, definition=definition)

    @staticmethod
    def _addressed(text: bytes, *, operator: bool) -> Addressed:
        try:
            address = read_address(text.decode())
        except (UsageError, UnicodeDecodeError):
            raise not_accepted(RefusalKind.UNREADABLE) from None
        return Addressed(
            address.id, address.analyst, operator, address.until, address.do, text,
            content=content_of(text.decode()),
        )  # fmt: skip
