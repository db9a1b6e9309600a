"""The time zones by which a pipeline's series group, and their UTC offsets.

Rules: offsets are part of the pipeline's fingerprint, so another version of the time zone database makes another
pipeline. A series created later has no fingerprint, so it may only name zones that the file names (`spec`).
"""

from collections.abc import Iterable
from zoneinfo import ZoneInfo

from stream_dp.core.tick_grid import TickGrid
from stream_dp.records.endpoints import Clock, ReplayClock
from stream_dp.records.groupings import zones_of
from stream_dp.records.zones import offsets
from stream_dp.statistics import Series

_CENTURY = TickGrid(946_684_800_000, 86_400_000, 36_525)  # the days from 2000 to 2099


def zones_in(series: Iterable[Series]) -> list[str]:
    """Return the time zones by which series group, sorted."""
    groupings = (by for one in series for _, by in one.groupings())
    return sorted({zone for by in groupings for zone in zones_of(by)})


def zone_offsets(zones: Iterable[str], clock: Clock) -> dict[str, list[tuple[int, int]]]:
    """Return the UTC offsets of each zone over the declared grid; under a wall clock, over this century."""
    grid = clock.grid if isinstance(clock, ReplayClock) else _CENTURY
    return {name: offsets(ZoneInfo(name), grid) for name in zones}
