"""The engine: source -> guard -> ticks -> actors -> gate, on one event loop, failing closed.

Rules: the order is charge, step, private commit, publish. One commit is in flight while the next rows are gathered;
when the engine is behind, some `GROUP` ticks share a private commit. State is taken at a tick's cut. An error
anywhere ends the run; nothing is retried in place. This file knows no file, topic or HTTP.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from stream_dp.core.verifier import Guard
from stream_dp.errors import FailClosed
from stream_dp.mechanisms.states import STATES
from stream_dp.noise import fresh_seed
from stream_dp.runtime.actor import Actor, Halt, Snapshot, Tick
from stream_dp.runtime.commit import Charge, Commit, Header, Release
from stream_dp.runtime.gate import Gate
from stream_dp.runtime.headers import require_same
from stream_dp.runtime.keys import Sealer
from stream_dp.runtime.ports import Batch, Clock, Journal, Published, Sink, Source
from stream_dp.runtime.recovery import GENESIS, NoiseMaker, Recovered, initial_states, recover
from stream_dp.runtime.series import Grid, Series
from stream_dp.runtime.ticks import ClosedTick, Router, TickAssembler

GROUP = 100
QUEUED = 4
SNAPSHOT_TICKS = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: fixed before the first event and public."""

    pipeline: str
    fingerprint: str
    origin: int
    step: int
    horizon: int | None
    block: int
    hold: int | None
    private: bool
    series: tuple[Series, ...]
    charges: tuple[Charge, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    accepted: str = ""

    def grid(self, origin: int) -> Grid:
        """The tick grid from this origin."""
        return Grid(origin, self.step, self.horizon)


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters the engine runs on; `seeds` gives fresh 32 bytes (the test kit has others)."""

    source: Source
    journal: Journal
    sink: Sink
    clock: Clock
    sealer: Sealer
    seeds: Callable[[], bytes] = fresh_seed


class Engine:
    """Runs a plan until its horizon, the end of its source, or `stop()`."""

    def __init__(
        self,
        plan: Plan,
        router: Router,
        ports: Ports,
        make_noise: NoiseMaker,
        published: Published = lambda body: None,
    ) -> None:
        self._plan = plan if plan.private else _marked(plan)
        self._router = router
        self._ports = ports
        self._make_noise = make_noise
        self._published = published
        self._guard = Guard(router.width)
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self._since_snapshot = 0
        self._closed: asyncio.Queue[list[ClosedTick]] = asyncio.Queue(QUEUED)

    def stop(self) -> None:
        """End after the commit in flight."""
        self._stopping.set()

    async def run(self) -> None:
        """Recover, then run.

        Raises:
            FailClosed, WorldError: the engine stopped; what was published stays valid.
        """
        ports = self._ports
        try:
            recovered = await self._start()
            await self._run(recovered)
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            async with AsyncExitStack() as closing:  # one that fails leaves no other open
                for port in (ports.journal, ports.sink, ports.source):
                    closing.push_async_callback(port.close)

    async def _start(self) -> Recovered:
        plan, ports = self._plan, self._ports
        recovered = await recover(
            ports.journal, ports.sink, ports.sealer, plan.pipeline, plan.series,
            self._grid_of, self._make_noise,
        )  # fmt: skip
        origin = plan.origin if recovered is None else recovered.header.origin
        partitions = await ports.source.open(origin)
        self._grid = plan.grid(origin)
        self._gate = Gate(
            ports.journal, ports.sink, ports.sealer, ports.clock, self._grid,
            plan.block, plan.hold, self._published,
        )  # fmt: skip
        header = self._header(ports.source.name, partitions, origin)
        if recovered is None:
            recovered = await self._first_commit(header)
        require_same(recovered.header, header)
        if recovered.charges != plan.charges:
            raise FailClosed(
                f"the ledger in the journal of {plan.pipeline} is not what its pipeline file derives; "
                "run the version of the code and of the file that wrote it"
            )
        async for body in ports.sink.read():
            self._published(body)
        await self._gate.publish(recovered.unpublished)
        await ports.source.seek(recovered.positions)
        self.ready.set()
        return recovered

    def _grid_of(self, header: Header) -> Grid:
        """The journal's grid, once it is sure that its steps are those of this plan."""
        mine = self._header(header.source, header.partitions, header.origin)
        require_same(header, mine)
        return self._plan.grid(header.origin)

    def _header(self, source: str, partitions: tuple[int, ...], origin: int) -> Header:
        """The header a journal of this plan on that source begins with."""
        plan = self._plan
        return Header(
            pipeline=plan.pipeline,
            fingerprint=plan.fingerprint,
            source=source,
            partitions=partitions,
            origin=origin,
            private=plan.private,
            key_id=self._ports.sealer.key_id,
            parts=dict(plan.parts),
            accepted=plan.accepted,
        )

    async def _first_commit(self, header: Header) -> Recovered:
        """Charge before anything exists: the header, the ledger and the first seed become durable."""
        seed = self._ports.seeds()
        commit = Commit(0, GENESIS, header, self._plan.charges, seeds=(seed,))
        sealed, link = self._gate.seal(commit)
        await self._gate.commit(commit, sealed)
        states = initial_states(self._plan.series, seed, self._make_noise)
        return Recovered(header, commit.charges, states, link, next_commit=1)

    async def _run(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self._since_snapshot = recovered.replayed
        self._ticks = TickAssembler(
            recovered.header.partitions, self._router.width, recovered.next_tick,
            recovered.pending, recovered.positions, recovered.marks,
        )  # fmt: skip
        self._actors = [
            Actor(series, self._grid, state)
            for series, state in zip(self._plan.series, recovered.states, strict=True)
        ]
        async with asyncio.TaskGroup() as tasks:
            for actor in self._actors:
                tasks.create_task(actor.run())
            reader = tasks.create_task(self._gather())
            await self._commit_all()
            reader.cancel()
            for actor in self._actors:
                await actor.send(Halt())

    async def _gather(self) -> None:
        """Read, route and close ticks while commits are in flight; the bounded queue holds the reader back."""
        batches: Sequence[Batch] = ()
        while True:
            for batch in batches:
                self._ticks.add(batch, self._router.route(batch))
            while closed := self._ticks.closed(GROUP):
                await self._closed.put(closed)
            if not (batches := await self._ports.source.read()):
                break
        await self._closed.put([])

    async def _commit_all(self) -> None:
        """Step and commit what has closed, until the horizon, the end of the source or `stop()`."""
        while self._recovered.next_tick != self._plan.horizon:
            ticks = await self._next_ticks()
            if not ticks:
                return
            commit, sealed = await self._step(ticks)
            await _uncancelled(self._gate.commit(commit, sealed))

    async def _next_ticks(self) -> list[ClosedTick]:
        """What has closed since the last commit, `GROUP` ticks or so; empty at the end or after `stop()`."""
        got = asyncio.create_task(self._closed.get())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({got, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            got.cancel()
            stop.cancel()
        if self._stopping.is_set():
            return []
        ticks = got.result()
        while ticks and not self._closed.empty() and len(ticks) < GROUP:
            if not (more := self._closed.get_nowait()):
                self._closed.put_nowait(more)
                break
            ticks += more
        horizon = self._plan.horizon
        return ticks if horizon is None else [each for each in ticks if each.tick < horizon]

    async def _step(self, ticks: Sequence[ClosedTick]) -> tuple[Commit, bytes]:
        """Step all actors over these ticks and seal the commit that records them."""
        now = self._recovered
        seeds = [self._ports.seeds() for _ in ticks]
        releases = await self._releases(ticks, seeds)
        last = ticks[-1]
        commit = Commit(
            now.next_commit,
            now.previous,
            ticks=tuple(t.tick for t in ticks),
            rows=tuple(tuple(t.row.tolist()) for t in ticks),
            seeds=tuple(seeds),
            releases=releases,
            positions=last.positions,
            marks=last.marks,
            pending={t: tuple(row.tolist()) for t, row in last.pending.items()},
            dead_letters=tuple(d for t in ticks for d in t.dead_letters),
            late=sum(t.late for t in ticks),
            records=sum(t.records for t in ticks),
            snapshot=await self._snapshot(len(ticks)),
        )
        sealed, now.previous = self._gate.seal(commit)
        now.next_commit += 1
        now.next_tick = last.tick + 1
        now.next_release += len(releases)
        return commit, sealed

    async def _releases(
        self, ticks: Sequence[ClosedTick], seeds: Sequence[bytes]
    ) -> tuple[Release, ...]:
        """Send each tick's row to every actor and collect the bodies, ticks first, then series."""
        loop = asyncio.get_running_loop()
        sequence = self._recovered.next_release
        waiting: list[tuple[int, str, int, asyncio.Future[bytes]]] = []
        for closed, seed in zip(ticks, seeds, strict=True):
            row = self._guard.admit(closed.row)
            for i, series in enumerate(self._plan.series):
                reply: asyncio.Future[bytes] = loop.create_future()
                noise = self._make_noise(seed, i)
                await self._actors[i].send(Tick(closed.tick, sequence, row, noise, reply))
                waiting.append((sequence, series.name, closed.tick, reply))
                sequence += 1
        return tuple([Release(n, name, tick, await reply) for n, name, tick, reply in waiting])

    async def _snapshot(self, ticks: int) -> bytes | None:
        """All states at the cut, every `SNAPSHOT_TICKS` ticks."""
        self._since_snapshot += ticks
        if self._since_snapshot < SNAPSHOT_TICKS:
            return None
        self._since_snapshot = 0
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[bytes]] = [loop.create_future() for _ in self._actors]
        for actor, reply in zip(self._actors, replies, strict=True):
            await actor.send(Snapshot(STATES.encode, reply))
        return msgspec.msgpack.encode([await reply for reply in replies])


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


def _marked(plan: Plan) -> Plan:
    """The plan with series whose releases say that they are not private."""
    return replace(plan, series=tuple(replace(series, private=False) for series in plan.series))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first leaf of an exception group: one cause, one message."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
