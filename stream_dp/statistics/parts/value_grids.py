"""The public grid over the values of a number field: equal buckets within a clamp, or declared edges.

A value below the grid counts at its lower end, one above at its upper end; each end is a bucket by itself, first and
last. Rules: a grid is public, and a value is told by public numbers of it. This file knows no mechanism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import InitErrorDetails

from stream_dp.journal.release import Quantile
from stream_dp.records.amount_units import plain_number
from stream_dp.records.groupings import Edge, Edges, by_problems, decimal_text
from stream_dp.records.scalars import problem
from stream_dp.records.schema import Fields, FieldSpec

BUCKETS, MOST_BUCKETS = 200, 999


def _clamp(value: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    if value[0] >= value[1]:
        raise ValueError(
            f"is empty: {decimal_text(value[0])} is not below {decimal_text(value[1])}"
        )
    return value


Clamp = Annotated[tuple[Edge, Edge], AfterValidator(_clamp)]
Ends = Annotated[tuple[Edge, ...], Field(min_length=2, max_length=MOST_BUCKETS + 1)]


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


def grid_problems(
    clamp: tuple[Fraction, Fraction] | None,
    edges: Sequence[Fraction] | None,
    buckets: int | None,
) -> list[InitErrorDetails]:
    """Return what the keys of a grid say together and must not."""
    if clamp is None and edges is None:
        return [problem(("clamp",), "is missing: name a range such as [0, 600], or edges")]
    if clamp is not None and edges is not None:
        return [problem(("edges",), "stands beside clamp: the first and the last are one")]
    if edges is not None and buckets is not None:
        return [problem(("buckets",), "stands beside edges: the edges make the buckets")]
    return []


def bin_problems(
    bins: Edges, clamp: tuple[Fraction, Fraction] | None, fields: Fields
) -> list[InitErrorDetails]:
    """Return what the buckets of a grid and the schema say together and must not, at the keys that they come from."""
    problems = by_problems((), bins, fields)
    if clamp is None:
        return [_at_edges(each) for each in problems]
    of_field = [_at_edges(each) for each in problems if each.get("loc") == ("field",)]
    return of_field or (_bucket_problems(bins, clamp) if problems else [])


def _at_edges(wrong: InitErrorDetails) -> InitErrorDetails:
    """A problem of the grid at the edge, or the field, that it comes from."""
    return {**wrong, "loc": ("of",)} if wrong.get("loc") == ("field",) else wrong


def default_buckets(field: FieldSpec | None, clamp: tuple[Fraction, Fraction]) -> int:
    """Return into how many buckets the clamp is cut where nobody says it: of an integer field, such as begin there.

    `field` is None where the schema has none of its name.
    """
    whole = field is not None and field.type == "integer"
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


def _bucket_problems(bins: Edges, clamp: tuple[Fraction, Fraction]) -> list[InitErrorDetails]:
    """One problem for all the ends of equal buckets that are no values of their field."""
    low, high = map(decimal_text, clamp)
    many, fits = len(bins.edges) - 1, _fitting(clamp, len(bins.edges) - 1)
    if fits is None:
        why = (
            f"from {low} to {high} no 2 to {MOST_BUCKETS} equal buckets begin at values of '{bins.field}': name other "
            "integers, or edges"
        )
        return [problem(("clamp",), why)]
    why = (
        f"{many} equal buckets from {low} to {high} do not begin at values of '{bins.field}': choose a number of "
        f"buckets that divides the range, such as buckets: {fits}, or leave it out"
    )
    return [problem(("buckets",), why)]
