"""What alerts and watches say of themselves beforehand: their window, and the chance of a false alarm per key and day.

A count that stays at its `usual` level is no reason to fire; the chance that noise makes it fire all the same is a
function of the specification. Rules: a window is a whole number of ticks and not longer than the horizon. This file
knows no statistic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.mechanisms.watch_messages import WatchTerms
from stream_dp.pipeline.amount_units import Clamp, Step, amount_problems
from stream_dp.pipeline.groupings import decimal_text
from stream_dp.pipeline.scalars import milliseconds, problem, valid_or_none
from stream_dp.pipeline.windows import EVER, window_lengths

DAY = 86_400_000  # ms
_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)
_STEP: TypeAdapter[Any] = TypeAdapter(Step)

Place = tuple[str | int, ...]


def daily(step: int) -> int:
    """Return how many ticks of `step` ms begin in a day, at least one."""
    return max(1, -(-DAY // step))


def window_terms(
    threshold: int, places: int, window: int, *, below: bool, rearm: bool
) -> WatchTerms:
    """Return the terms of a watch over so many ticks: a single one has noise of its own, which is less."""
    if window == 1:
        return WatchTerms(threshold, places, True, below, rearm)
    return WatchTerms(threshold, places, below=below, rearm=rearm, window=window)


def usual_count(threshold: int, below: bool, usual: int | None) -> int:
    """Return the level at which a count is no reason to fire: half the threshold, or twice where it fires below it."""
    if usual is not None:
        return usual
    return 2 * threshold if below else threshold // 2


def usual_problems(
    at: Place, threshold: object, below: bool, usual: object
) -> list[InitErrorDetails]:
    """Return what is wrong where the usual count is a reason to fire."""
    if not isinstance(usual, int) or not isinstance(threshold, int):
        return []
    if (usual >= threshold) != below:
        limit = f"{threshold:,} or more" if below else f"less than {threshold:,}"
        return [problem((*at, "usual"), f"must be {limit}: at another count an alarm is not false")]
    return []


def one_window(at: Place, series: Any) -> list[InitErrorDetails]:
    """Return what is wrong with the windows of a series that looks at one."""
    windows = getattr(series, "windows", ())
    found = []
    if len(windows) > 1:
        why = (
            "alerts look at one window: write a series for each, or a monitor with a watch for each"
        )
        found.append(problem((*at, "windows", 1), why))
    named = [((*at, "windows", n), name) for n, name in enumerate(windows)]
    for place, name in [*named, ((*at, "window"), getattr(series, "window", None))]:
        if name == EVER:
            why = "without windows alerts count since the one before: leave it out, or name a duration such as 1h"
            found.append(problem(place, why))
    return found


def amounts_sketched(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be read of a broken entry's clamp and step."""
    return {
        "clamp": valid_or_none(_CLAMP, value.get("clamp")),
        "step": valid_or_none(_STEP, value.get("step", "1")),
        "threshold": _whole(value.get("threshold")),
    }


def sum_problems(
    at: Place, series: Any, fields: Mapping[str, Any] | None
) -> list[InitErrorDetails]:
    """Return what is wrong where alerts look at a sum, or say of one what belongs to none."""
    of, clamp = getattr(series, "of", None), getattr(series, "clamp", None)
    threshold, step = getattr(series, "threshold", None), getattr(series, "step", None)
    if of is None:
        keys = [
            key for key, is_there in (("clamp", clamp is not None), ("step", step != 1)) if is_there
        ]
        return [problem((*at, key), "is of a sum: name its field with of") for key in keys]
    found = []
    if clamp is None:
        why = "needs a clamp, such as clamp: [0, 240]: it says how much one event can add"
        found.append(problem((*at, "of"), why))
    if (
        isinstance(step, Fraction)
        and isinstance(threshold, int)
        and (threshold / step).denominator != 1
    ):
        why = f"is no whole number of steps of {decimal_text(step)}"
        found.append(problem((*at, "threshold"), why))
    return found if fields is None else [*found, *amount_problems(at, series, fields)]


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def over_problems(at: Place, watch: Any, clock: Any) -> list[InitErrorDetails]:
    """Return whether a watch looks at a window that is no whole number of ticks, or longer than the horizon."""
    over = getattr(watch, "over", None)
    if not isinstance(over, str) or not is_window(over):
        return []
    wrong = window_lengths((), _Window(over), clock)
    return [{**each, "loc": (*at, "over")} for each in wrong]


def is_window(over: str | None) -> bool:
    """Say whether a watch looks at a window of this name."""
    try:
        return over is not None and milliseconds(over) > 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Window:
    """A watch's window, as a series has it."""

    window: str
