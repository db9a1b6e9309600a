"""One actor per mechanism: a task that owns the state and takes messages from a bounded mailbox; and its guard.

Rules: only the actor touches the state. A tick message is one whole row, never single events: the actor updates the
mechanism, queries it once and replies with the release. A query comes between two ticks.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.mechanism import IntArray, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import event
from stream_dp.core.time import TickGrid
from stream_dp.engine.series import Series
from stream_dp.errors import FailClosed, RejectedMessage

MAILBOX = 256
_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class Guard:
    """The verifier V[f] of [HSV] Def 3.5 in production: a row passes where the pair of it with itself is accepted.

    In a game the verifier stands between adversary and mechanism (`verify.games.game`); here there is no pair, and both
    sides of every accepted pair pass. For the event and user relations the row (shape (width,)) alone decides, so the
    guard has no state to lose in a crash. In the columns of `amounts` (sums of units, of either sign) any integer is
    admissible: a limit would be a decision about exact sums, before any noise.
    """

    width: int
    amounts: tuple[slice, ...] = ()

    def admit(self, row: IntArray) -> IntArray:
        """Return the row unchanged; raise `FailClosed` if no guarantee covers it: it is not of counts and amounts."""
        counts = row
        if self.amounts and isinstance(row, np.ndarray):
            counts = row.copy()
            for columns in self.amounts:
                counts[columns] = 0
        if event(Neighbors.REPLACE, self.width).accept(counts, counts) is None:
            raise FailClosed(
                "a row that no stream of events can produce reached the guard; stop and report this"
            )
        return row


@dataclass(frozen=True, slots=True, repr=False)
class Tick:
    """Update with the tick's whole `row`, query, and reply with the body of release number `sequence`."""

    tick: int
    sequence: int
    row: IntArray
    noise: Noise
    reply: "asyncio.Future[bytes]"


class MechanismAnswer(NamedTuple):
    """An answer to a query, and the half-width of its error band (None: it has no band)."""

    answer: IntArray
    band: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Ask:
    """Answer `query` at once, before `tick`; if the mechanism refuses it, `reply` raises `RejectedMessage`."""

    tick: int
    query: Query
    noise: Noise
    reply: "asyncio.Future[MechanismAnswer]"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Reply with `read(state)` between two messages."""

    read: Callable[[Any], bytes]
    reply: "asyncio.Future[bytes]"


@dataclass(frozen=True, slots=True)
class Halt:
    """End the actor after the messages before this one."""


ActorCommand: TypeAlias = Tick | Ask | Snapshot | Halt


class Actor:
    """Runs `series.mechanism` from `state`; start `run()` in a task group."""

    def __init__(self, series: Series, grid: TickGrid, state: Any) -> None:
        self._series = series
        self._grid = grid
        self._state = state
        self._mailbox: asyncio.Queue[ActorCommand] = asyncio.Queue(MAILBOX)

    def change(self, series: Series) -> None:
        self._series = series

    async def send(self, command: ActorCommand) -> None:
        await self._mailbox.put(command)

    async def run(self) -> None:
        """Take commands one by one until `Halt`; an exception ends the engine."""
        while True:
            match await self._mailbox.get():
                case Tick(tick, sequence, row, noise, reply):
                    self._state, body = step(
                        self._series, self._grid, self._state, tick, sequence, row, noise
                    )
                    _answer(reply, body)
                case Ask() as command:
                    self._ask(command)
                case Snapshot(read, reply):
                    _answer(reply, read(self._state))
                case Halt():
                    return

    def _ask(self, command: Ask) -> None:
        band = self._series.ask_band(command.tick, command.query, self._state)
        try:
            self._state, answer = ask(self._series, self._state, command.query, command.noise)
        except RejectedMessage as refusal:
            if not command.reply.cancelled():
                command.reply.set_exception(refusal)
        else:
            _answer(command.reply, MechanismAnswer(answer, band))


def _answer(reply: "asyncio.Future[_A]", answer: _A) -> None:
    """Set the result, unless the future was cancelled together with the engine."""
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
    """Run one tick of one series: update, query, release. Return the new state and the release body; recovery uses it
    too.
    """
    state, _ = series.mechanism.step(state, Update(row[series.rows]), noise)
    state, answer = ask(series, state, Query(), noise)
    return state, series.body(grid, sequence, tick, state, answer)


def ask(series: Series, state: Any, query: Query, noise: Noise) -> tuple[Any, IntArray]:
    """Put a query to a series; return the new state and the answer, or raise `RejectedMessage`: no change."""
    state, answer = series.mechanism.step(state, query, noise)
    if answer is None:
        raise TypeError(f"the mechanism of {series.name} did not answer a query")
    return state, answer
