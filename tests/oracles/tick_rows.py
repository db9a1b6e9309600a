"""What records add to the rows of ticks: one record, one feature and one comparison after another, in plain Python.

The rules: a record counts in a feature if it passes all its tests, in the entry of its category, which is the last one
where the category is unknown or null; of a list, in the entry of each text that it holds, once. Null passes no test.
Integers are Python's own, so that none is ever rounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = Scalar | tuple[str, ...]
Values: TypeAlias = Mapping[str, Value | None]


@dataclass(frozen=True)
class Comparison:
    """Compare a field with public values: `at_least` and `at_most` with the only one, else with each."""

    field: str
    operator: str
    values: tuple[Scalar, ...]

    def passes(self, value: Value | None) -> bool:
        """Whether a value passes."""
        if value is None:
            return False
        if self.operator == "at_least":
            return value >= self.values[0]  # type: ignore[operator]
        if self.operator == "at_most":
            return value <= self.values[0]  # type: ignore[operator]
        if self.operator == "contains":
            return self.values[0] in value  # type: ignore[operator]
        return value in self.values


@dataclass(frozen=True)
class Counted:
    """A feature: where its entries start, the category that it counts by with its domain, and its tests."""

    start: int
    by: str | None
    domain: tuple[str, ...]
    where: tuple[Comparison, ...]

    def entries(self, record: Values) -> set[int]:
        """The entries of the row in which a record counts."""
        if not all(test.passes(record[test.field]) for test in self.where):
            return set()
        if self.by is None:
            return {self.start}
        named = record[self.by]
        every = named if isinstance(named, tuple) else (named,)
        return {self.start + self._place(each) for each in every}

    def _place(self, category: Scalar | None) -> int:
        known = category in self.domain
        return self.domain.index(str(category)) if known else len(self.domain)


def tick_rows(
    records: Sequence[Values], ticks: Sequence[int], features: Sequence[Counted], width: int
) -> dict[int, list[int]]:
    """The rows of shape (width,) by tick, to which record `records[i]` adds in tick `ticks[i]`."""
    rows: dict[int, list[int]] = {}
    for record, tick in zip(records, ticks, strict=True):
        row = rows.setdefault(tick, [0] * width)
        for feature in features:
            for entry in feature.entries(record):
                row[entry] += 1
    return rows
