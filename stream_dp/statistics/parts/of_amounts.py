"""What statistics of clamped amounts have alike: the keys `of`, `clamp`, `step` and `by`, and their problems."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.records.amount_units import Amount, Clamp, Step, amount_problems
from stream_dp.records.groupings import By, decimal_text, grouping_text
from stream_dp.records.scalars import FieldName, valid_or_none
from stream_dp.statistics.parts.series_spec import Place
from stream_dp.statistics.parts.windowed import SingleOrKeyed

_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)
_STEP: TypeAdapter[Any] = TypeAdapter(Step)


class AmountSeries(SingleOrKeyed):
    """A statistic of the field `of`, each value within `clamp`, on a grid of `step`; of all, or `by` key."""

    of: FieldName
    clamp: Clamp
    step: Step = Fraction(1)
    by: By | None = None

    @property
    def grouped_by(self) -> By | None:
        """What it goes by, if anything."""
        return self.by

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
