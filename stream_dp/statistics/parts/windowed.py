"""What statistics that count over windows have alike: the keys `window`, `windows` and `every`, and what is shown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.core.wording import how_many
from stream_dp.engine.series import Meaning
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.joint_windows import (
    CorrelatedWindows,
    NestedCounter,
    NestedWindows,
    Views,
    best_decays,
    best_nested,
    usual_nested,
)
from stream_dp.mechanisms.linear.noisy_forest import MOST_HELD, best_forest, mean_variance
from stream_dp.mechanisms.linear.pairs import GaussianAndEver, ever_share
from stream_dp.mechanisms.linear.window_forest import GaussianForest
from stream_dp.records.groupings import By, grouping_text
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import (
    Choice,
    Profile,
    Setting,
    gaussian_counter,
    rho_of_unit,
    shape_words,
)
from stream_dp.statistics.parts.predicted_errors import (
    GAUSSIAN,
    TREE,
    counter_error,
    gaussian_fits,
    least_regret,
    price_words,
    shown,
)
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.windows import (
    EVER,
    Aims,
    Every,
    Over,
    Window,
    Windows,
    every_problems,
    first_end,
    following,
    forest_words,
    length_of,
    spans_of,
    views,
    window_choice,
    window_lengths,
    window_problems,
    windowed,
    windows_words,
)

PHASES = 64  # places where a window may begin that stand for all
CORRELATED, NESTED = "correlated", "nested"
LONGEST_SPAN = 4_000  # ticks of a highest node, whose noises are drawn together


def choose_windows(
    setting: Setting,
    epsilon: Fraction,
    declared: Sequence[str],
    method: str,
    aims: Aims = None,
) -> Choice:
    """Choose what `method` names: one noise for all windows (`correlated`, Gaussian; `nested`, pure), a forest with
    Gaussian noise or with Laplace noise (`tree`), or the better forest (`auto`).

    `auto` had its meaning before there was one noise for all windows, and journals hold series that left the method
    out: so it never chooses that, and the reason names the bands that it would have where they are narrower. What
    `auto` compares is the typical error (RMSE, over where a window may begin) of each window, by the geometric mean
    over all of them, which the forests' shapes are chosen by too. Raises NotDerivable for Gaussian noise where no delta
    is granted, or a forest of it where the filter adds up Gaussian DP, and where a state may not hold the longest
    window of all keys.
    """
    own = setting, epsilon, declared
    if method == NESTED:
        return nested_windows(*own, aims)
    if method == CORRELATED:
        return correlated_windows(*own)
    if method == GAUSSIAN:
        return _beside(CORRELATED, gaussian_windows(*own), *own)
    laplace = window_choice(*own)
    if method == TREE or not gaussian_fits(setting):
        return _beside(NESTED, laplace, *own)
    if setting.gdp:
        return _beside(CORRELATED, laplace, *own)
    forms = {GAUSSIAN: gaussian_windows(*own), TREE: laplace}
    errors = {form: typical_errors(choice.mechanism, setting) for form, choice in forms.items()}
    means = {form: (math.prod(own) ** (1 / len(own)),) for form, own in errors.items()}
    form = least_regret(means, (GAUSSIAN,))
    names = " / ".join(views(declared))
    price = price_words(setting, epsilon, form, means[form] == min(means.values()))
    why = f"method: auto, typical error (RMSE) of {names}: {shown(errors)}{price}"
    return _beside(CORRELATED, forms[form].saying(why), *own)


def correlated_windows(setting: Setting, epsilon: Fraction, declared: Sequence[str]) -> Choice:
    """Choose one Gaussian counter whose answers all windows, and the count so far, are differences of."""
    ticks, ever = spans_of(setting, declared), EVER in declared
    decays = best_decays(ticks, ever, setting.horizon)
    counter = replace(gaussian_counter(setting, epsilon, CORRELATED), decays=decays)
    mechanism = CorrelatedWindows(counter, ticks, ever)
    names = " / ".join(views(declared))
    buffers = how_many(len(decays.halvings), "buffer")
    why = f"method: correlated, the same noise for {names}, correlated by {buffers}{shape_words(setting)}"
    return windowed(mechanism, setting, views(declared), why)


def nested_windows(
    setting: Setting,
    epsilon: Fraction,
    declared: Sequence[str],
    aims: Aims = None,
) -> Choice:
    """Choose one pure tree of spans for the single tick, all windows and the count so far; `aims` are errors by view,
    in proportion to which the largest is least.
    """
    ticks, ever = spans_of(setting, declared), EVER in declared
    room = MOST_HELD // setting.width - max(ticks)
    most = max(1, min(LONGEST_SPAN, room))
    last = max(setting.last + 1, max(ticks))
    aimed = tuple(float(aims.get(view, math.inf)) for view in views(declared)) if aims else ()
    if aims or setting.meaning >= Meaning.SUM_OF_ERRORS:
        shape = best_nested(ticks, ever, last, most, aimed)
    else:
        shape = usual_nested(ticks, ever, last, most)
    counter = NestedCounter(setting.width, epsilon, setting.neighbors, shape, setting.ones)
    levels = zip(shape.spans, shape.shares, strict=True)
    parts = ", ".join(f"{share} on spans of {how_many(span, 'tick')}" for span, share in levels)
    names = " / ".join(views(declared))
    why = f"method: nested, the same noise for {names}, with these parts of its epsilon: {parts}"
    if aims:
        errors = Views(ticks, ever, last).errors(shape.arities, shape.shares)
        typical = " / ".join(
            f"{error / float(counter.unit_epsilon):,.3g}" for error in np.sqrt(errors)
        )
        why += f"; typical errors (RMSE) {typical}, in proportion to the aims"
    return windowed(NestedWindows(counter, ticks, ever), setting, views(declared), why)


def _beside(
    method: str, choice: Choice, setting: Setting, epsilon: Fraction, declared: Sequence[str]
) -> Choice:
    """Return the choice saying which bands one noise by this method would have, where they are narrower at the end.

    They are compared by their geometric mean. Nothing is said where no advice is asked, for the search takes a while.
    """
    if not setting.advise:
        return choice
    try:
        other = _ONE_NOISE[method](setting, epsilon, declared)
        bands = [
            [max(1.0, band(setting.last)) for band in each.windows.values()]
            for each in (other, choice)
        ]
    except NotDerivable:  # no room for so much noise, or so many keys
        return choice
    if math.prod(bands[0]) >= math.prod(bands[1]):
        return choice
    new, old = (" / ".join(f"{band:,.0f}" for band in each) for each in bands)
    return choice.saying(f"with method: {method}, the bands would be {new} instead of {old}")


_ONE_NOISE = {CORRELATED: correlated_windows, NESTED: nested_windows}


def gaussian_windows(setting: Setting, epsilon: Fraction, declared: Sequence[str]) -> Choice:
    if setting.gdp:
        raise NotDerivable(
            "method gaussian over windows has a zCDP guarantee, which filter gdp cannot add up: "
            "use filter zcdp, or method correlated"
        )
    rho = rho_of_unit(setting, epsilon, "method gaussian")
    ticks = spans_of(setting, declared)
    share = ever_share(len(ticks)) if EVER in declared else Fraction(0)
    shape = best_forest(ticks, power=1)
    rows, neighbors, ones = setting.width, setting.neighbors, setting.ones
    users = setting.shape
    forest = GaussianForest(rows, rho * (1 - share), neighbors, ticks, shape, ones, users)
    mechanism: GaussianForest | GaussianAndEver = forest
    if share:
        ever = GaussianCounter(rows, rho * share, neighbors, setting.horizon, ones, shape=users)
        mechanism = GaussianAndEver(forest, ever)
    why = f"method: gaussian, {forest_words(shape, share, 'count', 'rho')}{shape_words(setting)}"
    return windowed(mechanism, setting, views(declared), why)


def typical_errors(mechanism: Any, setting: Setting) -> tuple[float, ...]:
    forest, ever = mechanism.forest, mechanism.ever
    nodes = [float(variance) for variance in forest.node_variances]
    errors = tuple(
        math.sqrt(mean_variance(forest.shape.arities, nodes, window, PHASES))
        for window in forest.windows
    )
    if ever is None:
        return errors
    return (*errors, counter_error(ever, setting, Profile.of(setting.width, setting.last + 1)))


ENDING = "10m", "1h", "6h", "1d", "7d", "28d", "91d"
"""Windows that end, the shortest first, which `check` tries in place of others."""


def ended(every: Sequence[str], there: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield longer windows that end: the line that asks for them in place of keys that are `there`, and the length."""
    gone = " and ".join(key for key, given in there.items() if given)
    for name in ENDING:
        if not every or length_of(name) > length_of(every[0]):
            yield f"every: {name}{gone and f' instead of {gone}'}", name


class WindowedSeries(SeriesSpec):
    """A statistic that may be released over sliding windows, at every tick, or in each of the windows that follow one
    another, when it has ended, instead of so far.
    """

    later: ClassVar[tuple[str, ...]] = ("every", "running", "window", "windows")

    window: Window | None = None
    windows: Windows = ()
    every: Every = ()
    running: bool = False

    @property
    def spans(self) -> Over:
        return Over(self.declared, self.every, self.running)

    @property
    def declared(self) -> tuple[str, ...]:
        return self.windows if self.window is None else (self.window,)

    @property
    def views(self) -> tuple[str, ...]:
        return self.every or views(self.declared)

    @property
    def over(self) -> str:
        if self.every:
            return self.spans.words
        return windows_words(self.declared) if self.declared else "so far"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"told": self.spans.told} if self.every else {}

    def first_told(self, place: int, step: int) -> int:
        return 0 if self.running else first_end(self.every, place, step)

    def covered(self, window: str, tick: int, step: int) -> range:
        if window in self.every:
            return following(window, tick, step, running=self.running)
        return super().covered(window, tick, step)

    def true_numbers(self, totals: IntArray) -> Sequence[Any]:
        return self.shown_totals(totals)

    def variants(self) -> Iterator[tuple[str, Self]]:
        """Yield it in windows that end, and with noise that goes by squares."""
        alone = {"windows": (), "window": None, "running": False}
        method = {"method": "auto"} if "method" in type(self).model_fields else {}
        method_given = getattr(self, "method", "auto") not in ("tree", "auto")
        there = {"windows": self.declared, "running": self.running, "method": method_given}
        for line, name in ended(self.every, there):
            yield line, self.model_copy(update={**alone, **method, "every": (name,)})
        if method and not self.every:
            yield "method: gaussian", self.model_copy(update={"method": "gaussian"})

    def own_problems(self) -> list[InitErrorDetails]:
        every = every_problems(self.every, self.windows, self.window, running=self.running)
        method = getattr(self, "method", "auto")
        if method in (CORRELATED, NESTED) and not self.views:
            so_far = "gaussian" if method == CORRELATED else "tree"
            why = f"{method} is one noise for several windows: name windows, or method {so_far} for the count so far"
            every.append(problem(("method",), why))
        if self.every and method not in ("tree", "auto"):
            why = "tumbling windows have their own noise: leave method out"
            every.append(problem(("method",), why))
        return [*super().own_problems(), *window_problems(self.windows, self.window), *every]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return [
            *super().problems(rest),
            *window_lengths(rest.clock, self.windows, self.window),
            *window_lengths(rest.clock, self.every, key="every"),
        ]

    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        if self.views:  # the totals of a run are those of no window
            return None
        numbers = self.shown_totals(totals)
        if self.grouped_by is None:
            return numbers[0]
        return dict(zip(self.entries(keys), numbers, strict=True))

    def shown_totals(self, totals: IntArray) -> list[Any]:
        numbers: list[Any] = totals.tolist()
        return numbers


class OneNoise(WindowedSeries):
    """A windowed statistic that may have one noise for all its windows, made for errors that are aimed at."""

    later = ("aims", *WindowedSeries.later)

    aims: Aims = None

    def own_problems(self) -> list[InitErrorDetails]:
        problems = super().own_problems()
        shown = views(self.declared)
        for name in self.aims or ():
            if getattr(self, "method", "auto") != NESTED:
                why = "aims are for method: nested, whose shape is made for them"
                return [*problems, problem(("aims",), why)]
            if name not in shown:
                why = f"is no view of this series: name {', '.join(shown)}"
                problems.append(problem(("aims", name), why, shown))
        return problems


class SingleOrKeyed(WindowedSeries):
    """A windowed statistic of all records, or by what it goes by where it goes by anything."""

    by: By | None = None

    @property
    def by_and_over(self) -> str:
        return f" by {grouping_text(self.by)} {self.over}" if self.keyed else f" {self.over}"

    @property
    def form(self) -> Shape:
        return Shape.HISTOGRAM if self.keyed and not self.views else super().form

    @property
    def keyed(self) -> bool:
        return self.by is not None
