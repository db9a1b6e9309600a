"""The statistic `gauge`: how many have come and not gone: records that count up, less those that count down.

Over sliding windows, or in each of the windows that follow one another, it tells how many more came than went in them.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.mechanisms.serving import clipped
from stream_dp.records.amount_units import Sign
from stream_dp.records.conditions import typed, value_problem
from stream_dp.records.scalars import FieldName, Value, problem
from stream_dp.records.schema import field_problems
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.series_spec import Rest
from stream_dp.statistics.parts.windowed import SingleOrKeyed
from stream_dp.statistics.parts.windows import amounts_choice

_KINDS = ("category", "text", "boolean", "integer")
_NO_SIGN = "; a gauge needs a category, text, boolean or integer"


def _nothing(value: object) -> object:
    if value in (0, "0"):
        return 0
    raise ValueError(
        "must be 0: a value below 0 is then released as 0, and no other floor is supported"
    )


Values: TypeAlias = Annotated[
    tuple[Value, ...],
    Field(min_length=1, max_length=1000),
    BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else (value,),
        json_schema_input_type=Value | tuple[Value, ...],
    ),
]
Floor: TypeAlias = Annotated[Literal[0], BeforeValidator(_nothing)]


class GaugeSeries(SingleOrKeyed):
    """Records whose field `of` is one of `plus`, less those where it is one of `minus`."""

    statistic: Literal["gauge"] = "gauge"
    of: FieldName
    plus: Values
    minus: Values
    floor: Floor | None = None

    @property
    def amount(self) -> Sign:
        return Sign(self.of, self.plus, self.minus)

    @property
    def signed(self) -> bool:
        """Whether it may be below 0: more may have gone than came, where the stream begins in the midst of it."""
        return self.floor is None

    @property
    def about(self) -> str:
        plus, minus = (
            " or ".join(values) if len(values) < 4 else f"{len(values)} values"
            for values in (self.plus, self.minus)
        )
        return f"{plus} less {minus} of {self.of},{self.by_and_over}"

    @property
    def parameters(self) -> dict[str, int | str]:
        floor = {} if self.floor is None else {"floor": self.floor}
        return {
            "of": self.of,
            "plus": ", ".join(self.plus),
            "minus": ", ".join(self.minus),
            **floor,
            **super().parameters,
        }

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        problems = super().problems(rest)
        if wrong := field_problems(("of",), self.of, rest.fields, _KINDS, _NO_SIGN):
            return [*problems, *wrong]
        seen: dict[Any, tuple[str, int]] = {}
        for side, texts in (("plus", self.plus), ("minus", self.minus)):
            for place, text in enumerate(texts):
                try:
                    value = typed(rest.fields[self.of], "equals", text)
                except ValueError as error:
                    problems.append(value_problem((side, place), error))
                    continue
                if (first := seen.setdefault(value, (side, place))) != (side, place):
                    both = "is listed twice" if first[0] == side else "counts up and down at once"
                    problems.append(problem((side, place), f"'{text}' {both}"))
        return problems

    def choose(self, setting: Setting) -> Choice:
        units, step = self.amount.units, self.grain
        return amounts_choice(setting, self.epsilon, self.spans, units, step, "a gauge")

    def shown_totals(self, totals: IntArray) -> list[Any]:
        shown: list[Any] = (totals if self.signed else clipped(totals)).tolist()
        return shown
