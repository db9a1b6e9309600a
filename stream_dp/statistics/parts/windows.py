"""The key `windows` of a series: sliding windows at every tick, the single tick first, all from one mechanism.

A window is a duration as the file has it, which is its name in releases, or `ever`: the count, or sum, so far. Rules: a
window is a whole number of ticks and not longer than the horizon. This file knows no statistic.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic_core import InitErrorDetails

from stream_dp.core.wording import how_many
from stream_dp.mechanisms.linear.noisy_forest import ForestShape, best_forest
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import SumsAndEver, WindowsAndEver, ever_share
from stream_dp.mechanisms.serving import Answer, Bands
from stream_dp.records.endpoints import Clock
from stream_dp.records.scalars import DURATION_FORM, duration_text, milliseconds, problem
from stream_dp.statistics.parts.choice import Choice, Setting, tree_counter

EVER, TICK = "ever", "tick"
MOST_WINDOWS = 8

Place: TypeAlias = tuple[str | int, ...]


def _window(value: str) -> str:
    if value != EVER and (_length(value) or 0) <= 0:
        raise ValueError(f"must be a duration such as 1h or 7d, or {EVER}")
    return value


def _some(value: object) -> object:
    if value == []:  # that was written; a default is a tuple
        raise ValueError("names no window: leave it out, or name one such as 1h")
    return value


def _length(value: str) -> int | None:
    """A duration in ms; None for what is none."""
    try:
        return milliseconds(value)
    except ValueError:
        return None


Window: TypeAlias = Annotated[
    str, AfterValidator(_window), WithJsonSchema({"anyOf": [DURATION_FORM, {"const": EVER}]})
]
Windows: TypeAlias = Annotated[
    tuple[Window, ...], BeforeValidator(_some, json_schema_input_type=tuple[Window, ...])
]


def views(declared: Sequence[str]) -> tuple[str, ...]:
    """Return the names of what is shown: the single tick, the windows as declared, the count so far last."""
    spans = [name for name in declared if name != EVER]
    return (TICK, *spans, *([EVER] if EVER in declared else ())) if declared else ()


def windows_words(declared: Sequence[str]) -> str:
    """Return in a few words what is counted over: each tick, each window, so far."""
    spans = [name for name in declared if name != EVER]
    over = f" and over {', '.join(spans)}" if spans else ""
    return f"per tick{over}{', and so far' if EVER in declared else ''}"


def window_choice(
    setting: Setting,
    epsilon: Fraction,
    declared: Sequence[str],
    amounts: tuple[int, int] | None = None,
) -> Choice:
    """Choose one forest for the single tick and all windows, and a counter beside it where `ever` is among them.

    `amounts`: the least and the largest number of units that an event adds; None: events are counted.

    Raises:
        NotDerivable: the longest window of so many keys is more than a state may hold.
    """
    ticks = spans_of(setting, declared)
    share = ever_share(len(ticks)) if EVER in declared else Fraction(0)
    made = _counting if amounts is None else partial(_summing, amounts=amounts)
    what = "count" if amounts is None else "sum"
    why = forest_words(best_forest(ticks), share, what)
    return windowed(made(setting, epsilon, ticks, share), setting, declared, why)


def spans_of(setting: Setting, declared: Sequence[str]) -> tuple[int, ...]:
    """Return the lengths of all windows in ticks, the single tick first; without the count so far."""
    return 1, *(milliseconds(name) // setting.step for name in declared if name != EVER)


def windowed(mechanism: Any, setting: Setting, declared: Sequence[str], why: str) -> Choice:
    """Choose a mechanism that answers these windows: the band of each is the error to expect."""
    names = views(declared)
    bands = [Bands(Answer(mechanism, place), setting.confidence) for place in range(len(names))]
    expected = {
        name: lambda tick, band=band: band(tick, None)
        for name, band in zip(names, bands, strict=True)
    }
    return Choice(mechanism, why, expected[TICK], expected)


def _counting(
    setting: Setting, epsilon: Fraction, ticks: tuple[int, ...], share: Fraction
) -> WindowForest | WindowsAndEver:
    """The mechanism where events are counted; `share` of the epsilon is the count so far's."""
    forest = WindowForest(
        setting.width,
        epsilon * (1 - share),
        setting.neighbors,
        ticks,
        best_forest(ticks),
        setting.ones,
    )
    return WindowsAndEver(forest, tree_counter(setting, epsilon * share)) if share else forest


def _summing(
    setting: Setting,
    epsilon: Fraction,
    ticks: tuple[int, ...],
    share: Fraction,
    amounts: tuple[int, int],
) -> SumForest | SumsAndEver:
    """The mechanism where amounts are added up."""
    rows, neighbors = setting.width, setting.neighbors
    one = epsilon * (1 - share)
    forest = SumForest(rows, one, neighbors, ticks, best_forest(ticks), *amounts, setting.ones)
    if not share:
        return forest
    ever = SumCounter(rows, epsilon * share, neighbors, setting.horizon, *amounts, setting.ones)
    return SumsAndEver(forest, ever)


def forest_words(shape: ForestShape, share: Fraction, what: str, of: str = "epsilon") -> str:
    """Return how the windows are made, and what each level and the value so far cost; `what` is a count or a sum."""
    if shape.height == 1:
        made = "windows add up single ticks"
    else:
        levels = zip(shape.spans, shape.shares, strict=True)
        parts = ", ".join(f"{part} on {what}s of {span} tick(s)" for span, part in levels)
        made = f"windows from a forest, of its {of} {parts}"
    return f"{made}; the {what} so far has {share} of the {of}" if share else made


def window_problems(
    windows: Sequence[str], window: str | None = None, key: str = "windows"
) -> list[InitErrorDetails]:
    """Return what the windows behind `key`, and the one of the key `window`, must not be."""
    problems, seen = [], dict[int | str, str]()
    if window is not None and windows:
        problems.append(problem(("window",), "stands beside windows: name it there instead"))
    for place, name in enumerate(windows):
        length = _length(name) or name
        if length in seen:
            again = "is listed twice" if seen[length] == name else f"is '{seen[length]}' once more"
            problems.append(problem((key, place), f"'{name}' {again}"))
        seen.setdefault(length, name)
    if len(windows) > MOST_WINDOWS:
        why = f"has {len(windows)} windows, and one forest answers at most {MOST_WINDOWS}"
        problems.append(problem((key,), why))
    return problems


def method_problems(declared: Sequence[str], method: str) -> list[InitErrorDetails]:
    """Return that a method is not for the windows that are declared."""
    if not declared or method in ("tree", "auto", "gaussian"):
        return []
    return [problem(("method",), "windows are made by a forest of their own: leave method out")]


def window_lengths(
    clock: Clock, windows: Sequence[str], window: str | None = None, key: str = "windows"
) -> list[InitErrorDetails]:
    """Return which windows of a series are no whole number of the clock's ticks, or longer than its horizon."""
    named: list[tuple[Place, str]] = [((key, place), name) for place, name in enumerate(windows)]
    named += [] if window is None else [(("window",), window)]
    return [
        wrong for at, name in named if name != EVER for wrong in length_problems(at, name, clock)
    ]


def length_problems(at: Place, window: str, clock: Clock) -> list[InitErrorDetails]:
    """Return that a duration, which stands `at` this place, is no window of this clock."""
    length, step, horizon = milliseconds(window), clock.step, clock.horizon
    if length % step:
        why = f"is no whole number of ticks: the clock's step is {duration_text(step)}"
    elif horizon is not None and length > horizon * step:
        why = f"is longer than the horizon: {how_many(horizon, 'tick')} of {duration_text(step)}"
    else:
        return []
    return [problem(at, why)]
