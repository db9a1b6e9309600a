"""The messages of analysts: which one is accepted under an id, and how answers are numbered and written.

Rules: an id is used once for ever, although it is remembered only until no message with this id could be accepted any
more. Ids, stamps and moments decide, never data. A message that is not accepted uses up no id, is refused in the same
words whatever it holds, and all refusals between two ticks share one answer. A start replays the journal here. This
file knows no clock, topic, actor or form of a message.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import UNSET

from stream_dp.engine.messages.addressed import TICK_STEPS, Addressed
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
from stream_dp.journal.commit import Answer, Commit, Refused, part, part_in

if TYPE_CHECKING:
    from stream_dp.engine.tick_assembler import ClosedTick, Cut

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
_KINDS: Mapping[type[StreamDPError], RefusalKind] = {
    BudgetRefused: RefusalKind.BUDGET,
    UnknownMechanism: RefusalKind.UNKNOWN,
    NotYours: RefusalKind.FORBIDDEN,
    NotDerivable: RefusalKind.DERIVATION,
    NoRoom: RefusalKind.ROOM,
    MostlyNoise: RefusalKind.NOISE,
}
PER_TICK = 100
"""How many messages of an analyst are executed between two tick cuts, unless a pipeline says otherwise."""
WATCHES = 20
"""How many watches an analyst may begin or end between two tick cuts, where the open tick is read again for them."""
WATCHING = ("watch", "unwatch")
"""Actions that begin or end a watch."""
LONGEST_MS = 24 * 3_600_000
"""How long after its stamp a message may be valid."""
PLACES = 20
"""How many records refused for one reason are named by their places; the others are only counted."""


def body_of(
    number: int,
    id_: str | None,
    do: str,
    standing: AnswerCut,
    outcome: Mapping[str, Any] | StreamDPError,
    places: tuple[int, ...] = (),
) -> bytes:
    return write_answer(
        Answered(
            v=VERSION, number=number, id=id_, do=do or UNSET, places=places or UNSET,
            tick=standing.tick, end=standing.end,
            answer=UNSET if isinstance(outcome, StreamDPError) else outcome,
            refused=refusal_of(outcome) if isinstance(outcome, StreamDPError) else UNSET,
        )
    )  # fmt: skip


def refusals_body(number: int, standing: AnswerCut, refused: Sequence[Refused]) -> bytes:
    first, *others = refused
    return write_answer(
        Answered(
            v=VERSION, number=number, id=None, places=first.places, tick=standing.tick, end=standing.end,
            refused=RefusedMessage(**_reason(first)),
            also=tuple(RefusedRecords(**_reason(other), places=other.places) for other in others) or UNSET,
        )
    )  # fmt: skip


def _reason(refused: Refused) -> dict[str, Any]:
    reason = {
        "kind": refused.reason, "exit_code": UsageError.exit_code, "detail": refused.detail,
    }  # fmt: skip
    if refused.records == len(refused.places):
        return reason
    return {**reason, "records": refused.records, "last": refused.last}


def refusal_of(error: StreamDPError) -> RefusedMessage:
    kinds = (kind for of, kind in _KINDS.items() if isinstance(error, of))
    kind = error.kind if isinstance(error, NotAccepted) else next(kinds, RefusalKind.USAGE)
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


_PART = msgspec.msgpack.Decoder(tuple[int, tuple[Refused, ...]])
_SAVED = msgspec.msgpack.Decoder(
    tuple[int, tuple[Refused, ...], int, int, tuple[tuple[str, bytes, int, int], ...]]
)
_OTHERS_PLACE = (
    "a place of the queue that this engine has not written: restore the journal, or run the version of the code that "
    "wrote it"
)


@dataclass(slots=True, repr=False)
class Conversation:
    """Ids, rates, and the answers that wait for the next commit. `place` is where reading the queue continues,
    `recorded` the last such place that a commit records.
    """

    kind: ClassVar[str] = "messages"
    per_tick: int = PER_TICK
    place: int = -1
    recorded: int = -1
    next_number: int = 1
    _used: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)
    _ends: list[tuple[int, str]] = field(default_factory=list)
    _floor: int = 0
    _taken: Counter[str] = field(default_factory=Counter)
    _steps: Counter[str] = field(default_factory=Counter)
    _waiting: list[Answer] = field(default_factory=list)
    _watches: Counter[str] = field(default_factory=Counter)
    _refused: dict[tuple[str, str], Refused] = field(default_factory=dict)
    _shared: bool = False
    _written: int = -1

    def number_of(self, message: Addressed) -> int | None:
        """Return the number of the answer to this message; None if it has none yet. Raises `NotAccepted` if its id was
        used for another message.
        """
        if message.id not in self._used:
            return None
        digest, number, _ = self._used[message.id]
        if digest != message.digest:
            raise not_accepted(RefusalKind.USED)
        return number

    def check(self, message: Addressed, stamp: int) -> None:
        """Raise `NotAccepted` if a message that came at `stamp` is expired, used, repeated, or one too many."""
        if self.number_of(message) is not None:
            raise not_accepted(RefusalKind.REPEATED)
        if message.until > stamp + LONGEST_MS:
            raise not_accepted(RefusalKind.EXPIRED, AHEAD)
        if message.until < max(stamp, self._floor + 1):
            raise not_accepted(RefusalKind.EXPIRED)
        self.require_rate(message.analyst)

    def require_rate(self, analyst: str) -> None:
        """Raise `NotAccepted` if an analyst may have no more messages executed before the next tick."""
        if self._taken[analyst] >= self.per_tick:
            raise not_accepted(RefusalKind.RATE)

    def require_steps(self, analyst: str) -> None:
        """Raise `NotAccepted` if definitions of the analyst may take no more steps before the next tick."""
        if self._steps[analyst] >= TICK_STEPS:
            raise not_accepted(RefusalKind.RATE, WORK)

    def worked(self, analyst: str, steps: int) -> None:
        self._steps[analyst] += steps

    def admit(self, message: Addressed, stamp: int) -> None:
        """Accept a message: use its id, and count it in the rate. Raises as `check`, with nothing changed."""
        self.check(message, stamp)
        self._taken[message.analyst] += 1
        self._use(message.id, message.digest, message.until, self.next_number)

    def count_watch(self, analyst: str) -> None:
        """Count a message of the analyst that begins or ends a watch; raise `UsageError` if they are too many."""
        if self._watches[analyst] >= WATCHES:
            raise UsageError(
                f"watch: between two ticks, an analyst may add or end at most {WATCHES} watches, "
                "because each change reads the records of the open tick again. Go on after the next "
                "tick"
            )
        self._watches[analyst] += 1

    def ticked(self) -> None:
        for counted in (self._taken, self._watches, self._steps):
            counted.clear()
        self._shared = False

    def refuse(self, refusal: NotAccepted, place: int) -> None:
        """Count a record that is not accepted as a message."""
        reason = (str(refusal.kind), str(refusal))
        known = self._refused.get(reason) or Refused(*reason, 0, (), place)
        places = (*known.places, place) if len(known.places) < PLACES else known.places
        self._refused[reason] = Refused(*reason, known.records + 1, places, place)

    def end(self) -> None:
        """Let refusals that wait be answered, because no tick follows."""
        self._shared = False

    @property
    def due(self) -> bool:
        """Whether refusals wait that may be answered now: once between two ticks."""
        return bool(self._refused) and not self._shared

    def answer(
        self,
        message: Addressed,
        outcome: Mapping[str, Any] | StreamDPError,
        standing: AnswerCut,
        series: str = "",
        places: tuple[int, ...] = (),
    ) -> Answer:
        """Write the answer to an accepted message, at `places` of the queue: its content, or the error."""
        number, digest = self.next_number, message.digest
        body = body_of(number, message.id, message.do, standing, outcome, places)
        answer = Answer(
            number, message.id, digest, message.until, body, message.analyst, message.do, series
        )
        self._used[message.id] = (digest, number, message.until)
        self._forget(message.until)
        self._add(answer)
        return answer

    @property
    def waits(self) -> bool:
        return bool(self._waiting) or self.due

    def answer_refused(self, standing: AnswerCut) -> None:
        if self.due:
            body = refusals_body(self.next_number, standing, tuple(self._refused.values()))
            self._add(Answer(self.next_number, None, b"", 0, body))
            self._refused.clear()
            self._shared = True

    def record(self, ticks: "Sequence[ClosedTick]") -> "tuple[Sequence[ClosedTick], bytes | None]":
        """See `Memory`: the place up to which the queue was read, and the refusals that have no answer yet.

        Without a part the place is where it was, and there are none.
        """
        if ticks:
            self.ticked()
        nothing = self.place == self._written and not self._refused
        self.recorded = self._written = self.place
        return ticks, None if nothing else part((self.place, tuple(self._refused.values())))

    def take_answers(self) -> tuple[Answer, ...]:
        """Return the answers that wait; the next commit holds them, between two ticks."""
        answers, self._waiting = tuple(self._waiting), []
        return answers

    def rewind(self, cut: "Cut") -> "Cut":
        """Messages are executed at the cut, never behind it."""
        return cut

    def replay(self, commit: Commit) -> None:
        if commit.ticks:
            self.ticked()
        place, refused = part_in(commit, self.kind, _PART, _OTHERS_PLACE) or (-1, ())
        self.place = self.recorded = max(self.place, place)
        self._refused = {(refusal.reason, refusal.detail): refusal for refusal in refused}
        for answer in commit.answers:
            self.next_number = answer.number + 1
            self._shared = self._shared or answer.id is None
            if answer.id is not None:
                self._taken[answer.analyst] += 1
                self._watches[answer.analyst] += answer.do in WATCHING
                self._use(answer.id, answer.digest, answer.until, answer.number)
                self._forget(answer.until)

    def save(self) -> bytes | None:
        """See `Memory`. The rates are left out: they count from a tick on."""
        used = tuple((id_, *entry) for id_, entry in self._used.items())
        refused = tuple(self._refused.values())
        return part((self.recorded, refused, self.next_number, self._floor, used))

    def load(self, commit: Commit) -> None:
        held = part_in(commit, self.kind, _SAVED, _OTHERS_PLACE)
        if held is None:
            return
        self.place = self.recorded = held[0]
        self._refused = {(refusal.reason, refusal.detail): refusal for refusal in held[1]}
        self.next_number, self._floor = held[2:4]
        for id_, used_by, number, until in held[4]:
            self._use(id_, used_by, until, number)

    def _add(self, answer: Answer) -> None:
        self._waiting.append(answer)
        self.next_number += 1

    def _use(self, id_: str, digest: bytes, until: int, number: int) -> None:
        self._used[id_] = (digest, number, until)
        heapq.heappush(self._ends, (until, id_))

    def _forget(self, until: int) -> None:
        """Forget ids of messages that were valid until two days before: such messages are refused as expired.

        The answered message, valid until `until`, came at most a day before that.
        """
        self._floor = max(self._floor, until - 2 * LONGEST_MS)
        while self._ends and self._ends[0][0] <= self._floor:
            until, id_ = heapq.heappop(self._ends)
            if id_ in self._used and self._used[id_][2] == until:  # else it was used again since
                del self._used[id_]
