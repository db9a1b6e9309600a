"""Riding out: when a run tries again after an outage, and when it gives up.

Rules: the wait grows with each attempt. A run gives up after its patience without a durable commit. The number of
attempts that ran is limited too, so that repeated failures end. The final error names the first cause, not its
consequences. An error before the first attempt ran is not an outage: a wrong address is reported at once. This file
knows no engine and no broker.
"""

import time
from collections import deque
from collections.abc import Callable

from stream_dp.errors import Outage, WorldError
from stream_dp.kafka.client.clients import backing_off

RESTARTS, WINDOW_S = 30, 3600.0
"""The number of attempts that may fail after they ran, within a window of seconds."""
STEADY_S = 60.0
"""After this many seconds of running, earlier failures are over, even if there was nothing to commit."""
_LONGEST_WAIT_S = 5.0


class Patience:
    """Rides out `seconds` without a durable commit; with `from_the_start`, also before any attempt ran."""

    def __init__(
        self,
        seconds: float,
        *,
        from_the_start: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._now = now
        self._tried = from_the_start
        self._running: float | None = None
        self._failing: float | None = None
        self._first = ""
        self._waits = backing_off(_LONGEST_WAIT_S)
        self._failed: deque[float] = deque()

    def runs(self) -> None:
        """Note that an attempt has begun to run."""
        self._tried = True
        self._running = self._now()

    def wait(self, error: Outage, advanced: bool) -> float:
        """Return the seconds to wait before the next attempt; `advanced`: the failed attempt made a commit durable.

        Raises:
            Outage: `error`, if no attempt ran yet.
            WorldError: patience or attempts are used up.
        """
        if not self._tried:
            raise error
        now, running = self._now(), self._running
        self._running = None
        got_over = running is not None and (advanced or now - running > STEADY_S)
        if got_over or self._failing is None:
            self._failing, self._first = now, str(error)
            self._waits = backing_off(_LONGEST_WAIT_S)
        if running is not None:
            self._failed.append(now)
        while self._failed and now - self._failed[0] > WINDOW_S:
            self._failed.popleft()
        if now - self._failing > self._seconds:
            raise self._given_up(error, f"nothing could be committed for {self._seconds:g} s")
        if len(self._failed) > RESTARTS:
            raise self._given_up(error, f"it failed {RESTARTS} times within an hour")
        return next(self._waits)

    def _given_up(self, error: Outage, why: str) -> WorldError:
        began = "" if str(error) == self._first else f"; it began with: {self._first}"
        return WorldError(
            f"{error}. Given up after trying again, for {why}{began}. What was published stays valid, a new start goes "
            "on there"
        )
