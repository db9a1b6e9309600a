"""The public grid over the values of a number field: equal buckets within a clamp, or declared edges.

A value below the grid counts at its lower end, one above at its upper end; each end is a bucket by itself, first and
last. Rules: a grid is public, and a value is told by public numbers of it. This file knows no mechanism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic_core import InitErrorDetails

from stream_dp.journal.release import Quantile
from stream_dp.records.amount_units import plain_number
from stream_dp.records.groupings import Edge, Edges, decimal_text
from stream_dp.records.scalars import problem, valid_or_none
from stream_dp.statistics.parts.grouping_problems import by_problems

BUCKETS, MOST_BUCKETS = 200, 999
_Place: TypeAlias = tuple[str | int, ...]


def _clamp(value: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    if value[0] >= value[1]:
        raise ValueError(
            f"is empty: {decimal_text(value[0])} is not below {decimal_text(value[1])}"
        )
    return value


Clamp = Annotated[tuple[Edge, Edge], AfterValidator(_clamp)]
Ends = Annotated[tuple[Edge, ...], Field(min_length=2, max_length=MOST_BUCKETS + 1)]
_CLAMP: TypeAdapter[Any] = TypeAdapter(Clamp)
_ENDS: TypeAdapter[Any] = TypeAdapter(Ends)


@dataclass(frozen=True)
class ValueGrid:
    """The `ends` of the buckets, from the lowest value to the highest."""

    ends: tuple[Fraction, ...]

    @classmethod
    def within(cls, clamp: tuple[Fraction, Fraction], buckets: int) -> "ValueGrid":
        """Return so many equal buckets."""
        low, high = clamp
        return cls(tuple(low + (high - low) * n / buckets for n in range(buckets + 1)))

    @cached_property
    def buckets(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """The two ends of each, those of the values beyond the grid among them."""
        low, high = self.ends[0], self.ends[-1]
        return ((low, low), *pairwise(self.ends), (high, high))

    def bucket(self, place: int) -> Quantile:
        """Return what is told of a bucket: its ends, and its middle."""
        low, high = self.buckets[place]
        ends = plain_number(low), plain_number(high)
        return Quantile(value=plain_number((low + high) / 2), bucket=ends)

    def between(self, place: Fraction, first: int, last: int) -> Quantile:
        """Return what is told of a place in buckets, and of the buckets from `first` to `last` that it may be in."""
        buckets = self.buckets
        low, high = buckets[int(place)]
        value = low + (high - low) * (place - int(place))
        ends = buckets[first][0], buckets[last][1]
        return Quantile(
            value=plain_number(value), low=plain_number(ends[0]), high=plain_number(ends[1])
        )


def _told_apart(value: int) -> int:
    if value < 2:
        raise ValueError("must be 2 or more: one bucket tells no value from another")
    return value


Buckets = Annotated[int, Field(le=MOST_BUCKETS), AfterValidator(_told_apart)]


def grid_sketched(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be read of a broken entry's grid."""
    return {
        "clamp": valid_or_none(_CLAMP, value.get("clamp")),
        "edges": valid_or_none(_ENDS, value.get("edges")),
        "grid_named": tuple(key for key in ("clamp", "edges") if key in value),
    }


def grid_problems(
    at: _Place, series: Any, fields: Mapping[str, Any] | None
) -> list[InitErrorDetails]:
    """Return what a series, or a sketch of it, says of its grid and must not."""
    clamp, edges = getattr(series, "clamp", None), getattr(series, "edges", None)
    named = getattr(series, "grid_named", None)
    if named is None:
        named = tuple(key for key in ("clamp", "edges") if getattr(series, key) is not None)
    if not named:
        return [problem((*at, "clamp"), "is missing: name a range such as [0, 600], or edges")]
    if len(named) == 2:
        return [problem((*at, "edges"), "stands beside clamp: the first and the last are one")]
    if clamp is None and edges is None:
        return []
    buckets, found = getattr(series, "buckets", None), []
    if edges is not None and buckets is not None:
        found.append(problem((*at, "buckets"), "stands beside edges: the edges make the buckets"))
    of = getattr(series, "of", None)
    if fields is None or not isinstance(of, str) or not isinstance(buckets, int | None):
        return found
    many = buckets or (BUCKETS if clamp is None else default_buckets(fields.get(of), clamp))
    ends = edges if clamp is None else ValueGrid.within(clamp, many).ends
    grid = by_problems(at, Edges.model_construct(field=of, edges=tuple(ends or ())), fields)
    if clamp is None:
        return [*found, *(_at_edges(at, each) for each in grid)]
    return [*found, *_at_buckets(at, grid, series, many)]


def _at_edges(at: _Place, found: InitErrorDetails) -> InitErrorDetails:
    """A problem of the grid at the edge, or the field, that it comes from."""
    inner = tuple(found.get("loc", ()))[len(at) + 1 :]
    return {**found, "loc": (*at, "of") if inner[0] == "field" else (*at, *inner)}


def default_buckets(field: Any, clamp: tuple[Fraction, Fraction]) -> int:
    """Return into how many buckets the clamp is cut where nobody says it: of an integer field, such as begin there.

    `field` is that of the schema, None where it is broken.
    """
    whole = getattr(field, "type", None) == "integer"
    return (_fitting(clamp, BUCKETS) if whole else None) or BUCKETS


def _fitting(clamp: tuple[Fraction, Fraction], wanted: int) -> int | None:
    """The number of equal buckets nearest to what is `wanted`, by ratio, that begin at integers; None: there is none.

    >>> [_fitting((Fraction(low), Fraction(400)), BUCKETS) for low in (0, -20, 393, -1, "1/2", -609)]
    [200, 210, 7, 401, None, None]
    """
    low, span = clamp[0], clamp[1] - clamp[0]
    if low.denominator != 1 or span.denominator != 1:
        return None
    some = (many for many in range(2, min(MOST_BUCKETS, int(span)) + 1) if span % many == 0)
    return min(
        some, key=lambda many: max(Fraction(many, wanted), Fraction(wanted, many)), default=None
    )


def _at_buckets(
    at: _Place, grid: list[InitErrorDetails], series: Any, many: int
) -> list[InitErrorDetails]:
    """Problems of equal buckets, at the key that they come from; one for all their ends."""
    found = [
        {**each, "loc": (*at, "of")}
        for each in grid
        if tuple(each.get("loc", ()))[len(at) + 1 :][:1] == ("field",)
    ]
    if found or not grid:
        return found  # type: ignore[return-value]  # a dictionary with another place
    low, high = map(decimal_text, series.clamp)
    fits = _fitting(series.clamp, many)
    if fits is None:
        why = (
            f"from {low} to {high} no 2 to {MOST_BUCKETS} equal buckets begin at values of '{series.of}': name other "
            "integers, or edges"
        )
        return [problem((*at, "clamp"), why)]
    why = (
        f"{many} equal buckets from {low} to {high} do not begin at values of '{series.of}': choose a number of "
        f"buckets that divides the range, such as buckets: {fits}, or leave it out"
    )
    return [problem((*at, "buckets"), why)]
