"""The statistic `distinct`: how many different identifiers came, so far or in each public window; of all, or by key.

By `every` a window's number is told once it has ended; with `running: true` at every tick, since its window began.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.core.row_relations import Arrivals
from stream_dp.journal.release import Shape
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.ended_windows import EndedArrivals
from stream_dp.records.groupings import By, grouping_fields, grouping_text
from stream_dp.records.record_columns import Identified
from stream_dp.records.scalars import FieldName, milliseconds, problem
from stream_dp.records.schema import ListField, field_problems
from stream_dp.statistics.parts.choice import Choice, Floats, Setting, steady
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.verdicts import Guess
from stream_dp.statistics.parts.windows import (
    EVER,
    ONCE,
    Every,
    Over,
    every_problems,
    first_end,
    following,
    length_of,
    window_lengths,
    windowed,
)

_KINDS = ("text", "integer", "category")
_NO_IDENTIFIER = ", not a text, an integer or a category"
_LISTS = "is a list, and a record may hold several of its values: name a field with one value in each record"


def _renamed(value: object) -> None:
    """Refuse a key of former versions with the words that mean the same."""
    if value is None:
        return
    listed = value if isinstance(value, list | tuple) else [value]
    names = [name for name in listed if isinstance(name, str) and length_of(name)] or ["24h"]
    written = f"[{', '.join(names)}]" if isinstance(value, list | tuple) else names[0]
    raise ValueError(
        f"distinct has no sliding windows: write every: {written} for the number in the last "
        "window that ended. Add running: true for the number since the window began. It has "
        "more noise, and is what this key meant before"
    )


Renamed: TypeAlias = SkipJsonSchema[Annotated[None, BeforeValidator(_renamed), Field(exclude=True)]]


class DistinctSeries(SeriesSpec):
    """How many different values the field `of` has had, so far, in each window of `every`, or since it began.

    By `by` they are counted for each key, of the records that have it: once in each.
    """

    later = ("by", "every", "running")

    statistic: Literal["distinct"] = "distinct"
    of: FieldName
    by: By | None = None
    every: Every = ()
    running: bool = False
    window: Renamed = None
    windows: Renamed = None
    _alone: bool = PrivateAttr(False)

    @model_validator(mode="wrap")
    @classmethod
    def _remember_the_form(cls, data: Any, validated: Callable[[Any], Self]) -> Self:
        """Keep whether `every` is a single name or a list: fingerprints of former versions tell the two apart."""
        series = validated(data)
        if isinstance(data, cls):
            return series
        series._alone = isinstance(data, Mapping) and isinstance(data.get("every"), str)  # noqa: SLF001 - its own
        return series

    @property
    def views(self) -> tuple[str, ...]:
        return self.every

    @property
    def identifier(self) -> Identified:
        return Identified(self.of, milliseconds(self.every[0]) if self.every else None)

    @property
    def counted(self) -> Identified:
        return self.identifier

    @property
    def keyed(self) -> bool:
        return self.by is not None

    @property
    def form(self) -> Shape:
        return Shape.HISTOGRAM if self.keyed and not self.views else super().form

    @property
    def about(self) -> str:
        when = self._spans.words if self.every else "so far"
        by = f" by {grouping_text(self.by)}" if self.keyed else ""
        return f"different values of {self.of}{by} {when}"

    @property
    def error_unit(self) -> str:
        return self.unit or f"values of {self.of}"

    @property
    def parameters(self) -> dict[str, int | str]:
        if not self.every:
            return {"of": self.of}
        return {"of": self.of, "told": self._spans.told}

    @property
    def _spans(self) -> Over:
        return Over(every=self.every[:1], running=self.running)

    def first_told(self, place: int, step: int) -> int:
        return 0 if self.running else first_end(self.every, place, step)

    def as_fingerprinted(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the plain values with the keys by which former versions told running numbers."""
        if self.every and not self.running:
            return plain
        kept = {key: value for key, value in plain.items() if key not in ("every", "running")}
        alone, listed = (self.every[0], []) if self._alone else (None, list(self.every))
        return kept | {"window": alone, "windows": listed}

    def as_kept(self, plain: dict[str, Any]) -> dict[str, Any]:
        return plain | {"every": self.every[0]} if self._alone and self.running else plain

    def own_problems(self) -> list[InitErrorDetails]:
        problems = [*super().own_problems(), *every_problems(self.every, running=self.running)]
        for place, name in enumerate(self.every):
            if place and name != EVER:
                why = f"distinct counts in one window: '{name}' needs its own series, with its own memory and price"
                problems.append(problem(("every", place), why))
        return problems

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        grouped = [rest.fields.get(name) for name in grouping_fields(self.by)]
        lists = any(isinstance(field, ListField) for field in grouped)
        return [
            *super().problems(rest),
            *([problem(("by",), _LISTS)] if lists else []),
            *field_problems(("of",), self.of, rest.fields, _KINDS, _NO_IDENTIFIER),
            *window_lengths(rest.clock, self.every, key="every"),
        ]

    def choose(self, setting: Setting) -> Choice:
        span = self.identifier.span
        ticks = None if span is None else span // setting.step
        ended = bool(self.every) and not self.running
        arrivals = Arrivals(ticks, setting.users, ended, setting.values, setting.entries)
        who = "one event" if setting.users is None else "a user"
        moved = f"{who} changes the numbers by up to {arrivals.changes} in all"
        if ended:
            whole = EndedArrivals(self.epsilon, setting.neighbors, arrivals, setting.width)
            return windowed(whole, setting, self.every, f"{ONCE}; {moved}")
        own = self.epsilon, setting.neighbors, setting.horizon, arrivals
        mechanism = ArrivalCounter(*own, setting.width)
        chosen = steady(mechanism, f"a tree counter of first ticks; {moved}", setting)
        return replace(chosen, windows=dict.fromkeys(self.views, chosen.expected))

    def covered(self, window: str, tick: int, step: int) -> range:
        if window in self.every:
            return following(window, tick, step, running=self.running)
        return super().covered(window, tick, step)

    def guessed_totals(self, guess: Guess) -> Floats | str:
        """Return the users of the cap, where it counts them over its window; a number by key is as large as any."""
        if guess.typical is None and guess.users is not None:
            return guess.evenly(guess.users / guess.width)
        return super().guessed_totals(guess)

    def exact(self, totals: IntArray, keys: Sequence[str]) -> Any:
        if self.every:
            return None
        return dict(zip(keys, totals.tolist(), strict=True)) if self.keyed else int(totals[0])
