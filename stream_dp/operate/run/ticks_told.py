"""Telling of each tick once it is public: its number, and nothing of what it took.

Rules: it begins with the newest one that is public when the engine runs. Where many ticks are published within a
moment, only the newest of them is told.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stream_dp.operate.observe.lifecycle_log import TellEvent
from stream_dp.operate.run.running import Run

_MOMENT_S = 0.1
_LOOK_S = 60.0


@asynccontextmanager
async def ticks_told(run: Run, tell: TellEvent) -> AsyncIterator[None]:
    """Tell of ticks while the context is open; at its end also of the last one."""
    told = _Told(run, tell)
    telling = asyncio.create_task(told.go_on())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait({telling})
        told.look()
    if not telling.cancelled():
        telling.result()


class _Told:
    """Up to which tick was told."""

    def __init__(self, run: Run, tell: TellEvent) -> None:
        self._run, self._tell = run, tell
        self._ticks = 0

    async def go_on(self) -> None:
        """Tell of ticks, from the time on when the engine runs."""
        await self._run.ready.wait()
        while True:
            self.look()
            seen = self._run.log.last_sequence
            await asyncio.sleep(_MOMENT_S)
            await self._run.log.wait_beyond(seen, _LOOK_S)

    def look(self) -> None:
        """Tell of the newest tick, if it was not told."""
        if self._run.ready.is_set() and self._run.ticks > self._ticks:
            self._ticks = self._run.ticks
            self._tell("tick published", tick=self._ticks - 1)
