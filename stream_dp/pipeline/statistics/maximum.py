"""The statistic `maximum`: how many events so far in the category that has most."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.quantities import MAXIMUM
from stream_dp.pipeline.choice import Choice, Setting
from stream_dp.pipeline.choose_hss import Demand, ExpectedEvents, hss_choice, without_guess
from stream_dp.pipeline.statistics.series_spec import GroupedSeries, Place
from stream_dp.runtime.release import Shape


class MaximumSeries(GroupedSeries):
    """How many events so far in the category that has most."""

    shape: ClassVar[Shape] = Shape.SCALAR

    statistic: Literal["maximum"] = "maximum"
    method: Literal["hss"] = "hss"
    expected_events: ExpectedEvents = None

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"maximum by {self.by} so far"

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every grouped series, and a missing guess."""
        return [*without_guess(at, series), *super().problems(at, series, fields)]

    def choose(self, setting: Setting) -> Choice:
        """Choose the HSS of the largest column."""
        demand = Demand.of(setting, MAXIMUM, self.epsilon, self.expected_events)
        return hss_choice(demand, "method: hss")

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        """Return the largest count."""
        return int(totals.max())
