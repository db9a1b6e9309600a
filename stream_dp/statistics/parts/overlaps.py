"""In how many of several filters one event can count at once, from the specification alone.

An event is a point, field by field, and a filter a box of points: the values of a category, a text or a boolean that it
takes, or the range of a number. The answer is the largest number of boxes around one point. Rules: never too small;
where the search gets long it stops with what is certainly enough, and for a message, which may take fewer steps, it
refuses before. Conditions on lists prove nothing disjoint, for an event may hold several of their values. This file
knows no watch and no budget.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

from stream_dp.engine.messages.work import take_steps
from stream_dp.records.conditions import Test

MOST_WORK = (
    5_000_000  # filters that a search looks at, group by group; those of a file need a few of each
)
_ORDERED = ("integer", "number")
_VALUED = ("equals", "one_of")

Chosen: TypeAlias = tuple[int, ...]


class Selection(NamedTuple):
    """A filter by its name: `ones` is how many entries behind it one event counts in, where it passes `where`."""

    name: str
    ones: int
    where: frozenset[Test]


class Overlap(NamedTuple):
    """`number` entries at most, and the `names` of filters that (may) reach it together."""

    number: int
    names: tuple[str, ...]


def deepest(filters: Sequence[Selection], fields: Mapping[str, Any]) -> Overlap:
    """Return the most entries that one event can count in, over all filters at once."""
    search = _Search(filters, fields)
    found = search.within(tuple(range(len(filters))), search.fields)
    return Overlap(search.weight(found), tuple(filters[at].name for at in found))


def beside(one: Selection, others: Sequence[Selection], fields: Mapping[str, Any]) -> Overlap:
    """Return the most entries that an event of `one` can count in, over it and the others.

    Never too small for those events, and never more than `deepest` finds for all filters: those that name other values
    of some field are left out, which proves most of very many apart at a glance.
    """
    named = {
        test.field: test.values
        for test in one.where
        if test.operator in _VALUED and fields[test.field].type != "list"
    }
    near = [other for other in others if not _apart(named, other.where)]
    return deepest([*near, one], fields)


def _apart(named: Mapping[str, frozenset[Any]], where: frozenset[Test]) -> bool:
    """Whether a filter names none of these values of a field."""
    return any(
        test.operator in _VALUED
        and test.field in named
        and named[test.field].isdisjoint(test.values)
        for test in where
    )


class _Group(NamedTuple):
    """Filters that take one value of a field: how many entries they have together, and which they are."""

    weight: int
    members: Callable[[], Chosen]


@dataclass(slots=True)
class _Search:
    """Branch and bound, one field after the other; `best` is the weight of the heaviest group found so far."""

    filters: Sequence[Selection]
    schema: Mapping[str, Any]
    best: int = 0
    work: int = 0

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that can prove filters disjoint, those that most filters test first."""
        number: dict[str, int] = {}
        for test in (test for one in self.filters for test in one.where):
            if self.schema[test.field].type != "list":
                number[test.field] = number.get(test.field, 0) + 1
        return tuple(sorted(number, key=lambda name: (-number[name], name)))

    def weight(self, chosen: Iterable[int]) -> int:
        """How many entries these filters have for one event."""
        return sum(self.filters[at].ones for at in chosen)

    def within(self, chosen: Chosen, fields: Sequence[str]) -> Chosen:
        """The heaviest of these filters with a point in common, by the fields that are left; or all of them."""
        self.work += len(chosen) + 1
        take_steps(len(chosen) + 1)
        if not fields or self.work > MOST_WORK or self.weight(chosen) <= self.best:
            self.best = max(self.best, self.weight(chosen))
            return chosen
        taken = {at: _tests(self.filters[at], fields[0]) for at in chosen}
        ordered = self.schema[fields[0]].type in _ORDERED
        groups = self._stretches(taken) if ordered else self._values(taken)
        heaviest: Chosen = ()
        for group in sorted(groups, key=lambda group: -group.weight):
            if group.weight <= self.weight(heaviest):
                break
            found = self.within(group.members(), fields[1:])
            heaviest = max(heaviest, found, key=self.weight)
        return heaviest

    def _values(self, taken: Mapping[int, Sequence[Test]]) -> Iterator[_Group]:
        """The filters that take each value that one of them names, and those that take all others."""
        named: dict[Any, list[int]] = {}
        for at, tests in taken.items():
            for value in frozenset.intersection(*(test.values for test in tests)) if tests else ():
                named.setdefault(value, []).append(at)
        free = [at for at, tests in taken.items() if not tests]
        every = self.weight(free)
        yield _Group(every, lambda: tuple(free))
        for some in dict.fromkeys(map(tuple, named.values())):
            yield _Group(every + self.weight(some), partial(_sorted, free, some))

    def _stretches(self, taken: Mapping[int, Sequence[Test]]) -> Iterator[_Group]:
        """The filters that take each number at which one begins or ends, and each stretch between two of these."""
        values = sorted({v for tests in taken.values() for test in tests for v in test.values})
        inside = {at: list(_spans(tests, values)) for at, tests in taken.items()}
        change = [0] * (2 * len(values) + 2)
        for at, spans in inside.items():
            for first, last in spans:
                change[first] += self.filters[at].ones
                change[last + 1] -= self.filters[at].ones
        for place, weight in enumerate(accumulate(change[:-1])):
            yield _Group(weight, partial(_around, inside, place))


def _tests(one: Selection, field: str) -> list[Test]:
    return [test for test in one.where if test.field == field]


def _sorted(free: Sequence[int], some: Sequence[int]) -> Chosen:
    return tuple(sorted([*free, *some]))


def _around(inside: Mapping[int, Sequence[tuple[int, int]]], place: int) -> Chosen:
    return tuple(
        at for at, spans in inside.items() if any(first <= place <= last for first, last in spans)
    )


def _spans(tests: Sequence[Test], values: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """From which to which place a filter reaches; value i is place 2 i + 1, the even places lie between values."""
    low, high = -math.inf, math.inf
    points: frozenset[Any] | None = None
    for test in tests:
        if test.operator == "at_least":
            low = max(low, *test.values)
        elif test.operator == "at_most":
            high = min(high, *test.values)
        else:
            points = test.values if points is None else points & test.values
    if points is not None:
        for point in points:
            if low <= point <= high:
                yield (2 * bisect_left(values, point) + 1,) * 2
        return
    first = 0 if low == -math.inf else 2 * bisect_left(values, low) + 1
    last = 2 * len(values) if high == math.inf else 2 * bisect_left(values, high) + 1
    if first <= last:
        yield first, last
