"""The statistic `sum`: how much of a clamped number, so far or over sliding windows, over all or by what it goes by."""

from fractions import Fraction
from typing import Any, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.records.amount_units import (
    Amount,
    Clamp,
    Step,
    clamp_problems,
    number_problems,
    plain_number,
)
from stream_dp.records.groupings import decimal_text
from stream_dp.records.scalars import FieldName
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.series_spec import Rest
from stream_dp.statistics.parts.windowed import SingleOrKeyed
from stream_dp.statistics.parts.windows import amounts_choice


class AmountSeries(SingleOrKeyed):
    """A statistic of the field `of`, each value within `clamp`, on a grid of `step`; of all, or `by` key."""

    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)

    @property
    def whole(self) -> Amount:
        lowest, highest = self.clamp
        return Amount(self.of, lowest, highest, self.step)

    @property
    def grain(self) -> Fraction:
        return self.step

    @property
    def about(self) -> str:
        low, high = map(decimal_text, self.clamp)
        return f"{self.statistic} of {self.of}, each from {low} to {high},{self.by_and_over}"

    @property
    def nonnegative(self) -> bool:
        return self.clamp[0] >= 0

    @property
    def error_unit(self) -> str:
        return self.unit or f"of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        low, high = map(decimal_text, self.clamp)
        own = {"of": self.of, "clamp": f"{low} to {high}", "step": decimal_text(self.step)}
        return {**own, **super().parameters}

    def own_problems(self) -> list[InitErrorDetails]:
        return [*super().own_problems(), *clamp_problems(self.clamp, self.step)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return [*super().problems(rest), *number_problems(self.of, rest.fields)]


class SumSeries(AmountSeries):
    """The sum of the field `of`, each value within `clamp`, on a grid of `step`; so far, over windows or in each."""

    statistic: Literal["sum"] = "sum"

    @property
    def amount(self) -> Amount:
        return self.whole

    @property
    def signed(self) -> bool:
        return self.clamp[0] < 0

    @property
    def counted(self) -> Amount | None:
        return None if self.signed else self.amount

    def choose(self, setting: Setting) -> Choice:
        units, step = self.amount.units, self.step
        return amounts_choice(
            setting, self.epsilon, self.declared, units, step, "a sum", self.every
        )

    def shown_totals(self, totals: IntArray) -> list[Any]:
        return [plain_number(units * self.step) for units in totals.tolist()]
