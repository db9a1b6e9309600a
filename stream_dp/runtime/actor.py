"""One actor per mechanism: a task that owns the state and takes messages from a bounded mailbox.

Rules: nobody else touches the state. A tick message is one row, never single events; it updates, asks once and
answers with the release. `Snapshot` and `Halt` are commands of the runtime, not messages of the mechanism.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.tick_grid import TickGrid
from stream_dp.runtime.series import Series

MAILBOX = 256


@dataclass(frozen=True, slots=True, repr=False)
class Tick:
    """Update with `row` (the whole tick row), ask, and answer the body of release number `sequence`."""

    tick: int
    sequence: int
    row: IntArray
    noise: Noise
    reply: "asyncio.Future[bytes]"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Answer `read(state)` between two messages."""

    read: Callable[[Any], bytes]
    reply: "asyncio.Future[bytes]"


@dataclass(frozen=True, slots=True)
class Halt:
    """End the actor after the messages before this one."""


ActorCommand: TypeAlias = Tick | Snapshot | Halt


class Actor:
    """Runs `series.mechanism` from `state`; start `run()` in a task group."""

    def __init__(self, series: Series, grid: TickGrid, state: Any) -> None:
        self._series = series
        self._grid = grid
        self._state = state
        self._mailbox: asyncio.Queue[ActorCommand] = asyncio.Queue(MAILBOX)

    async def send(self, command: ActorCommand) -> None:
        """Put a command into the mailbox; waits while it is full."""
        await self._mailbox.put(command)

    async def run(self) -> None:
        """Take commands one by one until `Halt`; an exception ends the engine."""
        while True:
            match await self._mailbox.get():
                case Tick() as command:
                    _answer(command.reply, self._tick(command))
                case Snapshot(read, reply):
                    _answer(reply, read(self._state))
                case Halt():
                    return

    def _tick(self, command: Tick) -> bytes:
        self._state, body = step(
            self._series, self._grid, self._state, command.tick, command.sequence,
            command.row, command.noise,
        )  # fmt: skip
        return body


def _answer(reply: "asyncio.Future[bytes]", answer: bytes) -> None:
    """Answer, unless the engine was cancelled while it waited."""
    if not reply.cancelled():
        reply.set_result(answer)


def step(
    series: Series,
    grid: TickGrid,
    state: Any,
    tick: int,
    sequence: int,
    row: IntArray,
    noise: Noise,
) -> tuple[Any, bytes]:
    """One tick of one series: update, query, release body. Recovery replays commits through it too."""
    mechanism = series.mechanism
    state, _ = mechanism.step(state, Update(row[series.rows]), noise)
    state, answer = mechanism.step(state, Query(), noise)
    if answer is None:
        raise TypeError(f"the mechanism of {series.name} did not answer a query")
    return state, series.body(grid, sequence, tick, state, answer)
