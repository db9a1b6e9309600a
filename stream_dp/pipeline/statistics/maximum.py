"""The statistic `maximum`: how many events so far in the category that has most."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.quantities import MAXIMUM
from stream_dp.pipeline.choice import Choice, Setting
from stream_dp.pipeline.choose_hss import CounterKind, Demand, ExpectedEvents, hss_choice
from stream_dp.pipeline.choose_paper_hss import paper_hss_choice
from stream_dp.pipeline.statistics.series_spec import GroupedSeries
from stream_dp.runtime.release import Shape


class MaximumSeries(GroupedSeries):
    """How many events so far in the category that has most."""

    shape: ClassVar[Shape] = Shape.SCALAR
    later: ClassVar[tuple[str, ...]] = ("counter",)

    statistic: Literal["maximum"] = "maximum"
    method: Literal["hss", "paper_hss"] = "hss"
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"maximum by {self.by_text} so far"

    def choose(self, setting: Setting) -> Choice:
        """Choose the HSS of the largest column, or the one that [HSV] prints.

        Raises:
            UsageError: a relation that the method is not made for.
        """
        demand = Demand(setting, MAXIMUM, self.epsilon, self.expected_events, counter=self.counter)
        if self.method == "paper_hss":
            return paper_hss_choice(demand)
        return hss_choice(demand, "method: hss")

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the largest count."""
        return int(totals.max())
