"""The statistic `largest`: how many events so far in the category of a given rank."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.mechanisms.hss.quantities import Largest
from stream_dp.records.groupings import rank_problems
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.choose_hss import (
    CounterKind,
    Demand,
    ExpectedEvents,
    quantity_choice,
)
from stream_dp.statistics.parts.series_spec import GroupedSeries, Rest


class LargestSeries(GroupedSeries):
    """How many events so far in the category of rank `rank`; rank 1 is `maximum`."""

    later = ("counter",)

    statistic: Literal["largest"] = "largest"
    rank: Annotated[int, Field(ge=1, le=10**6)]
    method: Literal["hss", "paper_hss"] = "hss"
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        return f"rank {self.rank} by {self.by_text} so far"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"rank": self.rank}

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        ranks = rank_problems("rank", self.rank, self.by, rest.fields)
        return [*super().problems(rest), *ranks]

    def choose(self, setting: Setting) -> Choice:
        quantity = Largest(self.rank).checked(setting.neighbors, setting.width, setting.ones)
        demand = Demand(setting, quantity, self.epsilon, self.expected_events, counter=self.counter)
        return quantity_choice(demand, self.method)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        return Largest(self.rank).of(totals)
