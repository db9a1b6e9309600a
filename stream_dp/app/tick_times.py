"""When a tick begins, as a time in UTC: for the `start` and the `end` of a series.

Rules: everything here is public: the declared origin of the clock, or what a published release says of its own tick.
A series sees the ticks from `start` on, up to and not including `end`; in time: what lies in [start_time, end_time).
"""

from datetime import datetime

import msgspec

from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.runtime.series import Grid
from stream_dp.serve.view import ReleaseLog


class _Ended(msgspec.Struct):
    """Of a release: its tick, and when that ended."""

    tick: int
    end: datetime


class TickTimes:
    """When each tick of a pipeline begins; the origin never changes, so it is looked up once."""

    def __init__(self, spec: PipelineSpec, log: ReleaseLog) -> None:
        self._step = spec.clock.step
        self._origin = spec.clock.start
        self._log = log

    def __call__(self, tick: int) -> str | None:
        """When `tick` begins, in UTC; None for a wall clock that declares no start, before the first release."""
        if self._origin is None:
            self._origin = self._published()
        return None if self._origin is None else begin_text(self._origin, self._step, tick)

    def _published(self) -> int | None:
        """The origin, ms since 1970, as any release tells it."""
        release = next(iter(self._log.latest().values()), None)
        if release is None:
            return None
        ended = msgspec.json.decode(release.body, type=_Ended)
        return round(ended.end.timestamp() * 1000) - (ended.tick + 1) * self._step


def begin_text(origin: int, step: int, tick: int) -> str:
    """When `tick` begins, on the grid from `origin` (ms since 1970) in steps of `step` ms.

    >>> begin_text(0, 60_000, 3)
    '1970-01-01T00:03:00Z'
    """
    return Grid(origin, step, None).end_text(tick - 1)
