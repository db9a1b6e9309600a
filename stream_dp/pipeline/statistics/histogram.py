"""The statistic `histogram`: how many events so far, by category."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.choice import Choice, Setting, steady, tree_counter
from stream_dp.pipeline.choose_hss import Demand, ExpectedEvents, better_choice, hss_choice
from stream_dp.pipeline.statistics.series_spec import GroupedSeries
from stream_dp.runtime.release import Shape


class HistogramSeries(GroupedSeries):
    """How many events so far, by category."""

    shape: ClassVar[Shape] = Shape.HISTOGRAM

    statistic: Literal["histogram"] = "histogram"
    method: Literal["tree", "hss", "auto"] = "auto"
    expected_events: ExpectedEvents = None

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"histogram by {self.by} so far"

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names; `auto` takes the smaller typical error over the horizon."""
        tree = steady(tree_counter(setting, self.epsilon), "method: tree", setting)
        if self.method == "tree":
            return tree
        demand = Demand(setting, None, self.epsilon, self.expected_events)
        if self.method == "hss":
            return hss_choice(demand, "method: hss")
        return better_choice(demand, tree)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> dict[str, int]:
        """Return the count of each key."""
        return dict(zip(keys, totals.tolist(), strict=True))
