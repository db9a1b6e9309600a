"""The statistic `sum`: how much of a clamped number, so far or over sliding windows, over all or by what it goes by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.sum_counter import SumCounter
from stream_dp.pipeline.amount_units import Amount, Clamp, Step, amount_problems, plain_number
from stream_dp.pipeline.choice import Choice, Setting, steady
from stream_dp.pipeline.groupings import By, decimal_text, grouping_text
from stream_dp.pipeline.scalars import FieldName, valid_or_none
from stream_dp.pipeline.statistics.series_spec import Place
from stream_dp.pipeline.statistics.windowed import WindowedSeries
from stream_dp.pipeline.windows import window_choice
from stream_dp.runtime.release import Shape

_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)
_STEP: TypeAdapter[Any] = TypeAdapter(Step)


class SumSeries(WindowedSeries):
    """The sum of the field `of`, so far or over sliding windows, each value within `clamp`, on a grid of `step`."""

    shape: ClassVar[Shape] = Shape.SCALAR

    statistic: Literal["sum"] = "sum"
    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)
    by: By | None = None

    @property
    def form(self) -> Shape:
        """One value, or values by key, or either for each window."""
        if self.declared:
            return Shape.WINDOWS
        return Shape.HISTOGRAM if self.keyed else Shape.SCALAR

    @property
    def keyed(self) -> bool:
        """Whether it goes by anything."""
        return self.by is not None

    @property
    def grouped_by(self) -> By | None:
        """What it goes by, if anything."""
        return self.by

    @property
    def amount(self) -> Amount:
        """What a record adds."""
        lowest, highest = self.clamp
        return Amount(self.of, lowest, highest, self.step)

    @property
    def unit(self) -> Fraction:
        """The step of the grid."""
        return self.step

    @property
    def signed(self) -> bool:
        """Whether a sum may be below 0."""
        return self.clamp[0] < 0

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        low, high = (decimal_text(bound) for bound in self.clamp)
        by = "" if self.by is None else f" by {grouping_text(self.by)}"
        return f"sum of {self.of}, each from {low} to {high},{by} {self.over}"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The field, its clamp and its grid."""
        low, high = (decimal_text(bound) for bound in self.clamp)
        return {"of": self.of, "clamp": f"{low} to {high}", "step": decimal_text(self.step)}

    @classmethod
    def sketched(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be read of a broken entry's conditions, clamp and step."""
        clamp = valid_or_none(_CLAMP, value.get("clamp"))
        step = valid_or_none(_STEP, value.get("step", "1"))
        return {**super().sketched(value), "clamp": clamp, "step": step}

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, and those of what is added up."""
        found = super().problems(at, series, fields)
        return found if fields is None else [*amount_problems(at, series, fields), *found]

    def choose(self, setting: Setting) -> Choice:
        """Choose what answers the windows, or a tree counter for amounts."""
        lowest, highest = self.amount.units
        if self.declared:
            chosen = self.windowed(setting)
        else:
            counter = SumCounter(
                setting.width,
                self.epsilon,
                setting.neighbors,
                setting.horizon,
                lowest,
                highest,
                setting.ones,
            )
            chosen = steady(counter, "a sum is a tree counter", setting)
        windows = {name: self._shown(error) for name, error in chosen.windows.items()}
        shown = replace(chosen, expected=self._shown(chosen.expected), windows=windows)
        sums: Any = chosen.mechanism
        changed = decimal_text(sums.l1 * self.step)
        return shown.saying(f"one event changes it by up to {changed} in all")

    def windowed(self, setting: Setting, method: str = "tree") -> Choice:
        """Choose what answers the windows, with errors in units; there is no other `method`."""
        return window_choice(setting, self.epsilon, self.declared, self.amount.units)

    def _shown(self, error: Callable[[int], float]) -> Callable[[int], float]:
        """An error in units as a number that people read."""
        return lambda tick: plain_number(Fraction(error(tick)) * self.step)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        """Return the sum, or that of each key; nothing over windows, for the totals of a run are none."""
        if self.declared:
            return None
        told = [plain_number(units * self.step) for units in totals.tolist()]
        return told[0] if self.by is None else dict(zip(keys, told, strict=True))
