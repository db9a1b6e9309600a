"""The actors of the series that run, one for each mechanism: started, stepped, asked and ended together.

Rules: only an actor touches its state; its mailbox is bounded. A tick goes to every actor as one whole row, in order of
the series' numbers, with noise of its own from the tick's seed. A query goes to one actor between two ticks, with noise
from a seed that is used for nothing else. This file knows no commit and no journal.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.time import TickGrid
from stream_dp.engine.recovery import NoiseMaker, initial_states
from stream_dp.engine.series import Guard, LiveSeries, Registry, Series, with_made
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.errors import RejectedMessage
from stream_dp.journal.commit import Release, SavedStates
from stream_dp.mechanisms.states import STATES

MAILBOX = 256
NOTHING: Mapping[int, Series] = MappingProxyType({})
_A = TypeVar("_A")


class MechanismAnswer(NamedTuple):
    """An answer to a query, and the half-width of its error band (None: it has no band)."""

    answer: IntArray
    band: int | None


class Actor:
    """Runs `series.mechanism` from `state`; start `run()` in a task group. Each method queues what it says and returns
    the future of its result.
    """

    def __init__(self, series: Series, state: Any) -> None:
        self.series = series
        self._state = state
        self._mailbox: asyncio.Queue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._mailbox = asyncio.Queue(MAILBOX)

    async def run(self) -> None:
        """Do what was queued, one after the other, until `halt`; an exception ends the engine."""
        while (queued := await self._mailbox.get()) is not None:
            act, reply = queued
            try:
                answer = act()
            except RejectedMessage as refusal:
                if not reply.cancelled():  # it is, together with the engine
                    reply.set_exception(refusal)
            else:
                if not reply.cancelled():
                    reply.set_result(answer)

    async def tick(
        self, grid: TickGrid, tick: int, sequence: int, row: IntArray, noise: Noise
    ) -> "asyncio.Future[bytes]":
        """Step over a tick; the result is the body of release number `sequence`."""

        def act() -> bytes:
            self._state, body = self.series.step(grid, self._state, tick, sequence, row, noise)
            return body

        return await self._send(act)

    async def ask(self, tick: int, query: Query, noise: Noise) -> "asyncio.Future[MechanismAnswer]":
        """Answer a query before `tick`; the future raises `RejectedMessage` if the mechanism refuses it."""

        def act() -> MechanismAnswer:
            band = self.series.ask_band(tick, query, self._state)
            self._state, answer = self.series.ask(self._state, query, noise)
            return MechanismAnswer(answer, band)

        return await self._send(act)

    async def saved(self) -> "asyncio.Future[bytes]":
        return await self._send(lambda: STATES.encode(self._state))

    async def halt(self) -> None:
        await self._mailbox.put(None)

    async def _send(self, act: Callable[[], _A]) -> "asyncio.Future[_A]":
        reply: asyncio.Future[_A] = asyncio.get_running_loop().create_future()
        await self._mailbox.put((act, reply))  # a closure, because its repr shows no row
        return reply


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
            self._start(replace(live, series=series), states[live.number])

    def _start(self, live: LiveSeries, state: Any) -> None:
        amounts, rows = self._guard.amounts, live.series.rows
        if live.series.amounts and rows not in amounts:
            self._guard = replace(self._guard, amounts=(*amounts, rows))
        actor = self._actors[live.number] = Actor(live.series, state)
        self._tasks.create_task(actor.run())

    async def start_new(self, live: LiveSeries, seed: bytes, width: int) -> None:
        """Start the actor of a new series, with a state drawn from `seed`; take rows of `width` from now on."""
        self._start(live, initial_states((live,), seed, self.make_noise)[live.number])
        self.widen(width)

    def change(self, live: LiveSeries) -> None:
        self._actors[live.number].series = live.series

    def widen(self, width: int) -> None:
        self._guard = replace(self._guard, width=width)

    async def halt(self, number: int) -> None:
        if number in self._actors:
            await self._actors.pop(number).halt()

    async def end(self) -> None:
        for actor in self._actors.values():
            await actor.halt()

    async def releases(
        self, ticks: Sequence[ClosedTick], seeds: Sequence[bytes], sequence: int
    ) -> tuple[Release, ...]:
        """Send each tick's row to every actor; return the releases by tick, then series, numbered from `sequence`."""
        made = self._registry.made
        waiting: list[list[tuple[int, str, int, asyncio.Future[bytes]]]] = []
        for closed, seed in zip(ticks, seeds, strict=True):
            row, tick = self._guard.admit(closed.row), closed.tick
            waiting.append([])
            for live in self._registry.at(tick):
                noise = self.make_noise(seed, live.number)
                actor = self._actors[live.number]
                reply = await actor.tick(self._grid, tick, sequence, row, noise)
                waiting[-1].append((sequence, live.series.name, tick, reply))
                sequence += 1
            sequence += len(made)
        releases: list[Release] = []
        for replies in waiting:
            own = [Release(number, name, at, await reply) for number, name, at, reply in replies]
            releases += with_made(own, made, self._grid)
        return tuple(releases)

    async def ask(self, number: int, tick: int, query: Query, noise: Noise) -> MechanismAnswer:
        """Return the answer to a query made before `tick`, or raise `RejectedMessage` with the state as it was."""
        return await (await self._actors[number].ask(tick, query, noise))

    async def states(self) -> SavedStates:
        replies = {number: await actor.saved() for number, actor in self._actors.items()}
        return SavedStates({number: await reply for number, reply in replies.items()})
