"""The body of an answer to a message: its one form, written and read here and nowhere else.

Rules: a body is one line of JSON in UTF-8, made of public values and of what mechanisms answered. It names the cut at
which its message was executed: the last tick before the cut (null before the first) and the end of that tick. A written
answer is never written again in another form: the bytes are the answer. A refusal repeats no value of the message.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stream_dp.core.time import TickGrid, parse_moment
from stream_dp.journal.public_body import PublicBody, decoded_body

_UNNAMED = "what should be an answer"
VERSION = 1  # the form that is written, and the only one that is read

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_HalfWidth: TypeAlias = _Number | Annotated[float, msgspec.Meta(ge=0)]
_ENCODER = msgspec.json.Encoder(decimal_format="number")


class RefusalKind(StrEnum):
    """Why a message is refused; the kinds up to `RATE` say that the message is not accepted under its id."""

    UNREADABLE = "unreadable"
    SIGNATURE = "signature"
    EXPIRED = "expired"
    USED = "used"
    REPEATED = "repeated"
    RATE = "rate"
    USAGE = "usage"
    UNKNOWN = "unknown"
    FORBIDDEN = "forbidden"
    DERIVATION = "derivation"
    ROOM = "room"
    NOISE = "noise"
    BUDGET = "budget"


class AnswerCut(NamedTuple):
    """A cut as answers name it: the last tick before it (None before the first), and that tick's end as a text."""

    tick: int | None
    end: str

    @classmethod
    def before(cls, next_tick: int, grid: TickGrid) -> "AnswerCut":
        return cls(next_tick - 1 if next_tick else None, grid.start_text(next_tick))


class ThresholdAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an answer to a monitor's threshold query: yes or no, right up to `band` events.

    `fired` means that at least `threshold` - `band` events counted; otherwise fewer than `threshold` + `band` did.
    Each holds with `confidence`. If the monitor tells counts, `count` is the count at the firing, right up to
    `counts_band`. For a monitor on sums all of this is in the unit of its field, and a sum may be negative.
    """

    series: str
    watch: str
    threshold: int
    fired: bool
    band: _HalfWidth
    confidence: float
    count: int | float | UnsetType = UNSET
    counts_band: _HalfWidth | UnsetType = UNSET
    not_private: bool | UnsetType = UNSET


class RefusedMessage(msgspec.Struct, frozen=True):
    """Why nothing was done; `exit_code` is that of the command line.

    If it refuses more records than `places` names, `records` is their number, and `last` the place of the last one.
    """

    kind: str
    exit_code: int
    detail: str
    records: _Number | UnsetType = UNSET
    last: int | UnsetType = UNSET


class RefusedRecords(RefusedMessage, frozen=True, kw_only=True):
    """Why some other records, at `places`, are no messages."""

    places: tuple[int, ...]


class AnswerHead(PublicBody, frozen=True, kw_only=True):
    """The first fields of every answer; `end` is the end of the last tick before its cut, ISO 8601 in UTC.

    `places` is where the answered records lay in the queue; it is missing if the message came by another way.
    """

    number: _Number
    id: str | None
    do: str | UnsetType = UNSET
    places: tuple[int, ...] | UnsetType = UNSET
    tick: _Number | None
    end: str

    def __post_init__(self) -> None:
        if parse_moment(self.end) is None:
            raise ValueError("the end of an answer's tick must be a time with an offset")

    @property
    def end_ms(self) -> int:
        return parse_moment(self.end) or 0


class Answered(AnswerHead, frozen=True, kw_only=True):
    """A whole answer: exactly one of `answer` and `refused` is set; `id` is null if no message was accepted.

    In that case `also` has the records that were refused for other reasons.
    """

    answer: Mapping[str, Any] | UnsetType = UNSET
    refused: RefusedMessage | UnsetType = UNSET
    also: tuple[RefusedRecords, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.answer is UNSET) == (self.refused is UNSET):
            raise ValueError("an answer must have either answer or refused")

    @property
    def records(self) -> int:
        if self.refused is not UNSET and self.refused.records is not UNSET:
            first = self.refused.records
        else:
            first = len(self.places or ())
        counts = (len(o.places) if o.records is UNSET else o.records for o in self.also or ())
        return first + sum(counts)

    def names(self, place: int) -> bool:
        return place in (self.places or ()) or self.refusal(place) is not None

    def refusal(self, place: int) -> RefusedMessage | None:
        """Return why the record at this place of the queue is refused; None if this answer does not refuse it.

        Records that are counted without their places lie between the last place that is named and `last`: these are
        refused too. An accepted message among these has its own answer before this one.
        """
        if self.refused is UNSET:
            return None
        every = [(self.refused, self.places or ())]
        every += [(other, other.places) for other in self.also or ()]
        for refused, places in every:
            if place in places:
                return refused
        for refused, places in every:
            if places and refused.last is not UNSET and places[-1] < place <= refused.last:
                return refused
        return None


def write_answer(answered: Answered) -> bytes:
    return _ENCODER.encode(answered)


def read_answer(body: bytes) -> Answered:
    """Return an answer from its bytes; raises `FailClosed` (no answer) or `UnknownFormat`."""
    return decoded_body(body, Answered, VERSION, "answer", _UNNAMED)


def answer_head(body: bytes, what: str = _UNNAMED) -> AnswerHead:
    """Return the first fields of an answer, called `what` in errors; its content is not checked."""
    return decoded_body(body, AnswerHead, VERSION, "answer", what)


def places_in(body: bytes) -> tuple[int, ...]:
    """Return where in the queue the answered records lay; empty if the message came by another way."""
    places = answer_head(body).places
    return () if places is UNSET else places
