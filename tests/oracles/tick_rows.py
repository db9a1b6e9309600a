"""What records add to the rows of ticks: one record, one feature and one comparison after another, in plain Python.

The rules: a record counts in a feature if it passes all its tests, in the entry of its category, which is the last one
where the category is unknown or null; of a list, in the entry of each text that it holds, once; of a number, in the bin
that it lies in; of a tick's hour or weekday, in that of the tick's first moment; of several of these, in every
combination. Null passes no test. Integers are Python's own, so that none is ever rounded.
"""

from collections.abc import Callable, Mapping, Sequence
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
class Named:
    """Go by a category or list with this domain."""

    field: str
    domain: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.domain) + 1

    def places(self, record: Values, moment: int) -> set[int]:
        value = record[self.field]
        every: Sequence[Scalar | None] = value if isinstance(value, tuple) else (value,)
        known = {text: at for at, text in enumerate(self.domain)}
        return {
            known.get(str(each), len(known)) if each is not None else len(known) for each in every
        }


@dataclass(frozen=True)
class Binned:
    """Go by a number: below the first edge, from each one to the next, from the last one on, null."""

    field: str
    edges: tuple[int | float, ...]

    @property
    def size(self) -> int:
        return len(self.edges) + 2

    def places(self, record: Values, moment: int) -> set[int]:
        value = record[self.field]
        if value is None:
            return {len(self.edges) + 1}
        return {sum(1 for edge in self.edges if value >= edge)}  # type: ignore[operator,misc]


@dataclass(frozen=True)
class Clocked:
    """Go by the hour, or the weekday (Monday is 0), of a clock that is `ahead` ms of UTC."""

    weekday: bool
    ahead: int = 0

    @property
    def size(self) -> int:
        return 7 if self.weekday else 24

    def places(self, record: Values, moment: int) -> set[int]:
        hours = (moment + self.ahead) // 3_600_000
        return {(hours // 24 + 3) % 7 if self.weekday else hours % 24}


Going: TypeAlias = Named | Binned | Clocked


@dataclass(frozen=True)
class Added:
    """Add a number's units: clamped, in steps, rounded with halves to the even one, and never beyond the bounds."""

    field: str
    lowest: int
    highest: int
    step: float

    def units(self, record: Values) -> int:
        value = record[self.field]
        if value is None:
            return 0
        low, high = self.lowest * self.step, self.highest * self.step
        clamped = min(max(float(value), low), high)  # type: ignore[arg-type]
        return min(max(round(clamped / self.step), self.lowest), self.highest)


@dataclass(frozen=True)
class Counted:
    """A feature: where its entries start, what it counts by (all combinations, the last changes fastest), its tests."""

    start: int
    by: tuple[Going, ...]
    where: tuple[Comparison, ...]
    of: Added | None = None

    def entries(self, record: Values, moment: int) -> set[int]:
        if not all(test.passes(record[test.field]) for test in self.where):
            return set()
        found = {0}
        for going in self.by:
            found = {at * going.size + p for at in found for p in going.places(record, moment)}
        return {self.start + at for at in found}


def tick_rows(
    records: Sequence[Values],
    ticks: Sequence[int],
    features: Sequence[Counted],
    width: int,
    begins: Callable[[int], int] = lambda tick: 0,
) -> dict[int, list[int]]:
    """The rows of shape (width,) by tick, to which record `records[i]` adds in tick `ticks[i]`.

    `begins` says at which moment, in ms since 1970, a tick begins.
    """
    rows: dict[int, list[int]] = {}
    for record, tick in zip(records, ticks, strict=True):
        row = rows.setdefault(tick, [0] * width)
        for feature in features:
            for entry in feature.entries(record, begins(tick)):
                row[entry] += 1 if feature.of is None else feature.of.units(record)
    return rows
