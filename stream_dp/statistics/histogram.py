"""The statistic `histogram`: how many events so far, or over sliding windows, by category."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.journal.release import Shape
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import Choice, ExpectedShape, Setting, by_gaussian, by_tree
from stream_dp.statistics.parts.choose_hss import (
    CounterKind,
    Demand,
    ExpectedEvents,
    better_choice,
    hss_choice,
)
from stream_dp.statistics.parts.series_spec import RECORDS, GroupedSeries
from stream_dp.statistics.parts.windowed import WindowedSeries
from stream_dp.statistics.parts.windows import method_problems


class HistogramSeries(WindowedSeries, GroupedSeries):
    """How many events so far, or over sliding windows, by category."""

    shape: ClassVar[Shape] = Shape.HISTOGRAM
    later: ClassVar[tuple[str, ...]] = (
        "expected_shape",
        "counter",
        *WindowedSeries.later,
    )

    statistic: Literal["histogram"] = "histogram"
    method: Literal["tree", "hss", "auto", "gaussian"] = "auto"
    expected_events: ExpectedEvents = None
    expected_shape: ExpectedShape | None = None
    counter: CounterKind = "tree"

    @property
    def counted(self) -> str:
        """Records."""
        return RECORDS

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        return f"histogram by {self.by_text} {self.over}"

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, a method that is not for windows, and an inner counter without an HSS."""
        problems = [*super().own_problems(), *method_problems(self.declared, self.method)]
        if self.counter == "gaussian" and self.method != "hss":
            why = f"gaussian is the counter inside an HSS, and this method is {self.method}: name method hss"
            problems.append(problem(("counter",), why))
        return problems

    def choose(self, setting: Setting) -> Choice:
        """Choose what answers the windows, or what `method` names; `auto` takes the smaller error over the horizon."""
        if self.declared:
            return self._unguessed(self.windowed(setting, self.method))
        if self.method == "gaussian":
            return self._unguessed(by_gaussian(setting, self.epsilon))
        tree = by_tree(setting, self.epsilon, "method: tree")
        if self.method == "tree":
            return self._unguessed(tree)
        demand = Demand(
            setting,
            None,
            self.epsilon,
            self.expected_events,
            self.expected_shape,
            self.counter,
        )
        if self.method == "hss":
            return hss_choice(demand, "method: hss")
        return better_choice(demand, tree)

    def _unguessed(self, choice: Choice) -> Choice:
        """The choice, which says of guesses that were declared that nothing of it depends on them."""
        said = [
            key for key in ("expected_events", "expected_shape") if getattr(self, key) is not None
        ]
        return choice.saying(f"{' and '.join(said)} not used") if said else choice

    def exact(self, totals: IntArray, keys: Sequence[str]) -> dict[str, int] | None:
        """Return the count of each key; nothing over windows, for the totals of a run are none."""
        return None if self.declared else dict(zip(keys, totals.tolist(), strict=True))
