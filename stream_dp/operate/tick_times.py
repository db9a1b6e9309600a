"""The begin of a tick as a time in UTC: for the `start` and the `end` of a series.

Rules: everything here is public: the declared origin of the clock, or the end time in a published release.
A series covers the ticks from `start` on, up to and not including `end`; in time: [start_time, end_time).
"""

from stream_dp.core.tick_grid import TickGrid
from stream_dp.journal.release import read_head
from stream_dp.pipeline.file.spec import PipelineSpec
from stream_dp.server.view import ReleaseLog


class TickTimes:
    """When each tick of a pipeline begins; the origin never changes, so it is looked up once."""

    def __init__(self, spec: PipelineSpec, log: ReleaseLog) -> None:
        self._step = spec.clock.step
        self._grid = None if spec.clock.start is None else TickGrid(spec.clock.start, self._step)
        self._log = log

    def __call__(self, tick: int) -> str | None:
        """Return when `tick` begins, in UTC; None if a wall clock declares no start and there is no release yet."""
        if self._grid is None:
            self._grid = self._published()
        return None if self._grid is None else self._grid.start_text(tick)

    def _published(self) -> TickGrid | None:
        """Return the grid that follows from any published release, or None."""
        release = next(iter(self._log.latest().values()), None)
        if release is None:
            return None
        return TickGrid.ending(release.tick, read_head(release.body).end_ms, self._step)
