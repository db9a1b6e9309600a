"""The statistic `quantiles`: which values have a given share of the records below them, window by window.

Windows follow one another without a gap, the first from the series' first tick on; what is told of one at its end stays
until the next one ends. Values are told by the bucket of a public grid that they lie in.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.core.messages import IntArray
from stream_dp.mechanisms.tumbling_quantiles import UNTOLD, TumblingQuantiles
from stream_dp.pipeline.amount_units import plain_number
from stream_dp.pipeline.choice import Choice, Setting, steady
from stream_dp.pipeline.grouping_problems import by_problems
from stream_dp.pipeline.groupings import Edge, Edges, decimal_text
from stream_dp.pipeline.scalars import FieldName, milliseconds, problem, valid_or_none
from stream_dp.pipeline.statistics.series_spec import Place, SeriesSpec
from stream_dp.pipeline.windows import (
    EVER,
    Windows,
    window_lengths,
    window_problems,
    windows_sketched,
)
from stream_dp.runtime.release import Quantile, Shape
from stream_dp.runtime.series import Tell


def _clamp(value: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    if value[0] >= value[1]:
        raise ValueError(
            f"is empty: {decimal_text(value[0])} is not below {decimal_text(value[1])}"
        )
    return value


def _share(value: Fraction) -> Fraction:
    if not 0 < value < 1:
        raise ValueError(f"'{decimal_text(value)}' must be between 0 and 1, both excluded")
    return value


Clamp = Annotated[tuple[Edge, Edge], AfterValidator(_clamp)]
Shares = Annotated[
    tuple[Annotated[Edge, AfterValidator(_share)], ...], Field(min_length=1, max_length=20)
]
_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)


class QuantilesSeries(SeriesSpec):
    """Quantiles of the number `of` within `clamp`, in equal `buckets`, of each of the windows."""

    shape: ClassVar[Shape] = Shape.HISTOGRAM

    statistic: Literal["quantiles"] = "quantiles"
    of: FieldName
    clamp: Clamp
    buckets: Annotated[int, Field(ge=1, le=999)] = 200
    at: Shares
    windows: Annotated[Windows, Field(min_length=1)]

    @property
    def edges(self) -> tuple[Fraction, ...]:
        """The ends of the buckets, from the lowest value to the highest."""
        return _edges(self.clamp, self.buckets)

    @property
    def grouped_by(self) -> Edges:
        """The buckets, and what lies below, above, or is no number."""
        return Edges(field=self.of, edges=self.edges)

    @property
    def views(self) -> tuple[str, ...]:
        """The windows."""
        return self.windows

    @property
    def form(self) -> Shape:
        """Windows."""
        return Shape.WINDOWS

    def entries(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the quantiles, as they are named in releases."""
        return tuple(map(decimal_text, self.at))

    def teller(self, mechanism: Any, place: int | None, confidence: float) -> Tell:
        """Return what tells the buckets of one window's quantiles: a clamped value is the clamp itself."""
        low, high = self.clamp
        ends = [(low, low), *pairwise(self.edges), (high, high)]

        def tell(names: Sequence[str], answer: IntArray, tick: int, state: Any) -> dict[str, Any]:
            places = zip(names, answer.tolist(), strict=True)
            told = {name: _told(*ends[place]) for name, place in places if place != UNTOLD}
            return {"quantiles": told}

        return tell

    @property
    def about(self) -> str:
        """What is released, in a few words."""
        asked = ", ".join(map(decimal_text, self.at))
        return f"quantiles {asked} of {self.of} in each {', '.join(self.windows)}"

    @property
    def parameters(self) -> dict[str, int | str]:
        """The field, its clamp and the number of buckets."""
        low, high = map(decimal_text, self.clamp)
        return {"of": self.of, "clamp": f"{low} to {high}", "buckets": self.buckets}

    @classmethod
    def sketched(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return what can be read of a broken entry's conditions, windows and clamp."""
        clamp = valid_or_none(_CLAMP, value.get("clamp"))
        return {**super().sketched(value), **windows_sketched(value), "clamp": clamp}

    @classmethod
    def problems(
        cls, at: Place, series: Any, fields: Mapping[str, Any] | None
    ) -> list[InitErrorDetails]:
        """Return those of every series, of the quantiles and windows, and of the buckets as values of the field."""
        found = [*window_problems(at, series), *super().problems(at, series, fields)]
        for place, name in enumerate(series.windows):
            if name == EVER:
                why = "quantiles are told of windows that end: name a duration such as 24h"
                found.append(problem((*at, "windows", place), why))
        for place, (before, share) in enumerate(pairwise(getattr(series, "at", ()) or ())):
            if not (isinstance(share, Fraction) and before < share):
                here = (*at, "at", place + 1)
                found.append(problem(here, "must be greater than the one before"))
        if fields is None or not isinstance(series, QuantilesSeries):
            return found
        grid = by_problems(at, series.grouped_by, fields)
        return [*found, *(_placed(at, each, series) for each in grid)]

    @classmethod
    def clock_problems(cls, at: Place, series: Any, clock: Any) -> list[InitErrorDetails]:
        """Return which windows do not go with the clock."""
        return window_lengths(at, series, clock)

    def choose(self, setting: Setting) -> Choice:
        """Choose a bucket for each quantile of each window, at equal shares of the epsilon."""
        ticks = tuple(milliseconds(name) // setting.step for name in self.windows)
        mechanism = TumblingQuantiles(
            setting.width, self.epsilon, setting.neighbors, ticks, self.at, unranked=1
        )
        why = f"each choice has epsilon {mechanism.choice_epsilon}; errors are in ranks: events"
        chosen = steady(mechanism, why, setting)
        return Choice(mechanism, why, chosen.expected, dict.fromkeys(self.windows, chosen.expected))

    def exact(self, totals: IntArray, keys: Sequence[str]) -> None:
        """Return nothing: the totals of a run are those of no window."""


def _edges(clamp: tuple[Fraction, Fraction], buckets: int) -> tuple[Fraction, ...]:
    low, high = clamp
    return tuple(low + (high - low) * n / buckets for n in range(buckets + 1))


def _told(low: Fraction, high: Fraction) -> Quantile:
    """A bucket, and its middle; all three are public numbers of the grid."""
    value, low_, high_ = map(plain_number, ((low + high) / 2, low, high))
    return Quantile(value=value, low=low_, high=high_)


def _placed(at: Place, found: InitErrorDetails, series: QuantilesSeries) -> InitErrorDetails:
    """A problem of the grid, at the key that it comes from."""
    inner = tuple(found.get("loc", ()))[len(at) :]
    if inner[:2] == ("by", "field"):
        return {**found, "loc": (*at, "of")}
    low, high = map(decimal_text, series.clamp)
    why = (
        f"{series.buckets} equal buckets from {low} to {high} do not begin at values of '{series.of}': choose a number "
        "of buckets that divides the range"
    )
    return problem((*at, "buckets"), why)
