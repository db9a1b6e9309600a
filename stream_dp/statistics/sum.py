"""The statistic `sum`: how much of a clamped number, so far or over sliding windows, over all or by what it goes by."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.records.amount_units import (
    Amount,
    Clamp,
    Step,
    clamp_problems,
    number_problems,
    plain_number,
)
from stream_dp.records.groupings import decimal_text, grouping_text
from stream_dp.records.scalars import FieldName
from stream_dp.statistics.parts.choice import Choice, Setting, steady
from stream_dp.statistics.parts.series_spec import Rest
from stream_dp.statistics.parts.windowed import SingleOrKeyed
from stream_dp.statistics.parts.windows import window_choice

# ---
# What statistics of clamped amounts have alike: the keys `of`, `clamp` and `step`, and their problems.


class AmountSeries(SingleOrKeyed):
    """A statistic of the field `of`, each value within `clamp`, on a grid of `step`; of all, or `by` key."""

    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)

    @property
    def whole(self) -> Amount:
        """The clamped value of a record, in units."""
        lowest, highest = self.clamp
        return Amount(self.of, lowest, highest, self.step)

    @property
    def grain(self) -> Fraction:
        """The step of the grid."""
        return self.step

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        low, high = (decimal_text(bound) for bound in self.clamp)
        by = "" if self.by is None else f" by {grouping_text(self.by)}"
        return f"{self.statistic} of {self.of}, each from {low} to {high},{by} {self.over}"

    @property
    def nonnegative(self) -> bool:
        """Whether no amount is below 0."""
        return self.clamp[0] >= 0

    @property
    def error_unit(self) -> str:
        """That of the amounts."""
        return self.unit or f"of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The field, its clamp and its grid."""
        low, high = (decimal_text(bound) for bound in self.clamp)
        return {"of": self.of, "clamp": f"{low} to {high}", "step": decimal_text(self.step)}

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, and those of the clamp on the grid."""
        return [*super().own_problems(), *clamp_problems(self.clamp, self.step)]

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        """Return those of every series, and those of what is added up."""
        return [*super().problems(rest), *number_problems(self.of, rest.fields)]


class SumSeries(AmountSeries):
    """The sum of the field `of`, so far or over sliding windows, each value within `clamp`, on a grid of `step`."""

    shape: ClassVar[Shape] = Shape.SCALAR

    statistic: Literal["sum"] = "sum"

    @property
    def amount(self) -> Amount:
        """What a record adds."""
        return self.whole

    @property
    def signed(self) -> bool:
        """Whether a sum may be below 0."""
        return self.clamp[0] < 0

    @property
    def counted(self) -> Amount | None:
        """The amounts, where none is below 0."""
        return None if self.signed else self.amount

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
        changed = decimal_text(sums.rows.l1 * self.step)
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
