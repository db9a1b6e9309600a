"""The content of an answer: what was done, or the error that refused the message, and that error read back.

Rules: a record that is not accepted as a message is refused in the same words whatever it holds. This file knows no
id and no rate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from stream_dp.errors import (
    BudgetRefused,
    MostlyNoise,
    NoRoom,
    NotAccepted,
    NotDerivable,
    NotYours,
    StreamDPError,
    UnknownMechanism,
    UsageError,
)
from stream_dp.journal.answer_body import (
    VERSION,
    AnswerCut,
    Answered,
    RefusalKind,
    RefusedMessage,
    RefusedRecords,
    write_answer,
)
from stream_dp.journal.commit import Refused

DETAILS: Mapping[RefusalKind, str] = {
    RefusalKind.UNREADABLE: "no envelope of a message, of another version, or its id, analyst or until is malformed; "
    "docs/messages.md shows an envelope and a message",
    RefusalKind.SIGNATURE: "signature: made neither with the token of the analyst whom the message names nor with the "
    "operator's; it is the HMAC-SHA256, in hex, of `stream-dp message 1`, the name of the pipeline and the exact text "
    "of the message, a line each, under the token: the text of its file without the end of its line",
    RefusalKind.EXPIRED: "until: lay before the moment at which the message arrived; send it again with a later one, "
    "up to 24 hours ahead",
    RefusalKind.USED: "id: was used for another message, whose answer it names for ever: in the topic of answers the "
    "record with this id as its key; nothing was done, send this message with an id of its own",
    RefusalKind.REPEATED: "id: this very message came before, and was executed; its answer is in the topic of answers, "
    "the record with this id as its key",
    RefusalKind.RATE: "more messages of this analyst came before the next tick than may be executed; nothing was done, "
    "send it again after the tick, with the same id",
}
AHEAD = "until: lies more than 24 hours after the moment at which it arrived; send it again with an earlier one"
"""The refusal of a message that would be valid for too long; its kind is `EXPIRED`."""
WORK = (
    "definitions of this analyst took as many steps before the next tick as they may; nothing was done, send it again "
    "after the tick, with the same id"
)
"""The refusal of a message whose sender's definitions took too many steps; its kind is `RATE`."""


def body_of(
    number: int,
    id_: str | None,
    do: str,
    standing: AnswerCut,
    told: Mapping[str, Any] | StreamDPError,
    places: tuple[int, ...] = (),
) -> bytes:
    """Return the bytes of an answer."""
    return write_answer(
        Answered(
            v=VERSION, number=number, id=id_, do=do or UNSET, places=places or UNSET,
            tick=standing.tick, end=standing.end,
            answer=UNSET if isinstance(told, StreamDPError) else told,
            refused=refusal_of(told) if isinstance(told, StreamDPError) else UNSET,
        )
    )  # fmt: skip


def refusals_body(number: int, standing: AnswerCut, refused: Sequence[Refused]) -> bytes:
    """Return the bytes of the one answer that refuses all these records."""
    first, *others = refused
    return write_answer(
        Answered(
            v=VERSION, number=number, id=None, places=first.places, tick=standing.tick, end=standing.end,
            refused=RefusedMessage(first.reason, UsageError.exit_code, first.detail, **_uncounted(first)),
            also=tuple(
                RefusedRecords(
                    each.reason, UsageError.exit_code, each.detail, places=each.places, **_uncounted(each)
                )
                for each in others
            ) or UNSET,
        )
    )  # fmt: skip


def _uncounted(refused: Refused) -> dict[str, int]:
    """Return the fields that count records whose places are not named."""
    if refused.records == len(refused.places):
        return {}
    return {"records": refused.records, "last": refused.last}


_KINDS: Mapping[type[StreamDPError], RefusalKind] = {
    BudgetRefused: RefusalKind.BUDGET,
    UnknownMechanism: RefusalKind.UNKNOWN,
    NotYours: RefusalKind.FORBIDDEN,
    NotDerivable: RefusalKind.DERIVATION,
    NoRoom: RefusalKind.ROOM,
    MostlyNoise: RefusalKind.NOISE,
}


def refusal_of(error: StreamDPError) -> RefusedMessage:
    """Return the refusal that an answer holds for an error."""
    if isinstance(error, NotAccepted):
        kind = error.kind
    else:
        found = (kind for of, kind in _KINDS.items() if isinstance(error, of))
        kind = next(found, RefusalKind.USAGE)
    code = error.exit_code if isinstance(error, BudgetRefused) else UsageError.exit_code
    return RefusedMessage(kind, code, str(error))


def error_of(refused: RefusedMessage) -> StreamDPError:
    """Return the error that refused a message, as far as the answer tells it."""
    if refused.kind in DETAILS:
        return NotAccepted(refused.kind, refused.detail)
    kinds: Mapping[str, type[StreamDPError]] = {kind: of for of, kind in _KINDS.items()}
    return kinds.get(refused.kind, UsageError)(refused.detail)


def not_accepted(kind: RefusalKind, detail: str = "") -> NotAccepted:
    """Return the error for a message that is not accepted under its id."""
    return NotAccepted(kind, detail or DETAILS[kind])
