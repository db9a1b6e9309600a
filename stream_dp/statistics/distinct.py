"""The statistic `distinct`: how many different identifiers came, so far or since a public window began."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic_core import InitErrorDetails

from stream_dp.core.arrivals import Arrivals
from stream_dp.core.messages import IntArray
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.records.identifier_columns import Identified
from stream_dp.records.scalars import FieldName, milliseconds, problem
from stream_dp.statistics.choice.choice import Choice, Setting, steady
from stream_dp.statistics.parts.series_spec import Place, SeriesSpec
from stream_dp.statistics.parts.windows import (
    EVER,
    Window,
    Windows,
    window_lengths,
    window_problems,
    windows_sketched,
)

_KINDS = ("text", "integer", "category")


class DistinctSeries(SeriesSpec):
    """How many different values the field `of` has had, so far or since the window began."""

    shape: ClassVar[Shape] = Shape.SCALAR

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
        """The name of the window."""
        return () if self.declared is None else (self.declared,)

    @property
    def form(self) -> Shape:
        """The shape of its releases."""
        return Shape.SCALAR if self.declared is None else Shape.WINDOWS

    @property
    def identifier(self) -> Identified:
        """What a record is counted by."""
        return Identified(self.of, None if self.declared is None else milliseconds(self.declared))

    @property
    def counted(self) -> Identified:
        """The values of its field, in windows of this length."""
        return self.identifier

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        when = "so far" if self.declared is None else f"since each {self.declared} began"
        return f"different values of {self.of} {when}"

    @property
    def error_unit(self) -> str:
        """What is counted."""
        return self.unit or f"values of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The field, and when windows are told."""
        told = {} if self.declared is None else {"told": "since a window began"}
        return {"of": self.of, **told}

    @classmethod
    def sketched(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be read of a broken entry's conditions and windows."""
        return {**super().sketched(value), **windows_sketched(value)}

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, of its window, and of the field as an identifier."""
        found = [*window_problems(at, series), *super().problems(at, series, fields)]
        found += _window_problems(at, series)
        of = getattr(series, "of", None)
        if fields is None or not isinstance(of, str):
            return found
        if of not in fields:
            return [problem((*at, "of"), f"'{of}' is not in the schema", fields), *found]
        if fields[of] is not None and fields[of].type not in _KINDS:
            why = f"'{of}' is a {fields[of].type}, not a text, an integer or a category"
            return [problem((*at, "of"), why), *found]
        return found

    @classmethod
    def clock_problems(cls, at: Place, series: Any, clock: Any) -> list[InitErrorDetails]:
        """Return which windows do not go with the clock."""
        return window_lengths(at, series, clock)

    def choose(self, setting: Setting) -> Choice:
        """Choose a counter of first ticks, at what an event or a user may move of them."""
        span = self.identifier.span
        ticks = None if span is None else span // setting.step
        arrivals = Arrivals(ticks, setting.users)
        mechanism = ArrivalCounter(self.epsilon, setting.neighbors, setting.horizon, arrivals)
        who = "one event" if setting.users is None else "a user"
        moved = f"{who} changes them by up to {arrivals.changes} in all"
        chosen = steady(mechanism, f"a tree counter of first ticks; {moved}", setting)
        windows = {} if self.declared is None else {self.declared: chosen.expected}
        return Choice(mechanism, chosen.why, chosen.expected, windows)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> int | None:
        """Return how many there were; nothing of windows, for the totals of a run are those of none."""
        return int(totals[0]) if self.declared is None else None


def _window_problems(at: Place, series: Any) -> list[InitErrorDetails]:
    """What windows of identifiers must not be."""
    found = []
    for place, name in enumerate(getattr(series, "windows", ())):
        if name == EVER:
            why = (
                "without windows it counts so far: leave them out, or name one duration such as 24h"
            )
            found.append(problem((*at, "windows", place), why))
        elif place:
            why = f"'{name}' has a memory and a price of its own: make it a series of its own"
            found.append(problem((*at, "windows", place), why))
    if getattr(series, "window", None) == EVER:
        found.append(problem((*at, "window"), "without a window it counts so far: leave it out"))
    return found
