"""A source that returns ticks at a chosen speed, for the demo without a broker."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from stream_dp.engine.ports import NOTHING_BEHIND, Batch, Behinds, Positions, Source
from stream_dp.files.wrapped_source import WrappedSource

PAUSE = 0.1


class Paced(WrappedSource):
    """`source` with at most `ticks_per_second` marks a second."""

    def __init__(self, source: Source, ticks_per_second: float) -> None:
        super().__init__(source)
        self._speed = ticks_per_second
        self._waiting: deque[Batch] = deque()
        self._started = time.monotonic()
        self._marks = 0

    async def seek(self, positions: Positions, behind: Behinds = NOTHING_BEHIND) -> None:
        """Seek in the source and restart the pace."""
        self._waiting.clear()
        self._started, self._marks = time.monotonic(), 0
        await super().seek(positions, behind)

    async def read(self) -> Sequence[Batch]:
        """Return the batches that are due by now, at least one; empty at the end of the source."""
        if not self._waiting:
            self._waiting.extend(await super().read())
        if not self._waiting:
            return []
        await asyncio.sleep(PAUSE)
        due = (time.monotonic() - self._started) * self._speed
        taken = [self._take()]
        while self._waiting and self._marks < due:
            taken.append(self._take())
        return taken

    def _take(self) -> Batch:
        batch = self._waiting.popleft()
        self._marks += batch.mark is not None
        return batch
