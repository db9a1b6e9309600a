"""The statistic `columns_above`: how many categories have had at least so many events."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from stream_dp.core.mechanism import IntArray
from stream_dp.mechanisms.hss.sparse_vector import ColumnsAbove
from stream_dp.statistics.parts.choice import ENDLESS, Choice, Floats, Setting
from stream_dp.statistics.parts.choose_hss import CounterKind, Demand, ExpectedEvents, hss_choice
from stream_dp.statistics.parts.series_spec import GroupedSeries
from stream_dp.statistics.parts.verdicts import Guess, Judged, Seen, leading


class ColumnsAboveSeries(GroupedSeries):
    """How many categories have had at least `level` events so far."""

    later = ("counter",)
    views: ClassVar[tuple[str, ...]] = ()

    statistic: Literal["columns_above"] = "columns_above"
    level: Annotated[int, Field(ge=1, le=10**15)]
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        return f"how many of {self.by_text} have at least {self.level:,} so far"

    @property
    def error_unit(self) -> str:
        return self.unit or f"values of {self.by_text}"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"level": self.level}

    def choose(self, setting: Setting) -> Choice:
        """Choose the HSS of the histogram that the number is read off.

        The error to expect: as many categories as can have come so near the level that a column's error hides them.
        """
        level = ColumnsAbove(self.level)
        demand = Demand(setting, level, self.epsilon, self.expected_events, counter=self.counter)
        columns = hss_choice(demand)

        def expected(tick: int) -> int:
            events = demand.events * (tick + 1) // (setting.horizon or ENDLESS)
            near = max(1, self.level - int(columns.expected(tick)))
            return min(setting.width, events // near)

        return replace(columns, expected=expected)

    def true_numbers(self, totals: IntArray) -> Sequence[int]:
        return [self.exact(totals, ())]

    def guessed_totals(self, guess: Guess) -> Floats | str:
        """Return totals by category of which as many are as large as its level as are typical."""
        if guess.typical is None:
            return leading(guess)
        return np.where(np.arange(guess.width) < float(guess.typical), float(self.level), 0.0)

    def judged(self, seen: Seen) -> Judged:
        return Judged(float(self.exact(seen.whole, seen.names)), seen.band)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        return ColumnsAbove(self.level).of(totals)
