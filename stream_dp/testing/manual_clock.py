"""A clock that a test sets by hand.

Rules: only `advance` moves time, and never backwards. It wakes sleepers in the order of their moments. For one event
loop.
"""

import asyncio
from itertools import count


class ManualClock:
    """The `Clock` port; starts at `now` (ms since 1970).

    >>> clock = ManualClock(1_000)
    >>> clock.advance(500)
    >>> clock.now()
    1500
    """

    def __init__(self, now: int = 0) -> None:
        self._now = now
        self._numbers = count()
        self._sleepers: dict[tuple[int, int], asyncio.Event] = {}

    def now(self) -> int:
        return self._now

    @property
    def sleepers(self) -> tuple[int, ...]:
        """The moments until which tasks sleep, earliest first."""
        return tuple(moment for moment, _ in sorted(self._sleepers))

    def advance(self, milliseconds: int) -> None:
        if milliseconds < 0:
            raise ValueError("a clock does not run backwards")
        self._now += milliseconds
        for key in sorted(self._sleepers):
            if key[0] <= self._now:
                self._sleepers[key].set()

    async def sleep_until(self, moment: int) -> None:
        """Return once `now() >= moment`; other tasks run at least once."""
        await asyncio.sleep(0)
        key = (moment, next(self._numbers))
        while self._now < moment:
            self._sleepers[key] = asyncio.Event()
            try:
                await self._sleepers[key].wait()
            finally:
                del self._sleepers[key]
