"""What records add to the rows of ticks: one record, one feature and one comparison after another, in plain Python.

The rules: a record counts in a feature if it passes all its tests, in the entry of its category, which is the last one
where the category is unknown or null. Null passes no test. Integers are Python's own, so that none is ever rounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool
Values: TypeAlias = Mapping[str, Scalar | None]


@dataclass(frozen=True)
class Comparison:
    """Compare a field with public values: `at_least` and `at_most` with the only one, else with each."""

    field: str
    operator: str
    values: tuple[Scalar, ...]

    def passes(self, value: Scalar | None) -> bool:
        """Whether a value passes."""
        if value is None:
            return False
        if self.operator == "at_least":
            return value >= self.values[0]  # type: ignore[operator]
        if self.operator == "at_most":
            return value <= self.values[0]  # type: ignore[operator]
        return value in self.values


@dataclass(frozen=True)
class Counted:
    """A feature: where its entries start, the category that it counts by with its domain, and its tests."""

    start: int
    by: str | None
    domain: tuple[str, ...]
    where: tuple[Comparison, ...]

    def entry(self, record: Values) -> int | None:
        """The entry of the row in which a record counts, None where it counts in none."""
        if not all(test.passes(record[test.field]) for test in self.where):
            return None
        if self.by is None:
            return self.start
        category = record[self.by]
        known = category in self.domain
        return self.start + (self.domain.index(str(category)) if known else len(self.domain))


def tick_rows(
    records: Sequence[Values], ticks: Sequence[int], features: Sequence[Counted], width: int
) -> dict[int, list[int]]:
    """The rows of shape (width,) by tick, to which record `records[i]` adds in tick `ticks[i]`."""
    rows: dict[int, list[int]] = {}
    for record, tick in zip(records, ticks, strict=True):
        row = rows.setdefault(tick, [0] * width)
        for feature in features:
            entry = feature.entry(record)
            if entry is not None:
                row[entry] += 1
    return rows
