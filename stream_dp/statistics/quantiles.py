"""The statistic `quantiles`: which values have a given share of the records below them.

Over sliding windows and so far, at every tick, each with the values that it may be; or by `every`, of windows that
follow one another without a gap, the first from the series' first tick on: what is told of one at its end stays until
the next one ends.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.engine.series import Tell
from stream_dp.journal.release import Quantile, Shape
from stream_dp.mechanisms.quantiles.sliding_quantiles import EACH, PARTS
from stream_dp.mechanisms.quantiles.tumbling_quantiles import UNTOLD
from stream_dp.records.groupings import Edge, Edges, decimal_text
from stream_dp.records.scalars import FieldName, problem
from stream_dp.statistics.choice.choice import Choice, Setting
from stream_dp.statistics.choice.choose_quantiles import sliding_choice, tumbling_choice
from stream_dp.statistics.parts.series_spec import Rest, SeriesSpec
from stream_dp.statistics.parts.value_grids import (
    BUCKETS,
    Buckets,
    Clamp,
    Ends,
    ValueGrid,
    bin_problems,
    default_buckets,
    grid_problems,
)
from stream_dp.statistics.parts.windows import (
    EVER,
    Window,
    Windows,
    window_lengths,
    window_problems,
)


def _share(value: Fraction) -> Fraction:
    if not 0 < value < 1:
        raise ValueError(f"'{decimal_text(value)}' must be between 0 and 1, both excluded")
    return value


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Shares = Annotated[
    tuple[Annotated[Edge, AfterValidator(_share)], ...], Field(min_length=1, max_length=20)
]
Every = Annotated[Windows, BeforeValidator(_listed, json_schema_input_type=Window | Windows)]


class QuantilesSeries(SeriesSpec):
    """Quantiles of the number `of` on a grid, over sliding `windows`, of each window of `every`, or so far."""

    shape: ClassVar[Shape] = Shape.HISTOGRAM
    later: ClassVar[tuple[str, ...]] = ("clamp", "edges", "buckets", "windows", "every")

    statistic: Literal["quantiles"] = "quantiles"
    of: FieldName
    clamp: Clamp | None = None
    buckets: Buckets | None = None
    edges: Ends | None = None
    at: Shares
    windows: Windows = ()
    every: Every = ()
    _fitted: bool = PrivateAttr(False)

    def fitted(self, fields: Mapping[str, Any]) -> "QuantilesSeries":
        """Return the series with the number of buckets nearest to the default that begins at values of an integer."""
        if self.clamp is None or self.buckets is not None:
            return self
        buckets = default_buckets(fields.get(self.of), self.clamp)
        if buckets == BUCKETS:
            return self
        known = self.model_copy(update={"buckets": buckets})
        known._fitted = True  # noqa: SLF001 - a copy
        return known

    @property
    def grid(self) -> ValueGrid:
        """The buckets of the values."""
        if self.clamp is None:
            return ValueGrid(self.edges or ())
        return ValueGrid.within(self.clamp, self.buckets or BUCKETS)

    @property
    def grouped_by(self) -> Edges:
        """The buckets, and what lies below, above, or is no number."""
        return Edges(field=self.of, edges=self.grid.ends)

    @property
    def views(self) -> tuple[str, ...]:
        """The windows, what counts so far last."""
        if self.every:
            return self.every
        spans = tuple(name for name in self.windows if name != EVER)
        return (*spans, EVER) if EVER in self.windows or not spans else spans

    @property
    def form(self) -> Shape:
        """Windows."""
        return Shape.WINDOWS

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the quantiles, as they are named in releases."""
        return tuple(map(decimal_text, self.at))

    @property
    def numbers(self) -> int:
        """A bucket, or a place with what is ruled out on both sides."""
        return 1 if self.every else EACH

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        """Return what tells the quantiles of one window."""
        return _bucket_teller(self.grid) if self.every else _place_teller(self.grid)

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        asked = ", ".join(map(decimal_text, self.at))
        if self.every:
            return f"quantiles {asked} of {self.of} in each {', '.join(self.every)}"
        spans = [name for name in self.views if name != EVER]
        over = f"over {', '.join(spans)}" if spans else ""
        parts = [part for part in (over, "so far" if EVER in self.views else "") if part]
        return f"quantiles {asked} of {self.of} {' and '.join(parts)}"

    @property
    def nonnegative(self) -> bool:
        """Whether the grid begins at 0 or above."""
        return self.grid.ends[0] >= 0

    @property
    def error_unit(self) -> str:
        """Ranks: so many events lie between what is told and what was asked."""
        return "events in rank"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The field, its range, the number of buckets, and when windows end."""
        ends = self.grid.ends
        return {
            "of": self.of,
            "clamp": f"{decimal_text(ends[0])} to {decimal_text(ends[-1])}",
            "buckets": len(ends) - 1,
            "told": "when a window ends" if self.every else "at every tick",
        }

    def own_problems(self) -> list[InitErrorDetails]:
        """Return those of every series, of the quantiles, of the windows and of the grid."""
        problems = [
            *super().own_problems(),
            *window_problems(self.windows),
            *window_problems(self.every, key="every"),
            *grid_problems(self.clamp, self.edges, self.buckets),
        ]
        if self.windows and self.every:
            why = (
                "stands beside windows: those slide, these follow one another; name one of the two"
            )
            problems.append(problem(("every",), why))
        for place, name in enumerate(self.every):
            if name == EVER:
                why = "is told of windows that end: name a duration such as 24h"
                problems.append(problem(("every", place), why))
        for place, (before, share) in enumerate(pairwise(self.at)):
            if share <= before:
                problems.append(problem(("at", place + 1), "must be greater than the one before"))
        return problems

    def problems(self, rest: Rest) -> list[InitErrorDetails]:
        """Return those of every series, of the grid with values of the field, and of windows with the rest.clock."""
        return [
            *super().problems(rest),
            *bin_problems(self.grouped_by, self.clamp, rest.fields),
            *window_lengths(rest.clock, self.windows),
            *window_lengths(rest.clock, self.every, key="every"),
        ]

    def choose(self, setting: Setting) -> Choice:
        """Choose a noisy maximum for windows that end, else a tree over the values."""
        if self.every:
            choice = tumbling_choice(setting, self.epsilon, self.every, self.at)
        else:
            choice = sliding_choice(setting, self.epsilon, self.views, self.at)
        if not self._fitted:
            return choice
        return choice.saying(
            f"{self.buckets} buckets, the number nearest to {BUCKETS} that divides the clamp into integers"
        )

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: releases tell the places of values."""


def _bucket_teller(grid: ValueGrid) -> Tell:
    """What tells the buckets of one window's quantiles: a clamped value is the clamp itself."""
    bucket = cache(grid.bucket)  # a window's are told at every tick until the next one ends

    def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
        places = zip(names, answer.tolist(), strict=True)
        return {"quantiles": {name: bucket(at) for name, at in places if at != UNTOLD}}

    return tell


def _place_teller(grid: ValueGrid) -> Tell:
    """What tells the places of one window's quantiles, and the values that are not ruled out."""
    last = len(grid.buckets) - 1

    def told(place: int, below: int, above: int) -> Quantile:
        return grid.between(Fraction(place, PARTS), below, last - above)

    def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
        rows = zip(names, answer.reshape(-1, EACH).tolist(), strict=True)
        return {"quantiles": {name: told(*row) for name, row in rows}}

    return tell
