"""The windows that a caller asks for: numbers of ticks, and `ever`.

Rules: the single tick is always there, and first; `ever` is last. This file knows no statistic and no noise.
"""

from collections.abc import Iterable
from operator import index
from typing import Any

from stream_dp.errors import UsageError
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.tick_release import Window

_NEEDED = 'windows: a list of numbers of ticks, or "ever", is needed, such as [24, 168, "ever"]'


def windows_from(windows: Iterable[Window], horizon: int | None) -> tuple[Window, ...]:
    """Return what is shown where these are asked, in its order; nothing where none is.

    >>> windows_from(["ever", 168, 24], 8760)
    (1, 168, 24, 'ever')

    Raises
    ------
    UsageError
        What is no window, one twice, one that is longer than the horizon, or too many of them.
    """
    if isinstance(windows, str | int) or not isinstance(windows, Iterable):
        raise UsageError(_NEEDED)
    asked = [_window(each, horizon) for each in windows]
    if len(set(asked)) < len(asked):
        raise UsageError("windows: one is listed twice")
    if len(asked) > blocks.MOST_WINDOWS:
        raise UsageError(
            f"windows: {len(asked)} are asked, and one forest answers at most {blocks.MOST_WINDOWS}"
        )
    spans = [each for each in asked if each not in (1, blocks.EVER)]
    ever = [each for each in asked if each == blocks.EVER]
    return (1, *spans, *ever) if asked else ()


def _window(value: Any, horizon: int | None) -> Window:
    if isinstance(value, str) and value == blocks.EVER:
        return "ever"
    try:
        ticks = 0 if isinstance(value, bool) else index(value)
    except TypeError:
        ticks = 0
    if ticks < 1:
        raise UsageError(_NEEDED)
    if horizon is not None and ticks > horizon:
        raise UsageError(
            f"windows: {ticks:,} ticks are more than the horizon of {horizon:,}: ask a shorter window, or "
            '"ever" for all ticks so far'
        )
    return ticks
