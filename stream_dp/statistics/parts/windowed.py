"""What statistics that count over windows have alike: the keys `window`, `windows` and `every`, and what is shown."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.errors import NotDerivable
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.noisy_forest import best_forest, mean_variance
from stream_dp.mechanisms.linear.window_forest import GaussianForest
from stream_dp.mechanisms.linear.windows_and_ever import GaussianAndEver, ever_share
from stream_dp.records.groupings import By, grouping_text
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import Choice, Profile, Setting, rho_of_unit, shape_words
from stream_dp.statistics.parts.predicted_errors import (
    GAUSSIAN,
    TREE,
    counter_error,
    least_regret,
    price_words,
    shown,
)
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.windows import (
    EVER,
    Every,
    Over,
    Window,
    Windows,
    every_problems,
    first_end,
    forest_words,
    spans_of,
    views,
    window_choice,
    window_lengths,
    window_problems,
    windowed,
    windows_words,
)

PHASES = 64  # places where a window may begin that stand for all


def choose_windows(
    setting: Setting, epsilon: Fraction, declared: Sequence[str], method: str
) -> Choice:
    """Choose the forest that `method` names (tree: Laplace noise), or the better one (`auto`).

    What `auto` compares is the typical error (RMSE, over where a window may begin) of each window, by the geometric
    mean over all of them, which the forests' shapes are chosen by too. Raises NotDerivable for Gaussian noise where no
    delta is granted or the filter adds up Gaussian DP, and where a state may not hold the longest window of all keys.
    """
    if method == GAUSSIAN:
        return gaussian_windows(setting, epsilon, declared)
    laplace = window_choice(setting, epsilon, declared)
    if method == TREE or not setting.by_rho or setting.gdp:
        return laplace
    forms = {GAUSSIAN: gaussian_windows(setting, epsilon, declared), TREE: laplace}
    errors = {form: typical_errors(choice.mechanism, setting) for form, choice in forms.items()}
    means = {form: (math.prod(own) ** (1 / len(own)),) for form, own in errors.items()}
    form = least_regret(means, (GAUSSIAN,))
    names = " / ".join(views(declared))
    price = price_words(setting, epsilon, form, means[form] == min(means.values()))
    why = f"method: auto, typical error (RMSE) of {names}: {shown(errors)}{price}"
    return forms[form].saying(why)


def gaussian_windows(setting: Setting, epsilon: Fraction, declared: Sequence[str]) -> Choice:
    if setting.gdp:
        raise NotDerivable(
            "method gaussian over windows is zCDP, which filter gdp does not add up: name filter zcdp, or leave method "
            "out"
        )
    rho, ticks = rho_of_unit(setting, epsilon), spans_of(setting, declared)
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

    def own_problems(self) -> list[InitErrorDetails]:
        every = every_problems(self.every, self.windows, self.window, running=self.running)
        method = getattr(self, "method", "auto")
        if self.every and method not in ("tree", "auto"):
            why = "windows that follow one another have no Gaussian noise: leave method out"
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
