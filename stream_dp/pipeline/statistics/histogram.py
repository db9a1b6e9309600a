"""The statistic `histogram`: how many events so far, by category."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.pipeline.choice import Choice, Setting, steady, tree_counter
from stream_dp.pipeline.choose_hss import Demand, ExpectedEvents, hss_choice, without_guess
from stream_dp.pipeline.statistics.series_spec import GroupedSeries, Place
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

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every grouped series, and a missing guess."""
        return [*without_guess(at, series), *super().problems(at, series, fields)]

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names; `auto` takes the smaller predicted error at the end."""
        tree = steady(tree_counter(setting, self.epsilon), "method: tree", setting)
        if self.method == "tree":
            return tree
        demand = Demand.of(setting, None, self.epsilon, self.expected_events)
        hss = hss_choice(demand, "method: hss")
        if self.method == "hss":
            return hss
        by_tree, by_hss = tree.expected(setting.last), hss.expected(setting.last)
        why = f"method: auto, predicted error at the end: tree {by_tree}, hss {by_hss}"
        better = tree if by_tree <= by_hss else hss
        return Choice(better.mechanism, why, better.expected)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> dict[str, int]:
        """Return the count of each key."""
        return dict(zip(keys, totals.tolist(), strict=True))
