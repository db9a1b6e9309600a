"""The engine: source -> guard -> ticks -> actors -> gate, on one event loop, failing closed.

Rules: the order is charge, step, private commit, publish. One commit is in flight while the next rows are gathered;
when the engine is behind, some `group` ticks share a private commit. State is taken at a tick's cut. Series are
created and halted between two commits, at a cut: what was read behind the cut is read again, so that a new series sees
whole ticks, whatever the engine had read. An error anywhere ends the run; nothing is retried in place. This file
knows no file, topic or HTTP.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import msgspec

from stream_dp.accounting.ledger import Preview
from stream_dp.accounting.subledgers import Subledgers
from stream_dp.core.guard import Guard
from stream_dp.core.tick_grid import TickGrid
from stream_dp.errors import FailClosed
from stream_dp.mechanisms.states import STATES
from stream_dp.runtime.actor import Actor, Halt, Snapshot, Tick
from stream_dp.runtime.admission import Admission
from stream_dp.runtime.commands import Command, Inbox
from stream_dp.runtime.commit import Commit, Created, Halted, Header, Release, SavedStates
from stream_dp.runtime.dead_letters import DeadLetters
from stream_dp.runtime.gate import Gate, due
from stream_dp.runtime.header_check import require_same
from stream_dp.runtime.phases import ENGINE, EnginePhase, Lifecycle
from stream_dp.runtime.ports import Ports, Published
from stream_dp.runtime.proposals import Proposal, SeriesPlanner
from stream_dp.runtime.reader import Reader
from stream_dp.runtime.recovery import GENESIS, NoiseMaker, Recovered, initial_states, recover
from stream_dp.runtime.registry import LiveSeries, Registry
from stream_dp.runtime.release import release_of
from stream_dp.runtime.run_config import RunConfig
from stream_dp.runtime.tick_assembler import ClosedTick, Cut, Router

NONE = slice(0, 0)
SNAPSHOT_TICKS = 1000


class Engine:
    """Runs the series of a `RunConfig` until its horizon, the end of its source, or `stop()`.

    `planner` understands definitions of live series; without one, none can be created. `subledgers` are the ledgers
    after the charges of the first start. Who has the releases up to `known` is not told of them again.
    """

    def __init__(
        self,
        config: RunConfig,
        router: Router,
        ports: Ports,
        make_noise: NoiseMaker,
        published: Published = lambda release: None,
        *,
        planner: SeriesPlanner | None = None,
        subledgers: Subledgers | None = None,
        known: int = -1,
    ) -> None:
        self._known = known
        self._config = config.marked
        self._router = router
        self._ports = ports
        self._make_noise = make_noise
        self._published = published
        self._asked_to_stop = asyncio.Event()
        self._lifecycle = Lifecycle(ENGINE)
        self.admission = Admission(
            Registry(self._config.series),
            subledgers or Subledgers({}),
            planner,
            private=config.private,
        )
        self._since_snapshot = 0
        self._inbox = Inbox(self._lifecycle)

    @property
    def phase(self) -> EnginePhase:
        """What the engine is doing."""
        return self._lifecycle.phase

    @property
    def ready(self) -> asyncio.Event:
        """The event that is set once the engine runs."""
        return self._lifecycle.reached(EnginePhase.RUNNING)

    @property
    def advanced(self) -> bool:
        """Whether a commit has become durable since it runs."""
        return self.ready.is_set() and self._gate.durable > 0

    def stop(self) -> None:
        """End after the commit in flight; before `run`, or while it recovers: as soon as it runs."""
        self._asked_to_stop.set()

    async def create(self, definition: bytes, analyst: str = "") -> Created:
        """Create a series at the next cut; durable, charged and running on return.

        Raises:
            UsageError, NotDerivable, BudgetRefused: nothing has changed (`Admission.create`); or the engine has ended.
        """
        created = await self._inbox.executed(lambda: self._create(definition, analyst))
        return cast("Created", created)

    async def halt(self, name: str) -> Halted:
        """Halt a series that was created; durable on return. What it released stays.

        Raises:
            UnknownMechanism: none of this name was created and runs; or the engine has ended.
        """
        halted = await self._inbox.executed(lambda: self._halt(name))
        return cast("Halted", halted)

    async def preview(self, definition: bytes, analyst: str = "") -> tuple[Proposal, Preview]:
        """Return what `create` would do from the first tick that is not published, which tells nothing of work in hand.

        Raises:
            UsageError, NotDerivable, BudgetRefused: see `create`.
        """
        start = self._gate.unpublished
        start = self._settled if start is None else start
        proposal = await asyncio.to_thread(self.admission.propose, definition, start)
        return proposal, self.admission.preview(proposal, analyst)

    async def run(self) -> None:
        """Recover, then run; once.

        Raises:
            FailClosed, WorldError: the engine stopped; what was published stays valid.
            IllegalMove: it was run before.
        """
        ports = self._ports
        self._lifecycle.move(EnginePhase.RECOVERING)
        try:
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
            async with AsyncExitStack() as closing:  # one that fails leaves no other open
                for port in (ports.journal, ports.sink, ports.source):
                    closing.push_async_callback(port.close)

    async def _start(self) -> Recovered:
        config, ports = self._config, self._ports
        recovered = await recover(
            ports.journal, ports.sink, ports.sealer, config.pipeline, self.admission,
            self._grid_of, self._make_noise,
            lambda releases: due(releases, config.block, config.horizon),
        )  # fmt: skip
        origin = config.origin if recovered is None else recovered.header.origin
        partitions = await ports.source.open(origin)
        self._grid = config.grid(origin)
        self._gate = Gate(
            ports.journal, ports.sink, ports.sealer, ports.clock, self._grid,
            config.block, config.hold, self._published,
        )  # fmt: skip
        header = config.header(
            ports.source.name, partitions, origin, ports.sealer.key_id, ports.source.identity
        )
        if recovered is None:
            recovered = await self._first_commit(header)
        then = msgspec.structs.replace(recovered.header, partitions=recovered.partitions)
        require_same(then, header, grows=ports.source.grows)
        self._partitions = partitions
        if recovered.charges != config.charges:
            raise FailClosed(
                f"the ledger in the journal of {config.pipeline} is not what its pipeline file derives; "
                "run the version of the code and of the file that wrote it"
            )
        async for body in ports.sink.read(self._known):
            self._published(release_of(body))
        await self._gate.publish(recovered.unpublished)
        await ports.source.seek(recovered.cut.positions, recovered.cut.behind)
        return recovered

    def _grid_of(self, header: Header) -> TickGrid:
        """The journal's grid, once it is sure that its steps are those of this configuration."""
        config, key_id = self._config, self._ports.sealer.key_id
        require_same(header, config.header(header.source, header.partitions, header.origin, key_id))
        return config.grid(header.origin)

    async def _first_commit(self, header: Header) -> Recovered:
        """Charge before anything exists: the header, the ledger and the first seed become durable."""
        seed = self._ports.seeds()
        commit = Commit(0, GENESIS, header, self._config.charges, seeds=(seed,))
        sealed, link = self._gate.seal(commit)
        await self._gate.commit(commit, sealed)
        states = initial_states(self.admission.registry.live, seed, self._make_noise)
        return Recovered(
            header, commit.charges, states, link, next_commit=1, partitions=header.partitions
        )

    async def _run(self, recovered: Recovered) -> None:
        self._recovered, self._settled = recovered, recovered.cut.next_tick
        self._since_snapshot = recovered.replayed
        self._reader = Reader(self._ports.source, self._router, self._partitions, self._inbox)
        self._guard = Guard(self._router.width)
        self._actors: dict[int, Actor] = {}
        async with asyncio.TaskGroup() as self._tasks:
            for live in self.admission.registry.live:
                self._start_series(live, recovered.states[live.number])
            recovered.cut = recovered.cut.opened(self._router.width, NONE)
            self._reader.begin(self._tasks, recovered.cut, self._group)
            await self._commit_all()
            self._lifecycle.move(EnginePhase.STOPPING)
            await self._reader.end()
            for actor in self._actors.values():
                await actor.send(Halt())

    def _start_series(self, live: LiveSeries, state: Any) -> None:
        """Give a series its actor."""
        actor = self._actors[live.number] = Actor(live.series, self._grid, state)
        self._tasks.create_task(actor.run())

    @property
    def _group(self) -> int:
        """How many ticks may share a commit, with the series that live now."""
        living = [live.series for live in self.admission.registry.live]
        return self._config.ticks_together(self._router.width, living)

    async def _commit_all(self) -> None:
        """Step and commit closed ticks and execute commands, until the horizon, the end of the source or `stop()`."""
        while self._recovered.cut.next_tick != self._config.horizon:
            match await self._next():
                case Command() as command:
                    await command.execute()
                case []:
                    return
                case ticks:
                    commit, sealed = await self._step(ticks)
                    await _uncancelled(self._gate.commit(commit, sealed))
                    self._settled = commit.ticks[-1] + 1

    async def _next(self) -> Command | list[ClosedTick]:
        """A command, or what has closed since the last commit, `group` ticks or so; none at the end or on `stop`."""
        got = asyncio.create_task(self._inbox.get(self._group))
        stop = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait({got, stop}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _refuse(got)
            raise
        finally:
            got.cancel()
            stop.cancel()
        if self._asked_to_stop.is_set():
            _refuse(got)
            return []
        found, horizon = got.result(), self._config.horizon
        if isinstance(found, Command) or horizon is None:
            return found
        return [each for each in found if each.tick < horizon]

    async def _create(self, definition: bytes, analyst: str) -> Created:
        """Charge, make it durable at this cut, and only then let the mechanism exist."""
        now, seeds = self._recovered, self._ports.seeds
        start = now.cut.next_tick
        proposal = await asyncio.to_thread(self.admission.propose, definition, start)
        created, charge, live = self.admission.create(proposal, analyst, start)
        await self._reader.end()
        now.cut = now.cut.opened(self._router.width, self.admission.fresh_columns(live))
        seed = seeds()
        await self._change(Commit(0, b"", charges=(charge,), seeds=(seed,), changes=(created,)))
        self._start_series(live, initial_states((live,), seed, self._make_noise)[live.number])
        self._guard = Guard(self._router.width)
        await self._reader.again(self._tasks, now.cut, self._group)
        return created

    async def _halt(self, name: str) -> Halted:
        """End a series at this cut, durably."""
        halted = self.admission.halt(name, self._recovered.cut.next_tick)
        await self._change(Commit(0, b"", changes=(halted,)))
        await self._actors.pop(halted.number).send(Halt())
        return halted

    async def _change(self, commit: Commit) -> None:
        """Commit a change between two ticks, at the cut of the last one."""
        commit = self._cut_here(commit, self._recovered.cut)
        await _uncancelled(self._gate.commit(commit, self._sealed(commit)))

    async def _step(self, ticks: Sequence[ClosedTick]) -> tuple[Commit, bytes]:
        """Step all actors over these ticks and seal the commit that records them."""
        now, last = self._recovered, ticks[-1]
        seeds = [self._ports.seeds() for _ in ticks]
        releases = await self._releases(ticks, seeds)
        now.cut = last.cut
        commit = Commit(
            0,
            b"",
            ticks=tuple(t.tick for t in ticks),
            rows=tuple(tuple(t.row.tolist()) for t in ticks),
            seeds=tuple(seeds),
            releases=releases,
            dead_letters=DeadLetters(*(t.dead_letters for t in ticks)).sealed(),
            late=sum(t.late for t in ticks),
            records=sum(t.records for t in ticks),
            snapshot=await self._snapshot(len(ticks)),
        )
        commit = self._cut_here(commit, now.cut)
        now.next_release += len(releases)
        return commit, self._sealed(commit)

    def _cut_here(self, commit: Commit, cut: Cut) -> Commit:
        """The commit as the next one of the chain, at this cut."""
        now = self._recovered
        admitted = tuple(sorted(cut.marks.keys() - set(now.partitions)))
        now.partitions += admitted
        return msgspec.structs.replace(
            commit,
            sequence=now.next_commit,
            previous=now.previous,
            positions=dict(cut.positions),
            marks=dict(cut.marks),
            pending=cut.sparse,
            admitted=admitted,
            behind={partition: tuple(one) for partition, one in cut.behind.items()},
        )

    def _sealed(self, commit: Commit) -> bytes:
        """Seal the next commit of the chain."""
        now = self._recovered
        sealed, now.previous = self._gate.seal(commit)
        now.next_commit += 1
        return sealed

    async def _releases(
        self, ticks: Sequence[ClosedTick], seeds: Sequence[bytes]
    ) -> tuple[Release, ...]:
        """Send each tick's row to every actor and collect the bodies, ticks first, then series."""
        loop = asyncio.get_running_loop()
        sequence = self._recovered.next_release
        waiting: list[tuple[int, str, int, asyncio.Future[bytes]]] = []
        for closed, seed in zip(ticks, seeds, strict=True):
            row = self._guard.admit(closed.row)
            for live in self.admission.registry.live:
                reply: asyncio.Future[bytes] = loop.create_future()
                noise = self._make_noise(seed, live.number)
                await self._actors[live.number].send(Tick(closed.tick, sequence, row, noise, reply))
                waiting.append((sequence, live.series.name, closed.tick, reply))
                sequence += 1
        return tuple([Release(n, name, tick, await reply) for n, name, tick, reply in waiting])

    async def _snapshot(self, ticks: int) -> SavedStates | None:
        """All states at the cut, every `SNAPSHOT_TICKS` ticks."""
        self._since_snapshot += ticks
        if self._since_snapshot < SNAPSHOT_TICKS:
            return None
        self._since_snapshot = 0
        loop = asyncio.get_running_loop()
        replies = {number: loop.create_future() for number in self._actors}
        for number, reply in replies.items():
            await self._actors[number].send(Snapshot(STATES.encode, reply))
        return SavedStates({number: await reply for number, reply in replies.items()})


async def _uncancelled(commit: Coroutine[Any, Any, None]) -> None:
    """Await a commit; a cancellation waits for its outcome, which must be known."""
    task = asyncio.create_task(commit)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen: the cancellation already says why the engine ends
        raise


def _refuse(got: "asyncio.Task[Command | list[ClosedTick]]") -> None:
    """Refuse a command that was taken when the engine ended, or its sender would wait for ever."""
    if got.done() and not got.cancelled() and isinstance(command := got.result(), Command):
        command.refuse()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first leaf of an exception group: one cause, one message."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
