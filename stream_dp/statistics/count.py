"""The statistic `count`: how many events so far, over sliding windows, or in each window."""

from fractions import Fraction
from typing import ClassVar, Literal

from stream_dp.statistics.parts.choice import Choice, Setting, by_gaussian, by_tree
from stream_dp.statistics.parts.predicted_errors import better_counter
from stream_dp.statistics.parts.series_spec import RECORDS
from stream_dp.statistics.parts.windowed import OneNoise, choose_windows
from stream_dp.statistics.parts.windows import every_choice


class CountSeries(OneNoise):
    """How many events so far, over sliding windows, or in each of the windows that follow one another."""

    later = ("method", *OneNoise.later)
    counted: ClassVar[str] = RECORDS
    adds: ClassVar[Fraction | None] = Fraction(1)

    statistic: Literal["count"] = "count"
    method: Literal["tree", "gaussian", "correlated", "nested", "auto"] = "auto"

    @property
    def about(self) -> str:
        return f"count {self.over}"

    def choose(self, setting: Setting) -> Choice:
        if self.every:
            return every_choice(setting, self.epsilon, self.spans)
        if self.declared:
            return choose_windows(setting, self.epsilon, self.declared, self.method, self.aims)
        if self.method == "gaussian":
            return by_gaussian(setting, self.epsilon)
        tree = by_tree(setting, self.epsilon, "a count is a tree counter")
        return better_counter(setting, self.epsilon, tree) if self.method == "auto" else tree
