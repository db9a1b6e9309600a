"""The statistic `histogram`: how many events by category, so far, over sliding windows, or in each window."""

from typing import ClassVar, Literal

from pydantic_core import InitErrorDetails

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
from stream_dp.statistics.parts.windowed import WindowedSeries, choose_windows
from stream_dp.statistics.parts.windows import ended_choice, method_problems


class HistogramSeries(WindowedSeries, GroupedSeries):
    """How many events by category, so far, over sliding windows, or in each of the windows that follow one another."""

    shape = Shape.HISTOGRAM
    later = ("expected_shape", "counter", *WindowedSeries.later)
    counted: ClassVar[str] = RECORDS

    statistic: Literal["histogram"] = "histogram"
    method: Literal["tree", "hss", "auto", "gaussian", "correlated", "nested"] = "auto"
    expected_events: ExpectedEvents = None
    expected_shape: ExpectedShape | None = None
    counter: CounterKind = "tree"

    @property
    def about(self) -> str:
        return f"histogram by {self.by_text} {self.over}"

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [*super().own_problems(), *method_problems(self.declared, self.method)]
        if self.counter == "gaussian" and self.method != "hss":
            why = f"gaussian is the counter inside an HSS, and this method is {self.method}: name method hss"
            problems.append(problem(("counter",), why))
        return problems

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names; `auto` takes the smaller error over the horizon."""
        guesses = self.expected_events, self.expected_shape
        demand = Demand(setting, None, self.epsilon, *guesses, self.counter)
        if self.every:
            choice = ended_choice(setting, self.epsilon, self.every)
        elif self.declared:
            choice = choose_windows(setting, self.epsilon, self.declared, self.method)
        elif self.method == "gaussian":
            choice = by_gaussian(setting, self.epsilon)
        elif self.method == "hss":
            return hss_choice(demand)
        else:
            choice = by_tree(setting, self.epsilon, "method: tree")
            if self.method == "auto":
                return better_choice(demand, choice)
        keys = ("expected_events", "expected_shape")
        unused = [key for key in keys if getattr(self, key) is not None]
        return choice.saying(f"{' and '.join(unused)} not used") if unused else choice
