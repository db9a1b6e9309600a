"""The tick grid: which moment lies in which tick, and when a tick begins and ends. All arithmetic on ticks is here.

Rules: moments and steps are whole milliseconds, moments since 1970 in UTC, and the arithmetic is exact. A tick
contains its start but not its end. The grid is public and declared: it never depends on a record.
"""

from dataclasses import dataclass

from stream_dp.core.moments import moment_text


@dataclass(frozen=True, slots=True)
class TickGrid:
    """Tick k is [origin + k*step, origin + (k+1)*step) in ms; `horizon` ticks, or endless where it is None.

    >>> grid = TickGrid(origin=0, step=60_000, horizon=3)
    >>> grid.tick_of(59_999), grid.tick_of(60_000), grid.end_text(0), 3 in grid
    (0, 1, '1970-01-01T00:01:00Z', False)

    Raises:
        ValueError: a step below 1 ms, or a horizon below 1 tick.
    """

    origin: int
    step: int
    horizon: int | None = None

    def __post_init__(self) -> None:
        if self.step < 1 or (self.horizon is not None and self.horizon < 1):
            raise ValueError("a tick grid needs a step of 1 ms or more, and 1 tick or more")

    @classmethod
    def ending(cls, tick: int, end: int, step: int, horizon: int | None = None) -> "TickGrid":
        """Return the grid on which `tick` ends at the moment `end`."""
        return cls(end - (tick + 1) * step, step, horizon)

    def tick_of(self, moment: int) -> int:
        """Return the tick that contains a moment; it may be negative or beyond the horizon."""
        return (moment - self.origin) // self.step

    def find(self, moment: int) -> int | None:
        """Return the tick that contains a moment; None outside of the grid."""
        tick = (moment - self.origin) // self.step
        return tick if tick >= 0 and (self.horizon is None or tick < self.horizon) else None

    def passed(self, moment: int) -> int:
        """Return the last tick that is over at a moment; negative where no tick is over."""
        return self.tick_of(moment) - 1

    def start(self, tick: int) -> int:
        """Return the first moment of a tick."""
        return self.origin + tick * self.step

    def end(self, tick: int) -> int:
        """Return the first moment after a tick."""
        return self.origin + (tick + 1) * self.step

    def start_text(self, tick: int) -> str:
        """Return the start of a tick as an ISO 8601 time in UTC."""
        return moment_text(self.start(tick))

    def end_text(self, tick: int) -> str:
        """Return the end of a tick as an ISO 8601 time in UTC."""
        return moment_text(self.end(tick))

    def __contains__(self, tick: int) -> bool:
        """Say whether a tick lies on the grid: 0 or later, and before the horizon."""
        return tick >= 0 and (self.horizon is None or tick < self.horizon)
