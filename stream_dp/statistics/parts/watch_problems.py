"""What a monitor and its watches must not say together: too many for one event, too few places, levels that are none.

Rules: what is public alone decides, before anything runs. A series may be a sketch of a broken one where it says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pydantic_core import InitErrorDetails

from stream_dp.mechanisms.watches.monitor_state import MOST_HELD
from stream_dp.records.conditions import tests_of
from stream_dp.records.groupings import most_ones, number_of_keys
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.alarms import adds_both_signs, level_problems, sign_problems
from stream_dp.statistics.parts.overlaps import Overlap, Selection, deepest
from stream_dp.statistics.parts.series_spec import Place, SeriesPart
from stream_dp.statistics.parts.watch_spec import WatchSpec

MOST_PLACES = 10**6
_SHOWN = 5  # names of watches in one message


def levels_problems(at: Place, series: Any) -> Iterator[InitErrorDetails]:
    """Return what is wrong with the thresholds of the watches of a series, or of a sketch of one."""
    signed, step = adds_both_signs(series), getattr(series, "step", None)
    for place, one in enumerate(getattr(series, "watch", ())):
        yield from threshold_problems((*at, "watch", place), one, step, signed=signed)


def threshold_problems(
    at: Place, one: Any, step: Fraction | None, *, signed: bool
) -> list[InitErrorDetails]:
    """Return what is wrong with the thresholds of a watch, or of a sketch of one."""
    found = sign_problems(at, one.usual, signed=signed)
    if one.above is None or one.above > 0:  # else the key itself refuses it
        found += level_problems((*at, "above"), one.above, below=False, step=step, signed=signed)
    found += level_problems((*at, "below"), one.below, below=True, step=step, signed=signed)
    return found


def overlap(series: Any, watches: Sequence[SeriesPart], fields: Mapping[str, Any]) -> Overlap:
    """Return in how many entries one event can count at once, and the watches whose filters allow it."""
    return deepest([selection(series, one, fields) for one in watches], fields)


def selection(series: Any, one: SeriesPart, fields: Mapping[str, Any]) -> Selection:
    """Return what a watch of the series selects."""
    where = tests_of(fields, (*series.where, *one.where))
    return Selection(one.name, most_ones(fields, one.by), where)


def touch_problems(at: Place, series: Any, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
    """Return what is wrong where one event may count in more watches than `touch`."""
    if series.touch is None:
        return []
    found = overlap(series, series.watch, fields)
    if found.number <= series.touch:
        return []
    why = f"is {series.touch}, but {_deep(found)}, or raise it to {found.number}"
    return [problem((*at, "touch"), why)]


def beyond(found: Overlap, touch: int) -> str:
    """Return why a watch does not go with those that there are, in words."""
    return (
        f"{_deep(found)}; the noise of this monitor is made for {touch} (touch): for more create another, with a "
        "larger touch"
    )


def _deep(found: Overlap) -> str:
    names = ", ".join(found.names[:_SHOWN]) + (", ..." if len(found.names) > _SHOWN else "")
    return (
        f"one event may count {found.number} times at once, in {names}: give these filters that no event passes "
        "together"
    )


def held_problems(
    watches: Sequence[WatchSpec], fields: Mapping[str, Any], step: int
) -> list[InitErrorDetails]:
    """Return what is wrong where the windows of these watches, the last of them a new one, are too many rows."""
    terms = [
        each.terms(number_of_keys(fields, each.by), step) for each in watches if each.looks_back
    ]
    held = sum(each.window * each.places for each in terms)
    if not watches[-1].looks_back or held <= MOST_HELD:
        return []
    why = f"the windows of these watches would hold {held:,} numbers, more than {MOST_HELD:,}: name a shorter one"
    return [problem(("over",), why)]


def room_problems(at: Place, series: Any, fields: Mapping[str, Any]) -> list[InitErrorDetails]:
    """Return what is wrong where the watches need more places than there are."""
    needed = sum(number_of_keys(fields, one.by) for one in series.watch)
    room = MOST_PLACES if series.most is None else series.most
    if needed <= room:
        return []
    why = f"these watches need {needed} places, one for each value of their fields, and there are {room}"
    return [problem((*at, "watch" if series.most is None else "most"), why)]
