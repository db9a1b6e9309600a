"""Requests are answered one after the other, with pauses: the server's share of the loop that the engine runs in.

Rules: each lane of turns takes a share of the engine's time at most, however many requests come; what one request took
is paid for by a pause before the next one begins. A request takes its turn in the order in which they came, and holds
it until its answer begins, at most `LONGEST_S`: who waits for the engine, or streams, holds up nobody. One whose client
is gone takes none. Health has a lane of its own: no reader keeps it waiting.
"""

import asyncio
from collections.abc import Callable

SHARE = 0.2
HEALTH_SHARE = 0.1
LONGEST_S = 0.05
_LONGEST_PAUSE_S = 1.0


def pause_after(took: float, share: float = SHARE) -> float:
    """Return for how many seconds nothing more is done after work of so many, so that it keeps to its share."""
    return min(took * (1 / share - 1), _LONGEST_PAUSE_S)


class Turn:
    """What a request has until its answer begins; `end` may be called again."""

    def __init__(self, done: Callable[[float], None]) -> None:
        """Begin; `done` learns how many seconds it took."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LONGEST_S, self.end)

    def end(self) -> None:
        """Let the next one begin, after a pause."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done(self._loop.time() - self._began)


class Turns:
    """One lane of a server: turns that take `share` of the loop's time together."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._taken = asyncio.Lock()
        self._next = 0.0

    async def take(self, wanted: Callable[[], bool]) -> Turn | None:
        """Wait for a turn; None where it is not `wanted` any more when it comes."""
        await self._taken.acquire()
        try:
            if wanted():
                await asyncio.sleep(self._next - asyncio.get_running_loop().time())
        except asyncio.CancelledError:
            self._taken.release()
            raise
        if not wanted():
            self._taken.release()
            return None
        return Turn(self._give_back)

    def _give_back(self, took: float) -> None:
        self._next = asyncio.get_running_loop().time() + pause_after(took, self._share)
        self._taken.release()
