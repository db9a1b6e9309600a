"""Requests take turns with pauses: the server's share of the event loop in which the engine runs.

Rules: each lane of turns takes at most a share of the event loop's time, however many requests come: after each
request there is a pause in proportion to its duration. Requests get turns in their order of arrival. A request
holds its turn until its answer begins, at most `LONGEST_S`, so a request that waits for the engine, or streams,
delays no other. A request whose client is gone gets no turn. Health has a lane of its own: no reader delays it.
"""

import asyncio
from collections.abc import Callable

SHARE = 0.2
HEALTH_SHARE = 0.1
LONGEST_S = 0.05
_LONGEST_PAUSE_S = 1.0


def pause_after(took: float, share: float = SHARE) -> float:
    """Return the pause in seconds after work of `took` seconds that keeps the work within its share."""
    return min(took * (1 / share - 1), _LONGEST_PAUSE_S)


class Turn:
    """A request's turn, which lasts until its answer begins; `end` may be called again."""

    def __init__(self, done: Callable[[float], None]) -> None:
        """Begin; `done` receives the duration in seconds."""
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LONGEST_S, self.end)

    def end(self) -> None:
        """Let the next turn begin, after a pause."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done(self._loop.time() - self._began)


class Turns:
    """One lane of a server: turns that together take `share` of the loop's time."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._taken = asyncio.Lock()
        self._next = 0.0

    async def take(self, wanted: Callable[[], bool]) -> Turn | None:
        """Wait for a turn; return None if it is no longer `wanted` when it comes."""
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
