"""The statistic `count`: how many events so far."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.choice import Choice, Setting, by_gaussian, steady, tree_counter
from stream_dp.pipeline.statistics.series_spec import SeriesSpec
from stream_dp.runtime.release import Shape


class CountSeries(SeriesSpec):
    """How many events so far."""

    shape: ClassVar[Shape] = Shape.SCALAR

    later: ClassVar[tuple[str, ...]] = ("method",)

    statistic: Literal["count"] = "count"
    method: Literal["tree", "gaussian"] = "tree"

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return "count so far"

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names."""
        if self.method == "gaussian":
            return by_gaussian(setting, self.epsilon)
        return steady(tree_counter(setting, self.epsilon), "a count is a tree counter", setting)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the count."""
        return int(totals[0])
