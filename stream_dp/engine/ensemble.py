"""The actors of the series that run: started, stepped, asked and ended together.

Rules: a tick goes to every actor, in the order of the series' numbers; each actor gets noise of its own from the
tick's seed. A query goes to one actor, with noise from a seed that is used for nothing else. This file knows no
commit and no journal.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from stream_dp.core.mechanism import Noise, Query
from stream_dp.core.time import TickGrid
from stream_dp.engine.actor import Actor, Ask, Guard, Halt, MechanismAnswer, Snapshot, Tick
from stream_dp.engine.recovery import NoiseMaker, initial_states
from stream_dp.engine.series import LiveSeries, Registry, Series, with_made
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.journal.commit import Release, SavedStates
from stream_dp.mechanisms.states import STATES

NOTHING: Mapping[int, Series] = MappingProxyType({})


class Ensemble:
    """One actor for each series of `registry`, run in the task group `tasks`; rows have `width` entries."""

    def __init__(
        self, registry: Registry, grid: TickGrid, make_noise: NoiseMaker, tasks: asyncio.TaskGroup, width: int
    ) -> None:  # fmt: skip
        self._registry, self._grid, self._tasks = registry, grid, tasks
        self.make_noise = make_noise
        self._guard = Guard(width)
        self._actors: dict[int, Actor] = {}

    def begin(
        self, states: Mapping[int, Any], tick: int = 0, until: Mapping[int, Series] = NOTHING
    ) -> None:
        """Start an actor for every series that sees `tick`; `until` are series served in another form for a while."""
        for live in self._registry.at(tick):
            series = until.get(live.number, live.series)
            self.start(replace(live, series=series), states[live.number])

    def start(self, live: LiveSeries, state: Any) -> None:
        amounts, rows = self._guard.amounts, live.series.rows
        if live.series.amounts and rows not in amounts:
            self._guard = replace(self._guard, amounts=(*amounts, rows))
        actor = self._actors[live.number] = Actor(live.series, self._grid, state)
        self._tasks.create_task(actor.run())

    def start_new(self, live: LiveSeries, seed: bytes, width: int) -> None:
        """Start the actor of a new series, with a state drawn from `seed`; take rows of `width` from now on."""
        states = initial_states((live,), seed, self.make_noise)
        self.start(live, states[live.number])
        self.widen(width)

    def change(self, live: LiveSeries) -> None:
        self._actors[live.number].change(live.series)

    def widen(self, width: int) -> None:
        self._guard = replace(self._guard, width=width)

    async def halt(self, number: int) -> None:
        if number in self._actors:
            await self._actors.pop(number).send(Halt())

    async def end(self) -> None:
        for actor in self._actors.values():
            await actor.send(Halt())

    async def releases(
        self, ticks: Sequence[ClosedTick], seeds: Sequence[bytes], sequence: int
    ) -> tuple[Release, ...]:
        """Send each tick's row to every actor; return the releases by tick, then series, numbered from `sequence`."""
        made = self._registry.made
        waiting: list[list[tuple[int, str, int, asyncio.Future[bytes]]]] = []
        for closed, seed in zip(ticks, seeds, strict=True):
            row = self._guard.admit(closed.row)
            waiting.append([])
            for live in self._registry.at(closed.tick):
                reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
                noise = self.make_noise(seed, live.number)
                await self._actors[live.number].send(Tick(closed.tick, sequence, row, noise, reply))
                waiting[-1].append((sequence, live.series.name, closed.tick, reply))
                sequence += 1
            sequence += len(made)
        releases: list[Release] = []
        for tick in waiting:
            own = [Release(number, name, at, await reply) for number, name, at, reply in tick]
            releases += with_made(own, made, self._grid)
        return tuple(releases)

    async def ask(self, number: int, tick: int, query: Query, noise: Noise) -> MechanismAnswer:
        """Return the answer to a query made before `tick`, or raise `RejectedMessage` with the state as it was."""
        reply: asyncio.Future[MechanismAnswer] = asyncio.get_running_loop().create_future()
        await self._actors[number].send(Ask(tick, query, noise, reply))
        return await reply

    async def states(self) -> SavedStates:
        loop = asyncio.get_running_loop()
        replies = {number: loop.create_future() for number in self._actors}
        for number, reply in replies.items():
            await self._actors[number].send(Snapshot(STATES.encode, reply))
        return SavedStates({number: await reply for number, reply in replies.items()})
