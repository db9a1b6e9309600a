"""Executes messages one by one at a cut, in one way for the queue and for senders who wait.

Rules: a message is executed once. One commit of its own makes its answer durable, with what it changed and with the
place up to which the queue was read; only then is the answer visible. The definition in a message is derived
before, while ticks go on; at the cut it is checked against the ledger and the names of that moment. A refused
message changes nothing but the record of its id. The operator may act on every series. An analyst may act on series
of the file, of the main ledger and of her own ledger, and may create and halt by her own ledger only. A mechanism
that answers queries itself may be asked by its owner and by the analysts whom it names.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from stream_dp.accounting.ledger import Preview
from stream_dp.accounting.subledgers import MAIN, Subledgers
from stream_dp.core.wording import meant
from stream_dp.engine.admission import Admission, Halting
from stream_dp.engine.cut_changes import CutChanges
from stream_dp.engine.messages.addressed import Addressed, MessageReader, Wanted
from stream_dp.engine.messages.conversation import PER_TICK, Conversation, not_accepted
from stream_dp.engine.ports import Answers, Question, closing
from stream_dp.engine.proposals import Derived, Deriver, Proposal, SeriesPlanner
from stream_dp.engine.run_config import FileChange
from stream_dp.engine.series import LiveSeries
from stream_dp.errors import (
    BudgetRefused,
    FailClosed,
    NotAccepted,
    NotYours,
    UnknownMechanism,
    UsageError,
)
from stream_dp.journal.answer_body import RefusalKind, answer_head
from stream_dp.journal.commit import Answer, Created

DEFINE = ("create", "preview", "watch")
"""Actions that bring a definition, which takes steps to derive."""
AT_A_CUT = 100
"""How many records that are no messages are refused at most before waiting ticks have their turn."""


Content: TypeAlias = Mapping[str, Any]


class Wording(Protocol):
    """The content of answers about series that come and go: plain public values; implemented above."""

    def created(self, admission: Admission, created: Created, analyst: str) -> Content: ...
    def halted(self, halting: Halting) -> Content:
        """Return what a halt does, before it is done."""

    def previewed(
        self, admission: Admission, proposal: Proposal, found: Preview, analyst: str
    ) -> Content: ...
    def changed(
        self, admission: Admission, text: bytes, at: int
    ) -> tuple[FileChange | None, Content]:
        """Return what a changed file is to change at the cut before tick `at`, and it in words; changes nothing, and
        raises `UsageError` or `BudgetRefused`.
        """

    def listed(self, admission: Admission, payers: Collection[str] | None) -> Sequence[Content]:
        """Return every running series, and the last halted ones; in detail where one of `payers` paid (None: all)."""


@dataclass(frozen=True, slots=True)
class Understanding:
    reader: MessageReader
    wording: Wording


@dataclass(frozen=True, slots=True)
class Requests:
    """What may be asked of an engine while it runs: without `planner` no series is created, without `messages` nothing.

    `subledgers` are the ledgers after the charges of the first start. At most `per_tick` messages of each analyst are
    executed between two cuts. `deriver` derives the series to create or preview (None: a thread does); the engine
    closes it.
    """

    planner: SeriesPlanner | None = None
    subledgers: Subledgers = field(default_factory=lambda: Subledgers({}))
    messages: Understanding | None = None
    per_tick: int = PER_TICK
    deriver: Deriver | None = None


class NeedsDerivation(NamedTuple):
    """What must be derived before a message can be executed: `definition`, for ticks from `start` on."""

    definition: bytes
    start: int
    analyst: str


class Answering:
    """Executes messages of a `conversation` through `changes`; `messages` reads them and words the answers. `derive`
    derives the definition of a message; it is called at a cut only with `hold`.
    """

    def __init__(
        self,
        changes: CutChanges,
        conversation: Conversation,
        messages: Understanding,
        derive: Callable[[NeedsDerivation], Awaitable[Derived]],
    ) -> None:
        self._changes = changes
        self._conversation = conversation
        self._reader = messages.reader
        self._wording = messages.wording
        self._derive = derive

    async def hear(
        self, questions: deque[Question], derived: Derived | None = None, *, hold: bool = False
    ) -> NeedsDerivation | None:
        """Execute the next message of the queue, record it with its answer, and take it from `questions`.

        Records before it that are no messages are counted and taken, at most `AT_A_CUT` of them; one answer between two
        ticks refuses them all. If the message holds a definition that is not `derived` for this cut, return what must
        be.
        """
        conversation = self._conversation
        for _ in range(min(AT_A_CUT, len(questions))):
            place, value, stamp = questions[0]
            try:
                message = self._reader.opened(value, stamp)
                ready = await self._ready(message, stamp, derived, hold=hold)
                if isinstance(ready, NeedsDerivation):
                    return ready
                conversation.admit(message, stamp)
            except NotAccepted as refusal:
                conversation.refuse(refusal, place)
                questions.popleft()
                conversation.place, derived = place + 1, None
            else:
                questions.popleft()
                conversation.place = place + 1
                await self._answered(message, ready, (place,))
                return None
        await self.flush()
        return None

    async def tell(
        self, message: Addressed, stamp: int, derived: Derived | None = None, *, hold: bool = False
    ) -> tuple[int, bytes | None] | NeedsDerivation:
        """Execute a message whose sender waits; return the number and bytes (None: on record) of its answer. A
        definition in it must be `derived` before, as for `hear`. Raises `NotAccepted`; then nothing has changed.
        """
        conversation = self._conversation
        known = conversation.number_of(message)
        if known is not None:
            return known, None
        ready = await self._ready(message, stamp, derived, hold=hold)
        if isinstance(ready, NeedsDerivation):
            return ready
        conversation.admit(message, stamp)
        answer = await self._answered(message, ready)
        return answer.number, answer.body

    async def end(self) -> None:
        """Record refusals that would wait for a tick; no tick follows."""
        self._conversation.end()
        await self.flush()

    async def flush(self) -> None:
        if self._changes.pending or self._conversation.waits:
            self._conversation.answer_refused(self._changes.chain.standing)
            await self._changes.flush()

    async def _ready(
        self, message: Addressed, stamp: int, derived: Derived | None, *, hold: bool
    ) -> "_Ready | NeedsDerivation":
        """Return the request of a message with the series that it defines, or what must be derived first. Raises
        `NotAccepted` if it would not be accepted, or its sender's definitions took too many steps.
        """
        conversation, chain = self._conversation, self._changes.chain
        conversation.check(message, stamp)
        try:
            wanted = message.wanted or self._reader.wanted(message)
        except UsageError as refusal:
            return _Ready(Wanted(message.do), refusal)
        if wanted.do not in DEFINE:
            return _Ready(wanted)
        if derived is None:
            conversation.require_steps(message.analyst)
        if wanted.do == "watch":
            return _Ready(wanted)
        start = (chain.next_tick if wanted.do == "create" else chain.shown) + self._changes.lead
        if derived is not None and wanted.do == "preview":
            start = derived.start  # the tick that was next when the message was read
        needed = NeedsDerivation(wanted.definition, start, message.analyst)
        outcome = None if derived is None else derived.at(start)
        if outcome is None:  # it must be derived for its tick first
            if not hold:
                return needed
            outcome = (await self._derive(needed)).outcome
        return _Ready(wanted, outcome)

    async def _answered(
        self, message: Addressed, ready: "_Ready", places: tuple[int, ...] = ()
    ) -> Answer:
        outcome: Content | UsageError | BudgetRefused
        series = ready.wanted.series
        try:
            outcome = await self._executed(ready, message)
            series = series or str(outcome.get("name", ""))
        except (UsageError, BudgetRefused) as refusal:
            outcome = refusal
        standing = self._changes.chain.standing
        answer = self._conversation.answer(message, outcome, standing, series, places)
        await self.flush()
        return answer

    async def _executed(self, ready: "_Ready", message: Addressed) -> Content:
        admission, changes, wanted = self._changes.admission, self._changes, ready.wanted
        if isinstance(ready.defined, UsageError):
            raise ready.defined
        match wanted.do:
            case "create":
                created = await changes.create(
                    ready.proposal, message.analyst, accept_noise=wanted.accept_noise
                )
                return self._wording.created(admission, created, message.analyst)
            case "watch" | "unwatch":
                live = self._asked(wanted, message)
                self._require_own(wanted, message, "change")
                if not changes.lead:
                    self._conversation.count_watch(message.analyst)
                begin = wanted.do == "watch"
                watch = wanted.definition if begin else str(wanted.parameters["watch"])
                return await changes.watch(
                    live, watch, message.analyst,
                    accept_noise=wanted.accept_noise, worked=self._conversation.worked,
                )  # fmt: skip
            case "halt":
                return await self._halted(wanted, message)
            case "apply":
                return await self._applied(wanted, message)
            case "preview":
                effect = admission.preview(ready.proposal, message.analyst)
                return self._wording.previewed(admission, ready.proposal, effect, message.analyst)
            case "list":
                readers = None if message.operator else (MAIN, message.analyst)
                return {"queries": self._wording.listed(admission, readers)}
            case _:
                made = admission.registry.made_named(wanted.series)
                if made is not None:
                    return changes.last_of(made, wanted.parameters)
                live = self._asked(wanted, message)
                self._require_right(live, message)
                return await changes.ask(live, wanted.parameters, self._conversation.next_number)

    async def _halted(self, wanted: Wanted, message: Addressed) -> Content:
        changes = self._changes
        if not message.operator:
            self._asked(wanted, message)
        self._require_own(wanted, message, "halt")
        halting = changes.admission.halting(wanted.series, changes.chain.next_tick)
        halted = await asyncio.to_thread(self._wording.halted, halting)
        changes.halt(wanted.series)
        return halted

    async def _applied(self, wanted: Wanted, message: Addressed) -> Content:
        """Apply a changed pipeline file, which is tried first; then nothing of it can be refused."""
        if not message.operator:
            raise NotYours("file: only the operator applies a changed pipeline file")
        changes, words = self._changes, self._wording
        tried = partial(words.changed, changes.admission, wanted.definition)
        change, content = await asyncio.to_thread(tried, changes.chain.next_tick)
        if change is not None:
            try:
                await changes.apply(change)
            except (UsageError, BudgetRefused) as refusal:
                raise FailClosed(
                    "the changed pipeline file passed its trial, but was refused when it was applied "
                    f"({refusal}). Nothing of it is durable. Start the engine again, and report this"
                ) from None
        return content

    def _require_own(self, wanted: Wanted, message: Addressed, verb: str) -> str:
        """Return the analyst whose ledger paid for a series; raise `NotYours` if the sender is another one."""
        owner = self._owner(wanted.series)
        if not message.operator and owner != message.analyst:
            raise NotYours(
                f"series: was paid from another ledger; you may {verb} only a series that your own "
                "ledger paid for"
            )
        return owner

    def _require_right(self, live: LiveSeries, message: Addressed) -> None:
        """Raise `NotYours` if the series' mechanism would answer, and the sender may not ask it. Everybody who sees the
        series may ask its last release. A query to its mechanism may change the mechanism.
        """
        mine = message.operator or self._owner(live.series.name) == message.analyst
        if live.series.asking is not None and not (mine or _granted(live, message)):
            raise NotYours(
                "series: you may not query this monitor, because a query can fire its watches and "
                "so restart or end them. The monitor's key `ask` names who may query it besides its "
                "owner"
            )

    def _owner(self, name: str) -> str:
        analyst, _ = self._changes.admission.subledgers.running.get(name, (MAIN, None))
        return analyst

    def _asked(self, wanted: Wanted, message: Addressed) -> LiveSeries:
        """Return the series that a message is about; raises `UnknownMechanism`, or `NotYours` if it is another's."""
        admission, name = self._changes.admission, wanted.series
        live = admission.registry.named(name)
        if live is None:
            if admission.registry.made_named(name) is not None:
                raise UnknownMechanism(
                    "series: is computed from the releases of other series and runs as long as they "
                    "run; it has no watches"
                )
            if name in admission.names:
                raise UnknownMechanism("series: was halted and answers no more queries")
            near = meant(name, [series.name for series in admission.registry.releasing])
            raise UnknownMechanism(
                f"series: no series of this name runs; `list` shows the running series{near}"
            )
        mine = message.operator or self._owner(name) in (MAIN, message.analyst)
        if not (mine or _granted(live, message)):
            raise NotYours("series: is another analyst's")
        return live


@dataclass(frozen=True, slots=True)
class _Ready:
    """A message that can be executed: its request, and the series that it defines or the reason for its refusal."""

    wanted: Wanted
    defined: Proposal | UsageError | None = None

    @property
    def proposal(self) -> Proposal:
        if self.defined is None or isinstance(self.defined, UsageError):
            raise UsageError("series: is missing")
        return self.defined


def _granted(live: LiveSeries, message: Addressed) -> bool:
    """Return whether a series names the sender among those who may ask its mechanism."""
    askers = live.series.askers
    return askers is None or message.analyst in askers


async def recorded(answers: Answers | None, number: int) -> bytes:
    """Return the public answer of this number; `NotAccepted` if it is not kept here, or no longer."""
    if answers is not None:
        async with closing(answers.read(number - 1)) as bodies:
            async for body in bodies:
                if answer_head(body).number == number:
                    return body
                break
    raise not_accepted(RefusalKind.REPEATED)
