"""The statistic `distinct`: how many different identifiers came, so far or since a public window began."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.core.row_relations import Arrivals
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.records.record_columns import Identified
from stream_dp.records.scalars import FieldName, milliseconds, problem
from stream_dp.records.schema import field_problems
from stream_dp.statistics.parts.choice import Choice, Setting, steady
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.windows import (
    EVER,
    Window,
    Windows,
    window_lengths,
    window_problems,
)

_KINDS = ("text", "integer", "category")
_NO_IDENTIFIER = ", not a text, an integer or a category"


class DistinctSeries(SeriesSpec):
    """How many different values the field `of` has had, so far or since the window began."""

    statistic: Literal["distinct"] = "distinct"
    of: FieldName
    window: Window | None = None
    windows: Windows = ()

    @property
    def declared(self) -> str | None:
        """The window, as the file has it; None: it counts so far."""
        return self.window or next(iter(self.windows), None)

    @property
    def views(self) -> tuple[str, ...]:
        return () if self.declared is None else (self.declared,)

    @property
    def identifier(self) -> Identified:
        return Identified(self.of, None if self.declared is None else milliseconds(self.declared))

    @property
    def counted(self) -> Identified:
        return self.identifier

    @property
    def about(self) -> str:
        when = "so far" if self.declared is None else f"since each {self.declared} began"
        return f"different values of {self.of} {when}"

    @property
    def error_unit(self) -> str:
        return self.unit or f"values of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        when = {} if self.declared is None else {"told": "since a window began"}
        return {"of": self.of, **when}

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [*super().own_problems(), *window_problems(self.windows, self.window)]
        for place, name in enumerate(self.windows):
            if name == EVER:
                why = "without windows it counts so far: leave them out, or name one duration such as 24h"
                problems.append(problem(("windows", place), why))
            elif place:
                why = f"'{name}' has a memory and a price of its own: make it a series of its own"
                problems.append(problem(("windows", place), why))
        if self.window == EVER:
            why = "without a window it counts so far: leave it out"
            problems.append(problem(("window",), why))
        return problems

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        return [
            *super().problems(rest),
            *field_problems(("of",), self.of, rest.fields, _KINDS, _NO_IDENTIFIER),
            *window_lengths(rest.clock, self.windows, self.window),
        ]

    def choose(self, setting: Setting) -> Choice:
        span = self.identifier.span
        ticks = None if span is None else span // setting.step
        arrivals = Arrivals(ticks, setting.users)
        mechanism = ArrivalCounter(self.epsilon, setting.neighbors, setting.horizon, arrivals)
        who = "one event" if setting.users is None else "a user"
        moved = f"{who} changes them by up to {arrivals.changes} in all"
        chosen = steady(mechanism, f"a tree counter of first ticks; {moved}", setting)
        return replace(chosen, windows=dict.fromkeys(self.views, chosen.expected))

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int | None:
        return int(totals[0]) if self.declared is None else None
