"""Time zones by their IANA names, as the database of this machine (or the package tzdata) knows them.

Rules: a zone is declared, never taken from a record or from the machine's own setting. What a local time means is
settled by the database, so the offsets of the declared range belong to the pipeline: `offsets` is in its fingerprint,
and a database that says something else there makes another pipeline, not another count.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, TypeAlias
from zoneinfo import available_timezones

from pydantic import AfterValidator

from stream_dp.core.moments import EPOCH
from stream_dp.core.near_names import meant
from stream_dp.core.tick_grid import TickGrid

_OF_THE_MACHINE = "localtime"
_DAY = timedelta(days=1)
_MOST_DAYS = 200_000
"""How far a range is looked through; later a zone repeats the rule that it has by then."""


def _known(name: str) -> str:
    names = available_timezones() - {_OF_THE_MACHINE}
    if name in names:
        return name
    if not names:
        raise ValueError("needs a time zone database, and there is none: pip install tzdata")
    near = meant(name, sorted(names)) or ", such as Europe/Paris or UTC"
    raise ValueError(f"must be the IANA name of a time zone{near}")


ZoneName: TypeAlias = Annotated[str, AfterValidator(_known)]


def offsets(zone: tzinfo, grid: TickGrid) -> list[tuple[int, int]]:
    """Return the offsets that local times of the grid may have: (moment, offset) at each change, both in seconds.

    The first entry is two days before the grid, and the last change at most two days after it, for no offset is longer.

    Raises:
        ValueError: the grid has no horizon.
    """
    if grid.horizon is None:
        raise ValueError("a zone needs a grid with a horizon")
    begin, end = _clipped(grid.origin), _clipped(grid.end(grid.horizon - 1))
    at, before = begin, _offset(zone, begin)
    found = [(_seconds(at), before)]
    for _ in range(_MOST_DAYS):
        if at > end:
            break
        then = at + _DAY
        if _offset(zone, then) != before:
            change = _change(zone, at, then)
            before = _offset(zone, then)
            found.append((_seconds(change), before))
        at = then
    return found


def _clipped(moment: int) -> datetime:
    """A moment as a time in UTC that has room for a zone and for two days on either side."""
    days = min(max(moment // 86_400_000 - 2, -719_000), 2_932_000)
    return EPOCH + timedelta(days=days)


def _change(zone: tzinfo, low: datetime, high: datetime) -> datetime:
    """The first second after `low`, and not after `high`, with the offset of `high`."""
    final = _offset(zone, high)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        low, high = (low, middle) if _offset(zone, middle) == final else (middle, high)
    return high


def _offset(zone: tzinfo, moment: datetime) -> int:
    """The zone's offset at a moment, in seconds."""
    local = moment.astimezone(zone)
    return round((local.replace(tzinfo=UTC) - moment).total_seconds())


def _seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)
