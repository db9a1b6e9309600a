"""The keys `windows` and `every` of a series: sliding windows at every tick, and windows that follow one another.

A window is a duration as the file has it, which is its name in releases, or `ever`: the count, or sum, so far. Rules: a
window is a whole number of ticks and not longer than the horizon. This file knows no statistic.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import InitErrorDetails

from stream_dp.core.wording import how_many
from stream_dp.mechanisms.linear.counter import SumCounter
from stream_dp.mechanisms.linear.ended_windows import EndedCounts, EndedSums, RunningWindows
from stream_dp.mechanisms.linear.noisy_forest import ForestShape, best_forest
from stream_dp.mechanisms.linear.pairs import (
    SharedSums,
    SumsAndEver,
    TotalSums,
    UserSums,
    WindowsAndEver,
    ever_share,
)
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.serving import Answer, Bands
from stream_dp.records.endpoints import Clock
from stream_dp.records.groupings import Place, decimal_text
from stream_dp.records.scalars import (
    DURATION_FORM,
    Named,
    duration_text,
    milliseconds,
    must,
    problem,
)
from stream_dp.statistics.parts.choice import Choice, Setting, steady, tree_counter

EVER, TICK = "ever", "tick"
MOST_WINDOWS = 8
ONCE = "each window gets noise once, at its end"
ANEW = "a tree counter that starts at zero with each window"
WHEN_ENDED = "when a window ends"
SINCE_BEGUN = "since a window began"


def length_of(window: object) -> int:
    """Return how long a window is, in ms; 0 where it is no duration."""
    try:
        return milliseconds(window)
    except ValueError:
        return 0


def _some(value: object) -> object:
    if value == []:  # that was written; a default is a tuple
        raise ValueError("has no window: leave the key out, or name a window such as 1h")
    return value


Window: TypeAlias = Annotated[
    str,
    must(
        lambda name: name == EVER or length_of(name) > 0,
        f"must be a duration such as 1h or 7d, or {EVER}",
    ),
    WithJsonSchema({"anyOf": [DURATION_FORM, {"const": EVER}]}),
]
Windows: TypeAlias = Annotated[
    tuple[Window, ...], BeforeValidator(_some, json_schema_input_type=tuple[Window, ...])
]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Every: TypeAlias = Annotated[
    Windows, BeforeValidator(_listed, json_schema_input_type=Window | Windows)
]
"""Windows that follow one another, the first from the first tick on; a release has the last one that ended."""


Aims: TypeAlias = (
    Annotated[
        Mapping[str, Annotated[Named, must(lambda aim: aim > 0, "must be greater than 0")]],
        Field(min_length=1),
    ]
    | None
)
"""Errors that are aimed at, by view; only their proportion counts, and a view without one is not looked at."""


def views(declared: Sequence[str]) -> tuple[str, ...]:
    """Return the names of what is shown: the single tick, the windows as declared, the count so far last."""
    spans = [name for name in declared if name != EVER]
    return (TICK, *spans, *([EVER] if EVER in declared else ())) if declared else ()


def windows_words(declared: Sequence[str]) -> str:
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

    `amounts`: the least and the largest number of units that an event adds; None: events are counted. Raises
    NotDerivable where the longest window of so many keys is more than a state may hold.
    """
    ticks = spans_of(setting, declared)
    share = ever_share(len(ticks)) if EVER in declared else Fraction(0)
    mechanism = over_windows(setting, epsilon, ticks, share, amounts)
    what = "count" if amounts is None else "sum"
    words = forest_words(best_forest(ticks), share, what)
    return windowed(mechanism, setting, views(declared), words)


def first_end(every: Sequence[str], place: int, step: int) -> int:
    """Return how many ticks of `step` ms go by before a window of the length at `place` ends; 0 where none ends."""
    return milliseconds(every[place]) // step - 1 if every else 0


def sliding(window: str, tick: int, step: int) -> range:
    """Return the ticks of `step` ms that a window counts at a tick where windows slide, or go on for ever.

    >>> sliding("3h", 9, 3_600_000), sliding("3h", 1, 3_600_000), sliding("tick", 9, 1), sliding("", 9, 1)
    (range(7, 10), range(0, 2), range(9, 10), range(0, 10))
    """
    if window in ("", EVER):
        return range(tick + 1)
    length = 1 if window == TICK else milliseconds(window) // step
    return range(max(0, tick + 1 - length), tick + 1)


def following(window: str, tick: int, step: int, *, running: bool) -> range:
    """Return the ticks that a window counts where one follows the other: of the last that ended, or that is `running`.

    >>> [following("3h", tick, 3_600_000, running=False) for tick in (1, 2, 4)]
    [range(0, 0), range(0, 3), range(0, 3)]
    >>> following("3h", 4, 3_600_000, running=True)
    range(3, 5)
    """
    length = milliseconds(window) // step
    if running:
        return range(tick - tick % length, tick + 1)
    end = (tick + 1) // length * length
    return range(max(0, end - length), end)


class Over(NamedTuple):
    """The windows of a series: `declared` ones slide, those of `every` follow one another; without any it goes on.

    The latter are told when they have ended, or `running`: at every tick, since they began.
    """

    declared: tuple[str, ...] = ()
    every: tuple[str, ...] = ()
    running: bool = False

    @property
    def told(self) -> str:
        return SINCE_BEGUN if self.running else WHEN_ENDED

    @property
    def words(self) -> str:
        """What is said of the windows of `every`."""
        names = ", ".join(self.every)
        return f"since each {names} began" if self.running else f"in each {names}"


def every_choice(
    setting: Setting, epsilon: Fraction, over: Over, amounts: tuple[int, int] | None = None
) -> Choice:
    """Choose what counts events, or adds up `amounts`, in windows that follow one another."""
    lengths = spans_of(setting, over.every)[1:]
    if over.running:
        share = epsilon / len(lengths)
        counters = [_alone(replace(setting, horizon=length), share, amounts) for length in lengths]
        return windowed(RunningWindows(tuple(counters)), setting, over.every, ANEW)
    own = setting.width, epsilon, setting.neighbors, lengths
    mechanism: EndedCounts | EndedSums = (
        EndedCounts(*own, setting.ones)
        if amounts is None
        else EndedSums(*own, *amounts, setting.ones)
    )
    return windowed(mechanism, setting, over.every, ONCE)


def _alone(setting: Setting, epsilon: Fraction, amounts: tuple[int, int] | None) -> Any:
    """Return the counter of one window, of which `horizon` is the length."""
    if amounts is None:
        return tree_counter(setting, epsilon)
    return sum_counter(setting, epsilon, amounts)


def over_windows(
    setting: Setting,
    epsilon: Fraction,
    ticks: tuple[int, ...],
    share: Fraction,
    amounts: tuple[int, int] | None = None,
) -> Any:
    """Return what counts events, or adds up `amounts`, over windows and, with a `share` of the epsilon, so far."""
    paid, ever = epsilon * (1 - share), epsilon * share
    forest = setting.width, paid, setting.neighbors, ticks, best_forest(ticks)
    if amounts is None:
        counts = WindowForest(*forest, setting.ones)
        return WindowsAndEver(counts, tree_counter(setting, ever)) if share else counts
    sums = SumForest(*forest, *amounts, setting.ones)
    return SumsAndEver(sums, sum_counter(setting, ever, amounts)) if share else sums


def amounts_choice(
    setting: Setting,
    epsilon: Fraction,
    over: Over,
    amounts: tuple[int, int],
    step: Fraction,
    what: str,
) -> Choice:
    """Choose what adds up amounts in units of `step`: over windows, in each, or by a tree counter so far."""
    chosen = of_units(setting, epsilon, over, amounts, what)
    changed = decimal_text(chosen.mechanism.rows.l1 * step)
    return chosen.in_steps(step).saying(f"one event changes the numbers by up to {changed} in all")


def totals_choice(
    setting: Setting, epsilon: Fraction, over: Over, most: int, step: Fraction, lowest: int
) -> Choice:
    """Choose what `amounts_choice` does, for amounts of which a user adds at most `most` units: each is an event, of 1
    or of `lowest`, which is 0, or -1 where units may be of both signs.
    """
    chosen = of_units(setting, epsilon / most, over, (lowest, 1), "a sum")
    when = "in each window" if lowest else "in all, over all ticks"
    changed = f"a user changes the numbers by up to {decimal_text(most * step)} {when}"
    return _of_totals(chosen, UserSums, setting, most, step).saying(changed)


def shared_choice(setting: Setting, epsilon: Fraction, over: Over, step: Fraction) -> Choice:
    """Choose what `totals_choice` does, for amounts within the total that a user has for several series."""
    chosen = of_units(setting, epsilon / setting.total, over, (0, 1), "a sum")
    most = decimal_text(setting.total * step)
    of = f" of {setting.total_of}" if setting.total_of else ""
    changed = f"a user changes this series and all other series{of} with shared_total by up to {most} together"
    total = _of_totals(chosen, SharedSums, setting, setting.total, step).saying(changed)
    return replace(total, mechanism=replace(total.mechanism, of=setting.total_of))  # type: ignore[type-var]


def _of_totals(
    chosen: Choice, kind: type[TotalSums], setting: Setting, most: int, step: Fraction
) -> Choice:
    if setting.users is None:
        raise TypeError("a total is always the total of a user")
    made: Any = kind
    mechanism: Any = made(chosen.mechanism, most, setting.users)
    return replace(chosen.in_steps(step), mechanism=mechanism)


def of_units(
    setting: Setting, epsilon: Fraction, over: Over, amounts: tuple[int, int] | None, what: str
) -> Choice:
    """Choose what adds up `amounts`, or counts events, which `what` names: over windows, in each, or so far."""
    if over.every:
        return every_choice(setting, epsilon, over, amounts)
    if over.declared:
        return window_choice(setting, epsilon, over.declared, amounts)
    return steady(_alone(setting, epsilon, amounts), f"{what} is a tree counter", setting)


def sum_counter(setting: Setting, epsilon: Fraction, amounts: tuple[int, int]) -> SumCounter:
    horizon, ones = setting.horizon, setting.ones
    return SumCounter(setting.width, epsilon, setting.neighbors, horizon, *amounts, ones)


def spans_of(setting: Setting, declared: Sequence[str]) -> tuple[int, ...]:
    return 1, *(milliseconds(name) // setting.step for name in declared if name != EVER)


def windowed(mechanism: Any, setting: Setting, names: Sequence[str], why: str) -> Choice:
    """Choose a mechanism that answers windows of these names: the band of each is the error to expect."""

    def band_at(place: int) -> Callable[[int], float]:
        band = Bands.of(Answer(mechanism, place), setting.confidence)
        return lambda tick: band(tick, None)

    expected = {name: band_at(place) for place, name in enumerate(names)}
    return Choice(mechanism, why, expected[names[0]], expected)


def forest_words(shape: ForestShape, share: Fraction, what: str, of: str = "epsilon") -> str:
    """Return how the windows are made, and what each level and the value so far cost; `what` is a count or a sum."""
    if shape.height == 1:
        made = "each window is the sum of its single ticks"
    else:
        levels = zip(shape.spans, shape.shares, strict=True)
        parts = ", ".join(f"{part} on {what}s of {how_many(span, 'tick')}" for span, part in levels)
        made = f"windows from a forest, with these parts of its {of}: {parts}"
    return f"{made}; the {what} so far gets {share} of the {of}" if share else made


def window_problems(
    windows: Sequence[str], window: str | None = None, key: str = "windows"
) -> list[InitErrorDetails]:
    problems, seen = [], dict[int | str, str]()
    if window is not None and windows:
        problems.append(problem(("window",), "cannot stand beside windows: add it there instead"))
    for place, name in enumerate(windows):
        length = length_of(name) or name
        if length in seen:
            again = (
                "is listed twice"
                if seen[length] == name
                else f"is the same length as '{seen[length]}'"
            )
            problems.append(problem((key, place), f"'{name}' {again}"))
        seen.setdefault(length, name)
    if len(windows) > MOST_WINDOWS:
        why = f"has {len(windows)} windows, and one forest answers at most {MOST_WINDOWS}"
        problems.append(problem((key,), why))
    return problems


def every_problems(
    every: Sequence[str],
    windows: Sequence[str] = (),
    window: str | None = None,
    *,
    running: bool = False,
) -> list[InitErrorDetails]:
    problems = window_problems(every, key="every")
    if running and not every:
        slides = [name for name in (*windows, window) if name not in (None, EVER)]
        why = (
            f"needs tumbling windows: write every: [{', '.join(map(str, slides))}] in place of windows"
            if slides
            else "needs a tumbling window: add one, such as every: 24h, or leave it out, because a count so far is "
            "released at every tick anyway"
        )
        problems.append(problem(("running",), why))
    if every and (windows or window is not None):
        key = "windows" if windows else "window"
        why = f"cannot stand beside {key}: every is for tumbling windows, {key} for sliding ones; choose one of the two"
        problems.append(problem(("every",), why))
    ever = "a tumbling window has an end: give a duration such as 24h"
    named = placed_windows(every, key="every")
    return problems + [problem(at, ever) for at, name in named if name == EVER]


def method_problems(declared: Sequence[str], method: str) -> list[InitErrorDetails]:
    if not declared or method not in ("hss", "typical"):
        return []
    return [problem(("method",), "sliding windows have their own noise: leave method out")]


def placed_windows(
    windows: Sequence[str], window: str | None = None, key: str = "windows"
) -> list[tuple[Place, str]]:
    """Return the windows that an entry names, each with its place there."""
    named: list[tuple[Place, str]] = [((key, place), name) for place, name in enumerate(windows)]
    return named if window is None else [*named, (("window",), window)]


def window_lengths(
    clock: Clock, windows: Sequence[str], window: str | None = None, key: str = "windows"
) -> list[InitErrorDetails]:
    named = placed_windows(windows, window, key)
    return [
        wrong for at, name in named if name != EVER for wrong in length_problems(at, name, clock)
    ]


def length_problems(at: Place, window: str, clock: Clock) -> list[InitErrorDetails]:
    length, step, horizon = milliseconds(window), clock.step, clock.horizon
    if length % step:
        why = f"must be a whole number of ticks: the clock's step is {duration_text(step)}"
    elif horizon is not None and length > horizon * step:
        why = f"is longer than the horizon: {how_many(horizon, 'tick')} of {duration_text(step)}"
    else:
        return []
    return [problem(at, why)]
