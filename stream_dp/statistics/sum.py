"""The statistic `sum`: how much of a clamped number, so far or over sliding windows, over all or by what it goes by."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

from stream_dp.core.messages import IntArray
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.records.amount_units import Amount, plain_number
from stream_dp.records.groupings import decimal_text
from stream_dp.statistics.choice.choice import Choice, Setting, steady
from stream_dp.statistics.parts.of_amounts import AmountSeries
from stream_dp.statistics.parts.windows import window_choice


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
