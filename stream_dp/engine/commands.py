"""The engine's inbox: closed ticks from the reader, and commands of people, taken one by one between commits.

Rules: a command runs at a cut, and its sender learns the outcome. A refusal goes to the sender only; any other
error ends the engine as well. A closed tick waits for one command at most, and a command for the ticks of one
commit. The inbox has room for the ticks of a few commits: when it is full, the reader waits. Ticks that share a commit
come from one block of tick numbers, so that public blocks of as many ticks end where commits do.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stream_dp.engine.phases import EnginePhase, Lifecycle
from stream_dp.engine.tick_assembler import ClosedTick
from stream_dp.errors import BudgetRefused, EngineEnded, UsageError, WorldError

QUEUED = 4
TOGETHER = 8
"""How many commands in a row may run before dropped ticks are read again, beside those that already waited."""
ENDED = (
    "the engine has ended, so nothing is previewed, created, halted, asked or watched any more. What was released "
    "stays, and is read as before"
)
UNKNOWN = (
    "the engine stopped while it did this; it may be durable and paid for: look with `stream-dp query list`, once the "
    "engine runs again, before you try again"
)


@dataclass(frozen=True, slots=True, repr=False)
class Command:
    """An action to run at the next cut (`act`), and the future with which its sender waits for the outcome."""

    act: Callable[[], Awaitable[Any]]
    reply: "asyncio.Future[Any]"

    async def execute(self) -> None:
        """Run `act` and answer its sender; a refusal (UsageError, BudgetRefused) goes to the sender only."""
        try:
            answer = await self.act()
        except (UsageError, BudgetRefused) as refusal:
            self._fail(refusal)
        except BaseException:
            self._fail(WorldError(UNKNOWN))
            raise
        else:
            if not self.reply.done():
                self.reply.set_result(answer)

    def refuse(self) -> None:
        self._fail(EngineEnded(ENDED))

    def _fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Inbox:
    """Ticks and commands until the engine's `lifecycle` is over. Each kind keeps its order; they alternate."""

    def __init__(self, lifecycle: Lifecycle[EnginePhase]) -> None:
        self._lifecycle = lifecycle
        self._ticks: deque[list[ClosedTick]] = deque()
        self._commands: deque[Command] = deque()
        self._there = asyncio.Event()
        self._room = asyncio.Semaphore(QUEUED)
        self._commanded = False
        self._returned = self._left = self._together = 0

    async def put(self, ticks: list[ClosedTick], most: int = 1) -> None:
        """Add ticks (none: no more come); up to `most` that wait are taken together."""
        if self._ticks and _join(self._ticks[-1], ticks, most):
            self._ticks[-1] = self._ticks[-1] + ticks
            return
        await self._room.acquire()
        self._ticks.append(ticks)
        self._there.set()

    async def executed(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Run `act` at the next cut, and return its result or raise its error. Raises `EngineEnded` if `act` did not
        run, `WorldError` if the engine ended meanwhile: the next start shows the outcome.
        """
        command = Command(act, asyncio.get_running_loop().create_future())
        if self._lifecycle.over:
            command.refuse()
        else:
            self._commands.append(command)
            self._there.set()
        return await command.reply

    async def get(self, most: int) -> Command | list[ClosedTick]:
        """Return a command, or the ticks that wait: at most `most`, unless one `put` brought more (none: no more come).
        After a command, waiting ticks come first. A cancelled call takes nothing.
        """
        await self._until(lambda: self._ticks or self._commands)
        behind = self._commanded and self._ticks and self._ticks[0]
        if not behind and (command := self.command()) is not None:
            self._commanded = True
            return command
        self._commanded = False
        ticks = self._taken()
        while self._ticks and _join(ticks, self._ticks[0], most):
            ticks = ticks + self._taken()
        return ticks

    def back(self, ticks: list[ClosedTick]) -> None:
        self._ticks.appendleft(ticks)
        self._returned += 1
        self._there.set()

    async def commanded(self) -> None:
        await self._until(lambda: self._commands)

    async def _until(self, there: Callable[[], object]) -> None:
        while not there():
            self._there.clear()
            await self._there.wait()

    def command(self) -> Command | None:
        if not self._commands:
            return None
        self._left = max(0, self._left - 1)
        return self._commands.popleft()

    def drop_ticks(self) -> None:
        """Drop the ticks and keep the commands; the source is read again for the ticks."""
        while self._ticks:
            self._taken()
        self._left = len(self._commands)

    async def command_first(self) -> bool:
        """Return whether a command runs before the dropped ticks are read again; several share one reading."""
        for _ in range(2):  # a sender of several messages has sent the next one by then
            await asyncio.sleep(0)
        first = self._left > 0 or (bool(self._commands) and self._together < TOGETHER)
        self._together = self._together + 1 if first else 0
        return first

    def close(self) -> None:
        self.drop_ticks()
        while self._commands:
            self._commands.popleft().refuse()

    def _taken(self) -> list[ClosedTick]:
        if self._returned:
            self._returned -= 1  # ticks put back by `back`: their room was released before
        else:
            self._room.release()
        return self._ticks.popleft()


def _join(ticks: list[ClosedTick], more: list[ClosedTick], most: int) -> bool:
    """Return whether one commit may hold both: at most `most` ticks, none of them after a multiple of it."""
    few = 0 < len(more) <= most - len(ticks)
    return bool(ticks) and few and more[0].tick % most != 0
