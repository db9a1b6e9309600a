"""The system's wall clock as the `Clock` port.

Rules: time never runs backwards for the engine. If the clock steps back by up to a second, the returned time stands
still until the clock has caught up; a larger step stops the engine, because ticks already published would come
again. Sleeping happens in short slices, so that a step of the clock is noticed. This file knows no ticks.
"""

import asyncio
import time
from collections.abc import Callable

from stream_dp.errors import FailClosed

_TOLERATED_MS = 1000
_SLICE_MS = 1000


def system_ms() -> int:
    """The machine's wall clock in milliseconds since 1970-01-01T00:00Z; it may run backwards."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """Milliseconds since 1970-01-01T00:00Z, from the function `read`."""

    def __init__(self, read: Callable[[], int] = system_ms) -> None:
        self._read = read
        self._latest = read()

    def now(self) -> int:
        """Return the milliseconds, never less than before; `FailClosed` if the clock steps back by over a second."""
        moment = self._read()
        if moment < self._latest - _TOLERATED_MS:
            raise FailClosed(
                "the system clock ran backwards by more than a second; "
                "check the machine's time synchronisation, then start again"
            )
        self._latest = max(self._latest, moment)
        return self._latest

    async def sleep_until(self, moment: int) -> None:
        await asyncio.sleep(0)
        left = moment - self.now()
        while left > 0:
            await asyncio.sleep(min(left, _SLICE_MS) / 1000)
            left = moment - self.now()
