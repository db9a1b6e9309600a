"""The statistic `sum`: how much so far, of a clamped number, over all or for each of what it goes by."""

from collections.abc import Mapping, Sequence
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
from stream_dp.pipeline.statistics.series_spec import Place, SeriesSpec
from stream_dp.runtime.release import Shape

_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)
_STEP: TypeAdapter[Any] = TypeAdapter(Step)


class SumSeries(SeriesSpec):
    """The sum so far of the field `of`, each value within `clamp`, on a grid of `step`."""

    shape: ClassVar[Shape] = Shape.SCALAR

    statistic: Literal["sum"] = "sum"
    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)
    by: By | None = None

    @property
    def form(self) -> Shape:
        """One value, or values by key."""
        return Shape.SCALAR if self.by is None else Shape.HISTOGRAM

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
        return f"sum of {self.of}, each from {low} to {high},{by} so far"

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
        """Choose a tree counter for amounts."""
        lowest, highest = self.amount.units
        sums = SumCounter(
            setting.width,
            self.epsilon,
            setting.neighbors,
            setting.horizon,
            lowest,
            highest,
            setting.ones,
        )
        changed = decimal_text(sums.l1 * self.step)
        why = f"a sum is a tree counter; one event changes it by up to {changed} in all"
        chosen = steady(sums, why, setting)
        return replace(
            chosen, expected=lambda tick: plain_number(Fraction(chosen.expected(tick)) * self.step)
        )

    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        """Return the sum, or that of each key."""
        told = [plain_number(units * self.step) for units in totals.tolist()]
        return told[0] if self.by is None else dict(zip(keys, told, strict=True))
