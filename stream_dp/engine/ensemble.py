"""The actors of the series that run, one for each mechanism: started, stepped, asked and ended together.

Rules: only an actor touches its state; its mailbox is bounded. A tick goes to every actor as one whole row, in order of
the series' numbers, with noise of its own from the tick's seed. A query goes to one actor between two ticks, with noise
from a seed that is used for nothing else. This file knows no commit and no journal.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from stream_dp.core.mechanism import IntArray, Noise, Query
from stream_dp.core.time import TickGrid
from stream_dp.engine.recovery import NoiseMaker, initial_states
from stream_dp.engine.series import (
    Guard,
    LiveSeries,
    Registry,
    Series,
    SeriesBlock,
    with_made,
)
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.errors import RejectedMessage
from stream_dp.journal.commit import Release, SavedStates
from stream_dp.mechanisms.states import STATES
from stream_dp.noise import NoiseStream

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

    def __init__(self, series: Series, state: Any, *members: int) -> None:
        self.series = series
        self.members = list(members)
        """The numbers of its series, in their order."""
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
        self, grid: TickGrid, tick: int, numbers: Sequence[int], row: IntArray, noise: Callable[[int], Noise]
    ) -> "asyncio.Future[list[bytes]]":  # fmt: skip
        """Step over a tick; the result is the body of the release of this sequence number. `noise` returns that of a
        series, by its number.
        """
        (sequence,), own = numbers, noise(self.members[0])

        def act() -> list[bytes]:
            self._state, body = self.series.step(grid, self._state, tick, sequence, row, own)
            return [body]

        return await self._send(act)

    async def ask(self, tick: int, query: Query, noise: Noise) -> "asyncio.Future[MechanismAnswer]":
        """Answer a query before `tick`; the future raises `RejectedMessage` if the mechanism refuses it."""

        def act() -> MechanismAnswer:
            band = self.series.ask_band(tick, query, self._state)
            self._state, answer = self.series.ask(self._state, query, noise)
            return MechanismAnswer(answer, band)

        return await self._send(act)

    async def saved(self) -> "asyncio.Future[list[bytes]]":
        """Return the states of its series."""
        return await self._send(lambda: [STATES.encode(self._state)])

    async def end(self) -> None:
        await self._mailbox.put(None)

    async def leave(self, number: int) -> None:
        """Forget a series that is halted; without another, end."""
        await self.end()

    async def _send(self, act: Callable[[], _A]) -> "asyncio.Future[_A]":
        reply: asyncio.Future[_A] = asyncio.get_running_loop().create_future()
        await self._mailbox.put((act, reply))  # a closure, because its repr shows no row
        return reply


class BlockNoise:
    """The noise of several series that are stepped as one: each has its own stream, opened at the first draw."""

    def __init__(self, streams: Callable[[], Sequence[Noise]]) -> None:
        self._open = streams

    @cached_property
    def _streams(self) -> Sequence[Noise]:
        return self._open()

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Return what each stream draws for its column, of an even share of `size`; the columns side by side."""
        streams, each = self._streams, size // len(self._streams)
        if all(isinstance(stream, NoiseStream) for stream in streams):
            drawn = NoiseStream.laplace_of_each(cast("Sequence[NoiseStream]", streams), scale, each)
        else:
            drawn = np.stack([stream.laplace(scale, each) for stream in streams])
        return drawn.T.reshape(-1)

    def geometric(self, scale: Fraction, size: int) -> IntArray:
        raise NotImplementedError

    def gaussian(self, variance: Fraction, size: int) -> IntArray:
        raise NotImplementedError


class BlockActor(Actor):
    """Runs the series of a block, `members` by number, from `state`, which has a column for each."""

    def __init__(self, block: SeriesBlock, state: Any, *members: int) -> None:
        super().__init__(block.series[0], state, *members)
        self._block = block

    async def tick(
        self, grid: TickGrid, tick: int, numbers: Sequence[int], row: IntArray, noise: Callable[[int], Noise]
    ) -> "asyncio.Future[list[bytes]]":  # fmt: skip
        block, streams = self._block, BlockNoise(lambda: [*map(noise, members)])
        members = tuple(self.members)

        def act() -> list[bytes]:
            self._state, bodies = block.step(grid, self._state, tick, numbers, row, streams)
            return bodies

        return await self._send(act)

    async def saved(self) -> "asyncio.Future[list[bytes]]":
        def act() -> list[bytes]:
            places = range(len(self.members))
            each = (_in_columns(self._state, slice(place, place + 1)) for place in places)
            return [*map(STATES.encode, each)]

        return await self._send(act)

    async def leave(self, number: int) -> None:
        place = self.members.index(number)
        del self.members[place]
        if not self.members:
            await self.end()
            return
        self._block = self._block.without(place)
        kept = np.delete(np.arange(len(self.members) + 1), place)

        def act() -> None:
            self._state = _in_columns(self._state, kept)

        await (await self._send(act))


class Ensemble:
    """Actors for the series of `registry`, one for those that are stepped as one and for each of the others, run in the
    task group `tasks`; rows have `width` entries.
    """

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
        running = self._registry.at(tick)
        for group in SeriesBlock.groups(live for live in running if live.number not in until):
            numbers = [live.number for live in group]
            block = SeriesBlock(tuple(live.series for live in group))
            self._run(
                BlockActor(block, _columns_of([states[number] for number in numbers]), *numbers)
            )
        for live in running:
            if live.number not in self._actors:
                series = until.get(live.number, live.series)
                self._start(replace(live, series=series), states[live.number])

    def _run(self, actor: Actor) -> None:
        self._actors |= dict.fromkeys(actor.members, actor)
        self._tasks.create_task(actor.run())

    def _start(self, live: LiveSeries, state: Any) -> None:
        amounts, rows = self._guard.amounts, live.series.rows
        if live.series.amounts and rows not in amounts:
            self._guard = replace(self._guard, amounts=(*amounts, rows))
        self._run(Actor(live.series, state, live.number))

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
            await self._actors.pop(number).leave(number)

    async def end(self) -> None:
        for actor in {*self._actors.values()}:
            await actor.end()

    async def releases(
        self, ticks: Sequence[ClosedTick], seeds: Sequence[bytes], sequence: int
    ) -> tuple[Release, ...]:
        """Send each tick's row to every actor; return the releases by tick, then series, numbered from `sequence`."""
        made = self._registry.made
        waiting = []
        for closed, seed in zip(ticks, seeds, strict=True):
            row, tick, running = (
                self._guard.admit(closed.row),
                closed.tick,
                self._registry.at(closed.tick),
            )
            numbers = {live.number: sequence + place for place, live in enumerate(running)}
            replies = []
            for actor in dict.fromkeys(self._actors[number] for number in numbers):
                own, noise = (
                    [numbers[number] for number in actor.members],
                    partial(self.make_noise, seed),
                )
                replies.append((own, await actor.tick(self._grid, tick, own, row, noise)))
            waiting.append((tick, [live.series.name for live in running], sequence, replies))
            sequence += len(running) + len(made)
        releases: list[Release] = []
        for tick, names, first, replies in waiting:
            bodies: dict[int, bytes] = {}
            for own, reply in replies:
                bodies |= dict(zip(own, await reply, strict=True))
            told = enumerate(names, first)
            each = [Release(number, name, tick, bodies[number]) for number, name in told]
            releases += with_made(each, made, self._grid)
        return tuple(releases)

    async def ask(self, number: int, tick: int, query: Query, noise: Noise) -> MechanismAnswer:
        """Return the answer to a query made before `tick`, or raise `RejectedMessage` with the state as it was."""
        return await (await self._actors[number].ask(tick, query, noise))

    async def states(self) -> SavedStates:
        replies = [(actor.members, await actor.saved()) for actor in {*self._actors.values()}]
        states: dict[int, bytes] = {}
        for numbers, reply in replies:
            states |= dict(zip(numbers, await reply, strict=True))
        return SavedStates(dict(sorted(states.items())))


def _columns_of(states: Sequence[Any]) -> Any:
    """Return states of one form as one that has the columns of all, one after the other, where arrays stand.

    Raises ValueError where they differ in anything but the entries of arrays.
    """
    first: Any = states[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(states, axis=-1)
    if isinstance(first, tuple):
        return tuple(map(_columns_of, zip(*states, strict=True)))
    if is_dataclass(first):
        kind: Any = type(first)
        names = [field.name for field in fields(first)]
        return kind(*(_columns_of([getattr(state, name) for state in states]) for name in names))
    if any(state != first for state in states):
        raise ValueError("these states differ and cannot be advanced as one")
    return first


def _in_columns(state: Any, kept: slice | IntArray) -> Any:
    """Return the state with these columns of its arrays alone."""
    if isinstance(state, np.ndarray):
        return state[..., kept].copy()
    if isinstance(state, tuple):
        return tuple(_in_columns(part, kept) for part in state)
    if is_dataclass(state):
        kind: Any = type(state)
        return kind(*(_in_columns(getattr(state, field.name), kept) for field in fields(state)))
    return state
