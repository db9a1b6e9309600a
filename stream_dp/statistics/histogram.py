"""The statistic `histogram`: how many events by category, so far, over sliding windows, or in each window."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.journal.release import Shape
from stream_dp.records.scalars import problem
from stream_dp.statistics.parts.choice import Choice, ExpectedShape, Setting, by_gaussian, by_tree
from stream_dp.statistics.parts.choose_hss import (
    CounterKind,
    Demand,
    ExpectedEvents,
    Split,
    hss_choice,
    narrowest_choice,
    split_problems,
    typical_choice,
)
from stream_dp.statistics.parts.series_spec import RECORDS, GroupedSeries
from stream_dp.statistics.parts.windowed import OneNoise, choose_windows
from stream_dp.statistics.parts.windows import every_choice, method_problems

_HSS_WEIGHED = {"hss": hss_choice, "auto": narrowest_choice, "typical": typical_choice}


class HistogramSeries(OneNoise, GroupedSeries):
    """How many events by category, so far, over sliding windows, or in each of the windows that follow one another."""

    shape = Shape.HISTOGRAM
    later = ("expected_shape", "counter", "split", *OneNoise.later)
    counted: ClassVar[str] = RECORDS
    adds: ClassVar[Fraction | None] = Fraction(1)

    statistic: Literal["histogram"] = "histogram"
    method: Literal["tree", "hss", "auto", "typical", "gaussian", "correlated", "nested"] = "auto"
    expected_events: ExpectedEvents = None
    expected_shape: ExpectedShape | None = None
    counter: CounterKind = "tree"
    split: Split = "error"

    @property
    def about(self) -> str:
        return f"histogram by {self.by_text} {self.over}"

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [*super().own_problems(), *method_problems(self.declared, self.method)]
        if self.counter == "gaussian" and self.method != "hss":
            why = f"gaussian is the counter inside an HSS, and this method is {self.method}: name method hss"
            problems.append(problem(("counter",), why))
        return [*problems, *split_problems(self.split, self.method, self.counter)]

    @property
    def former_keys(self) -> Mapping[str, str]:
        """`auto` took the smallest typical error before, except over windows."""
        return {} if self.views or self.method != "auto" else {"method": "typical"}

    def as_fingerprinted(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the plain values with the word by which former versions called what is `typical` now."""
        if self.views:
            return plain
        words = {"typical": "auto", "auto": "narrowest"}
        return plain | {"method": words.get(self.method, self.method)}

    def choose(self, setting: Setting) -> Choice:
        """Choose what `method` names; `auto` takes the narrowest band, `typical` the smallest typical error."""
        guesses = self.expected_events, self.expected_shape
        demand = Demand(setting, None, self.epsilon, *guesses, self.counter, self.split)
        if self.every:
            choice = every_choice(setting, self.epsilon, self.spans)
        elif self.declared:
            choice = choose_windows(setting, self.epsilon, self.declared, self.method, self.aims)
        elif self.method == "gaussian":
            choice = by_gaussian(setting, self.epsilon)
        elif self.method == "tree":
            choice = by_tree(setting, self.epsilon, "method: tree")
        else:
            return _HSS_WEIGHED[self.method](demand)
        keys = ("expected_events", "expected_shape")
        unused = [key for key in keys if getattr(self, key) is not None]
        return choice.saying(f"{' and '.join(unused)} not used") if unused else choice
