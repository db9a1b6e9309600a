"""What statistics of clamped amounts have alike: the keys `of`, `clamp` and `step`, and their problems."""

from fractions import Fraction

from pydantic_core import InitErrorDetails

from stream_dp.records.amount_units import Amount, Clamp, Step, clamp_problems, number_problems
from stream_dp.records.groupings import decimal_text, grouping_text
from stream_dp.records.scalars import FieldName
from stream_dp.statistics.parts.series_spec import Rest
from stream_dp.statistics.parts.windowed import SingleOrKeyed


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
