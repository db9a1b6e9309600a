"""The engine: source -> guard -> ticks -> actors -> gate, on one event loop, failing closed.

Rules: the order is charge, step, private commit, publish. One commit is in flight while the next rows are gathered;
when the engine is behind, about `group` ticks share a private commit. Snapshots of the states are taken at a tick's
cut. Messages are executed, and series created and halted, between two commits, at a cut. An error anywhere ends the
run; nothing is retried in place. This file knows no file, topic or HTTP.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any, cast

import msgspec

from stream_dp.engine.admission import Admission, Halting
from stream_dp.engine.commands import ENDED, Command, Inbox
from stream_dp.engine.cut_changes import NONE, CutChanges
from stream_dp.engine.ensemble import Ensemble
from stream_dp.engine.gate import CommitChain, Gate, commit_of
from stream_dp.engine.lanes.workers import ByLanes, by_lanes
from stream_dp.engine.memories import Memories, Memory, OpenIdentifiers
from stream_dp.engine.messages.addressed import Addressed
from stream_dp.engine.messages.answering import Answering, NeedsDerivation, Requests, recorded
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.phases import ENGINE, EnginePhase, Lifecycle
from stream_dp.engine.ports import NO_AUDIENCE, Audience, Beginning, Ports, Questions
from stream_dp.engine.proposals import Derived, OnThread, Proposal
from stream_dp.engine.recovery import (
    NoiseMaker,
    Recovered,
    initial_states,
    recover,
    require_same_start,
    served_until,
)
from stream_dp.engine.run_config import RunConfig
from stream_dp.engine.tick_assembler import ClosedTick, Router
from stream_dp.engine.tick_reader import EveryRecord, OwnReader, Reader, RecordGuard
from stream_dp.errors import EngineEnded, FailClosed, UsageError, WorldError
from stream_dp.journal.commit import Commit, Header, Release
from stream_dp.journal.release import release_of

SNAPSHOT_TICKS, SNAPSHOT_STEPS = 1_000, 200_000
"""After so many ticks, or steps of series, states are saved: a start repeats no more than these."""
ENDED_KEPT = 100
"""About so many last releases of series that have ended stay in memory."""
LOOK_S = 1.0
"""How often the engine looks whether there is something to delete from its journal."""
ATTEMPTS = 3
"""How often a definition is derived while ticks go on; if the cut moves each time, the cut waits for it."""
NO_MESSAGES = "this engine takes no messages"


class Engine:
    """Runs the series of a `RunConfig` until its horizon, the end of its source, or `stop()`. Without `guard` every
    record counts. `memories` are added to those of the guard, of messages and of open ticks.
    """

    def __init__(
        self,
        config: RunConfig,
        router: Router,
        ports: Ports,
        make_noise: NoiseMaker,
        audience: Audience = NO_AUDIENCE,
        *,
        requests: Requests | None = None,
        guard: RecordGuard | None = None,
        memories: Sequence[Memory] = (),
    ) -> None:
        requests = requests or Requests()
        self._config, self._router, self._ports = config.marked, router, ports
        self._audience, self._make_noise = audience, make_noise
        self._guard = guard or EveryRecord()
        self._conversation = Conversation(requests.per_tick)
        self._memories = Memories(
            self._conversation, *self._guard.memories, *memories, OpenIdentifiers()
        )
        self.admission = Admission(
            self._config.registry(), requests.subledgers, requests.planner, private=config.private
        )
        self._deriver = requests.deriver or OnThread(requests.planner)
        self._messages = requests.messages
        self._asked_to_stop = asyncio.Event()
        self._lifecycle = Lifecycle(ENGINE)
        self._inbox = Inbox(self._lifecycle)
        self._pricing = asyncio.Lock()
        self._since_snapshot = 0
        self._lanes: ByLanes | None = None
        self._under_way: set[asyncio.Event] = set()
        self._heard = False

    @property
    def phase(self) -> EnginePhase:
        return self._lifecycle.phase

    @property
    def over(self) -> bool:
        return self._lifecycle.over

    @property
    def ready(self) -> asyncio.Event:
        return self._lifecycle.reached(EnginePhase.RUNNING)

    @property
    def lanes(self) -> int:
        """How many lanes others read; known once the engine runs."""
        return 1 if self._lanes is None else self._lanes.lanes

    @property
    def waiting(self) -> Mapping[int, int]:
        """How many closed ticks of each lane that others read wait for those of the other lanes."""
        return {} if self._lanes is None else self._lanes.waiting

    @property
    def advanced(self) -> bool:
        """Whether a commit has become durable since the engine began to run."""
        return self.ready.is_set() and self._gate.durable > 0

    def stop(self) -> None:
        """End after the commit in flight; a call before the engine runs takes effect as soon as it does."""
        self._asked_to_stop.set()

    async def propose(self, definition: bytes, analyst: str) -> Proposal:
        """Derive the series of a definition, for ticks from the first one that is not public.

        That start tells nothing of ticks that are being committed. Raises `UsageError`, `NotDerivable`, or
        `NotAccepted` if the analyst's definitions took too many steps since the last tick.
        """
        self._conversation.require_steps(analyst)
        needed = NeedsDerivation(definition, self._chain.shown + self._config.lead, analyst)
        outcome = (await self._derived(needed)).outcome
        if isinstance(outcome, UsageError):
            raise outcome
        return outcome

    def halting(self, name: str) -> Halting:
        """Return what a halt of a live series would do, from the first tick that is not public.

        Raises `UnknownMechanism`, or `EngineEnded` where the engine does not run.
        """
        if self.phase is not EnginePhase.RUNNING:
            raise EngineEnded(ENDED)
        return self.admission.halting(name, self._chain.shown)

    @property
    def now(self) -> int:
        """The engine's clock, ms since 1970; the stamp of messages that `answer` takes."""
        return self._ports.clock.now()

    async def retain(self, keep: int, again: Callable[[], "Engine"]) -> None:
        """While the engine runs, delete from the journal what lies more than `keep` ticks back. To be cancelled.

        Before the first deletion after a checkpoint, `again` makes an engine of the same pipeline, on which a start is
        tried: from the checkpoint before, replayed up to that one. If it restores anything else, the engine ends. First
        comes what an engine before has left. Raises `WorldError` where nothing can be deleted now, `EngineEnded`.
        """
        await self.ready.wait()
        tried: Sequence[int] = ()
        wrong: Exception | None = None
        while not self._lifecycle.over:
            if (said := self._chain.said) is not None:  # no commit says more before this is done
                await self._ports.journal.prune(said)
            elif (before := self._chain.prunable(keep)) is None:
                await asyncio.sleep(LOOK_S)
            else:
                if (known := tuple(self._ports.journal.checkpoints())) != tried:
                    tried, wrong = known, await _trial(again, *known)
                await self._inbox.executed(partial(self._say, before, wrong))

    async def tried(self, newer: int, older: int) -> None:
        """Raise an error if a start from the checkpoint after commit `older` does not restore what stands after
        `newer`. For an engine that does not run, whose journal another one has open.
        """
        ports, config, admission = self._ports, self._config, self.admission
        between = older, newer
        await require_same_start(
            ports, config, admission, self._make_noise, self._memories, between
        )

    async def _say(self, before: int, wrong: Exception | None) -> None:
        if wrong is not None:
            raise wrong
        _, parts = self._memories.record(())
        await self._chain.say(before, parts)

    async def tell(self, text: bytes, signer: str) -> bytes:
        """Return the answer to a message of a signer whose token has been checked; errors as of `answer`."""
        if self._messages is None:
            raise UsageError(NO_MESSAGES)
        return await self.answer(self._messages.reader.said(text, signer))

    async def answer(self, message: Addressed) -> bytes:
        """Execute a message and return its answer, which is durable and public on return.

        The same message gets the same answer whenever it comes again. Raises `NotAccepted`, or `UsageError` if this
        engine takes no messages or has ended; then nothing has changed.
        """
        if self._messages is None:
            raise UsageError(NO_MESSAGES)
        with self._in_hand():
            answered = await self._done(
                lambda *derived, **how: self._answering.tell(message, self.now, *derived, **how)
            )
        number, body = cast("tuple[int, bytes | None]", answered)
        return await recorded(self._ports.answers, number) if body is None else body

    async def run(self) -> None:
        """Recover, then run; to be called once. Raises `FailClosed` or `WorldError`: the engine stopped; what was
        published stays valid.
        """
        ports = self._ports
        self._lifecycle.move(EnginePhase.RECOVERING)
        try:
            with ports.spans("recovery"):
                recovered = await self._start()
            self._lifecycle.move(EnginePhase.RUNNING)
            await self._run(recovered)
            self._lifecycle.move(EnginePhase.ENDED)
        except BaseException as error:
            self._lifecycle.move(EnginePhase.FAILED)
            if isinstance(error, BaseExceptionGroup):
                raise _first(error) from None
            raise
        finally:
            self._inbox.close()
            opened = (
                self._lanes,
                ports.journal,
                ports.sink,
                ports.source,
                ports.questions,
                ports.answers,
            )
            async with AsyncExitStack() as stack:  # a port that fails to close leaves no other open
                for port in (self._deriver, *opened):
                    if port is not None:
                        stack.push_async_callback(port.close)

    async def _start(self) -> Recovered:
        config, ports, admission = self._config, self._ports, self.admission
        now = ports.clock.now()
        recovered = await recover(ports, config, admission, self._make_noise, self._memories, now)
        origin = config.origin if recovered is None else recovered.header.origin
        ports.progress("Opening the source")
        partitions = await ports.source.open(origin)
        self._grid = config.grid(origin)
        self._gate = Gate(
            ports, self._grid, config.blocks(self._grid, now), config.hold, self._show,
            lambda: admission.registry.releasing,
        )  # fmt: skip
        header = config.header(
            ports.source.name, partitions, origin, ports.sealer.key_id, ports.source.identity
        )
        first = (header if recovered is None else recovered.header).partitions
        self._guard.begin(first)
        if recovered is None:
            recovered = await self._first_commit(header)
        recovered.require_same(header, grows=ports.source.grows)
        if recovered.past.first.charges != config.charges:
            raise FailClosed(
                f"the ledger in the journal of {config.pipeline} differs from the ledger that its "
                "pipeline file derives. Run the version of stream_dp, and the pipeline file, that "
                "wrote the journal"
            )
        config.pending(admission.applied)
        self._latest = recovered.latest
        ports.progress("Reading what is published")
        wanted = recovered.past.numbers.before(self._audience.wanted(recovered.shown))
        async for body in ports.sink.read(max(self._audience.known, wanted)):
            self._show(release_of(body))
        await self._gate.tell(recovered.unanswered)
        await self._gate.publish(recovered.unpublished)
        self._reader = self._reader_of(partitions, Beginning(origin, first, config.step))
        await self._reader.seek(recovered.cut)
        if ports.questions is not None and self._messages is not None:
            await ports.questions.open()
            await ports.questions.seek(self._conversation.place)
        return recovered

    def _reader_of(self, partitions: Sequence[int], beginning: Beginning) -> Reader:
        parts = (
            self._guard, self._router, partitions, self._inbox, self._memories, lambda: self._group,
        )  # fmt: skip
        self._lanes = by_lanes(self._ports, parts, beginning)
        return self._lanes or OwnReader(*parts, source=self._ports.source)

    def _show(self, release: Release) -> None:
        """Keep a public release as the last one of its series, from which queries are answered, and hand it on."""
        if release.series not in self._latest:
            self._forget_ended()
        self._latest[release.series] = release.body
        self._audience.published(release)

    def _forget_ended(self) -> None:
        running = {series.name for series in self.admission.registry.releasing}
        if len(self._latest) > 2 * len(running) + ENDED_KEPT:
            for name in self._latest.keys() - running:
                del self._latest[name]

    async def _first_commit(self, header: Header) -> Recovered:
        """Make the header, the charges and the first seed durable before any mechanism exists."""
        seed = self._ports.seeds()
        header = msgspec.structs.replace(header, file=self._config.text())
        commit = Commit(0, b"", header, self._config.charges, seeds=(seed,))
        sealed, link = self._gate.seal(commit)
        await self._gate.commit(commit, sealed)
        states = initial_states(self.admission.registry.live, seed, self._make_noise)
        return Recovered.beginning(commit, header, states, link)

    async def _run(self, recovered: Recovered) -> None:
        self._chain = CommitChain(self._gate, self._grid, recovered)
        self._since_snapshot = recovered.replayed
        async with asyncio.TaskGroup() as tasks:
            self._reader.tasks = tasks
            self._ensemble = Ensemble(
                self.admission.registry, self._grid, self._make_noise, tasks, self._router.width
            )
            until = served_until(recovered.coming)
            self._ensemble.begin(recovered.states, recovered.cut.next_tick, until)
            self._changes = CutChanges(
                self.admission, self._chain, self._ensemble, self._reader, self._memories,
                self._conversation.take_answers, lambda: self._ports.seeds(), self._config.lead,
            )  # fmt: skip
            self._reader.begin(self._chain.opened(self._router.width, NONE))
            await self._apply_file()
            await self._serve(tasks)
            self._lifecycle.move(EnginePhase.STOPPING)
            await self._reader.end()
            await self._ensemble.end()

    async def _apply_file(self) -> None:
        """Commit the change of the pipeline file that a start was told to apply, before any tick."""
        change = self._config.pending(self.admission.applied)
        if change is not None:
            await self._changes.apply(change)
            await self._changes.flush()

    @property
    def _group(self) -> int:
        releasing = self.admission.registry.releasing
        return self._config.ticks_together(self._router.width, releasing)

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        """Commit ticks to the end; meanwhile execute messages, of the queue and of senders who wait."""
        if self._messages is None:
            return await self._commit_all()
        answering = self._answering = Answering(
            self._changes, self._conversation, self._messages, self._derived
        )
        listening = tasks.create_task(self._listen(answering, self._ports.questions))
        try:
            await self._commit_all()
            await answering.end()
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self, answering: Answering, questions: Questions | None) -> None:
        while questions is not None:
            waiting = deque(await questions.read())
            ended = suppress(WorldError, EngineEnded)  # the engine itself reports why it ended
            with ended, self._in_hand():
                while waiting:
                    await self._done(partial(answering.hear, waiting))

    @contextmanager
    def _in_hand(self) -> Iterator[None]:
        """Register a message as under way while the block runs."""
        over = asyncio.Event()
        self._under_way.add(over)
        try:
            yield
        finally:
            self._under_way.discard(over)
            over.set()

    async def _heard_out(self, ticks: list[ClosedTick]) -> bool:
        """Execute the messages under way before the last ticks of a replay; return whether it did, once in a run. The
        ticks of a replay are never late, so they can wait: they are put back meanwhile.
        """
        stop = self._asked_to_stop
        if self._config.hold is not None or self._heard or stop.is_set():
            return False
        self._heard = True
        self._inbox.back(ticks)  # creating a series reads them again
        for over in tuple(self._under_way):
            while not (over.is_set() or stop.is_set()):
                events = (over.wait(), stop.wait(), self._inbox.commanded())
                await _first_of(*map(asyncio.create_task, events))
                while (command := self._inbox.command()) is not None:
                    await command.execute()
        return True

    async def _done(self, act: Callable[..., Awaitable[Any]]) -> Any:
        """Run `act` at a cut with the derivation that it needs, which is made before, while ticks go on. If the cut has
        moved after each of `ATTEMPTS` derivations, derive at the cut.
        """
        derived = None
        for _ in range(ATTEMPTS):
            outcome = await self._inbox.executed(partial(act, derived))
            if not isinstance(outcome, NeedsDerivation):
                return outcome
            derived = await self._derived(outcome)
            async with self._pricing:
                await self.admission.foresee(derived.outcome, outcome.analyst)
        return await self._inbox.executed(partial(act, derived, hold=True))

    async def _derived(self, needed: NeedsDerivation) -> Derived:
        """Derive the definition of a message, and count its steps; `EngineEnded` if asked to stop meanwhile."""
        work = asyncio.create_task(self._deriver.derive(needed.definition, needed.start))
        if await _first_of(work, asyncio.create_task(self._asked_to_stop.wait())) is not work:
            raise EngineEnded(ENDED)
        derived = work.result()
        self._conversation.worked(needed.analyst, derived.steps)
        return derived

    async def _commit_all(self) -> None:
        """Step and commit closed ticks and execute commands, until the horizon, the end of the source or `stop()`."""
        while self._chain.next_tick != self._config.horizon:
            if self._changes.stale and not await self._inbox.command_first():
                await self._changes.read_on()
            match await self._next():
                case Command() as command:
                    with self._ports.spans("query"):
                        await command.execute()
                case [] as ticks:
                    if not await self._heard_out(ticks):
                        return
                case ticks:
                    if ticks[-1].tick + 1 == self._config.horizon and await self._heard_out(ticks):
                        continue
                    with self._ports.spans("tick", tick=ticks[-1].tick):
                        await self._chain.add(await self._step(ticks))
                        self._reader.settled(self._chain.next_tick)
                        if self._messages is not None:
                            await self._answering.flush()  # the refusals that waited for this tick

    async def _next(self) -> Command | list[ClosedTick]:
        """Return a command, or about `group` closed ticks; none at the end of the source and on `stop`."""
        got = asyncio.create_task(self._inbox.get(self._group))
        try:
            await _first_of(got, asyncio.create_task(self._asked_to_stop.wait()))
        except asyncio.CancelledError:
            _refuse(got)
            raise
        if self._asked_to_stop.is_set():
            _refuse(got)
            return []
        work, horizon = got.result(), self._config.horizon
        if isinstance(work, Command) or horizon is None:
            return work
        return [closed for closed in work if closed.tick < horizon]

    async def _step(self, closed: Sequence[ClosedTick]) -> Commit:
        """Step all actors over these ticks, and return the commit that records them. If a series or a watch begins
        after the first tick, step that tick alone; the other ticks are read again.
        """
        now = self._chain.now
        closed = closed[:1] if now.coming else closed
        ticks, parts = self._memories.record(closed)
        seeds = [self._ports.seeds() for _ in ticks]
        releases = await self._ensemble.releases(ticks, seeds, now.next_release)
        now.cut = ticks[-1].cut
        now.next_release += len(releases)
        await self._changes.begin()
        self._since_snapshot += len(ticks)
        snapshot = None
        steps = self._since_snapshot * len(self.admission.registry.live)
        if self._since_snapshot >= SNAPSHOT_TICKS or steps >= SNAPSHOT_STEPS:
            self._since_snapshot, snapshot = 0, await self._ensemble.states()
        commit = commit_of(ticks, seeds, releases, snapshot, parts)
        return self._chain.with_checkpoint(commit, self.admission.save, self._memories.save)


async def _trial(again: Callable[[], Engine], newer: int, older: int) -> Exception | None:
    """Return what a start that was tried says against deletion; `WorldError` if it could not be tried."""
    try:
        await again().tried(newer, older)
    except WorldError:
        raise
    except Exception as wrong:  # noqa: BLE001 - whatever it is, nothing may be deleted
        return wrong
    return None


async def _first_of(*tasks: "asyncio.Task[Any]") -> "asyncio.Task[Any]":
    """Wait until a task is done, cancel the others, and return the first of those that are done."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()


def _refuse(got: "asyncio.Task[Command | list[ClosedTick]]") -> None:
    """Refuse a command that was taken as the engine ended; its sender would wait for ever."""
    if got.done() and not got.cancelled() and isinstance(command := got.result(), Command):
        command.refuse()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
