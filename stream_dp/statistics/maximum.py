"""The statistic `maximum`: how many events so far in the category that has most, and which it is.

The name is that of the largest released column, of equal ones the first of the domain; there is none while the value is
0, when nothing is known. It costs nothing more than the value, and its band is that of the value (`HSS.leader`).
"""

from collections.abc import Sequence
from typing import Any, Literal

from stream_dp.core.mechanism import IntArray
from stream_dp.engine.series import Tell
from stream_dp.journal.release import name_bytes
from stream_dp.mechanisms.hss.quantities import MAXIMUM
from stream_dp.mechanisms.serving import clipped
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.choose_hss import (
    CounterKind,
    Demand,
    ExpectedEvents,
    quantity_choice,
)
from stream_dp.statistics.parts.series_spec import GroupedSeries

_VALUE_BYTES = 40


class MaximumSeries(GroupedSeries):
    """How many events so far in the category that has most, and which it is."""

    later = ("counter",)

    statistic: Literal["maximum"] = "maximum"
    method: Literal["hss", "paper_hss"] = "hss"
    expected_events: ExpectedEvents = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        return f"maximum by {self.by_text} so far, with its name"

    @property
    def parameters(self) -> dict[str, int | str]:
        return {"named": self.by_text}

    def choose(self, setting: Setting) -> Choice:
        demand = Demand(setting, MAXIMUM, self.epsilon, self.expected_events, counter=self.counter)
        return quantity_choice(demand, self.method).saying(
            "the name is told too, at no further cost, and the error is that of its own count as well"
        )

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(keys)

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            (value,) = clipped(answer).tolist()
            place = mechanism.leader(state)
            return {"value": value} if place is None else {"name": names[place], "value": value}

        return tell

    def told_bytes(self, names: Sequence[str]) -> int:
        return _VALUE_BYTES + max(map(name_bytes, names))

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int:
        return int(totals.max())
