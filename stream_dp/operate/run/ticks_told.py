"""Reports each tick once it is public: its number only.

Rules: reports begin with the newest public tick when the engine runs. If many ticks are published within a moment,
only the newest of them is reported.
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
    """Report ticks while the context is open, and the last one at its end."""
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
    """The newest reported tick."""

    def __init__(self, run: Run, tell: TellEvent) -> None:
        self._run, self._tell = run, tell
        self._ticks = 0

    async def go_on(self) -> None:
        """Report ticks from the time on when the engine runs."""
        await self._run.ready.wait()
        while True:
            self.look()
            seen = self._run.log.last_sequence
            await asyncio.sleep(_MOMENT_S)
            await self._run.log.wait_beyond(seen, _LOOK_S)

    def look(self) -> None:
        """Report the newest tick unless it was reported before."""
        if self._run.ready.is_set() and self._run.ticks > self._ticks:
            self._ticks = self._run.ticks
            self._tell("tick published", tick=self._ticks - 1)
