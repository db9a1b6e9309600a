"""Boxes: which records a mechanism may see, as conditions on single fields.

Rules: null, and a field that a record does not have, lie in no stretch, and in a set only where it lists None: a box
without a side on a field holds them. A field has one type, so values are only ever compared within their field.
Stretches are closed; the one without ends is all that is not null, of any type.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

_SHOWN = 5  # values of a side in a text


class Stretch(NamedTuple):
    """All numbers from `low` to `high`, both included; None: no end on this side."""

    low: float | None = None
    high: float | None = None


Side: TypeAlias = frozenset[Any] | Stretch
_EMPTY: frozenset[Any] = frozenset()


def holds(side: Side, value: Any) -> bool:
    """Return whether a value, or null, lies in a side."""
    if not isinstance(side, Stretch):
        return value in side
    low, high = side
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def intersection(first: Side, second: Side) -> Side:
    """Return the values that lie in both sides, in one form for one set: an empty frozenset if there are none."""
    if not isinstance(first, Stretch):
        if not isinstance(second, Stretch):
            return first & second
        return frozenset([value for value in first if holds(second, value)])
    if not isinstance(second, Stretch):
        return frozenset([value for value in second if holds(first, value)])
    (low, high), (other_low, other_high) = first, second
    if low is None or (other_low is not None and other_low > low):
        low = other_low
    if high is None or (other_high is not None and other_high < high):
        high = other_high
    return _plain(Stretch(low, high))


def union(first: Side, second: Side) -> Side | None:
    """Return the smallest side that holds both; None: no side does, for one has null and the other is a stretch."""
    if isinstance(first, frozenset) and isinstance(second, frozenset):
        return first | second
    lows, highs = list[Any](), list[Any]()
    for side in (first, second):
        if isinstance(side, Stretch):
            lows.append(side.low)
            highs.append(side.high)
        elif None in side:
            return None
        else:
            lows += side
            highs += side
    return Stretch(None if None in lows else min(lows), None if None in highs else max(highs))


def _plain(side: Side) -> Side:
    """Return a stretch of a single number as a set of one value, and a stretch of none as the empty set."""
    if not isinstance(side, Stretch) or side.low is None or side.high is None:
        return side
    if side.low == side.high:
        return frozenset([side.low])
    return side if side.low < side.high else _EMPTY


@dataclass(frozen=True, slots=True)
class Box:
    """The records whose fields lie in all `sides`; several sides of one field are joined to their intersection.

    Equal sets of records may be different boxes where a type says more than a side: the integers from 1 to 2 are not
    the set of 1 and 2. `order` sorts boxes the same way in every process.
    """

    sides: tuple[tuple[str, Side], ...] = ()
    order: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        joined: dict[str, Side] = {}
        for name, side in self.sides:
            joined[name] = intersection(joined[name], side) if name in joined else _plain(side)
        sides = tuple(sorted(joined.items(), key=lambda pair: pair[0]))
        if not all(side for _, side in sides):
            sides = (("", _EMPTY),)  # one form of the box that holds nothing
        object.__setattr__(self, "sides", sides)
        object.__setattr__(self, "order", repr([(name, _listed(side)) for name, side in sides]))

    @property
    def nowhere(self) -> bool:
        """Whether no record lies in it."""
        return len(self.sides) == 1 and not self.sides[0][1]

    def meets(self, other: "Box") -> bool:
        """Return whether the boxes have a point in common; on an integer field perhaps one that is no integer."""
        if self.nowhere or other.nowhere:
            return False
        sides = dict(other.sides)
        return all(
            name not in sides or intersection(side, sides[name]) for name, side in self.sides
        )

    def cut(self, other: "Box") -> "Box":
        """Return the box of the records that lie in both."""
        return Box(self.sides + other.sides)

    def __str__(self) -> str:
        if self.nowhere:
            return "no record"
        return " and ".join(_text(name, side) for name, side in self.sides) or "every record"


def _listed(side: Side) -> tuple[Any, ...]:
    return tuple(side) if isinstance(side, Stretch) else ("of", *_sorted(side))


def _sorted(values: frozenset[Any]) -> list[Any]:
    known = [value for value in values if value is not None]
    ordered = sorted(known, key=lambda value: (isinstance(value, str), value))
    return ordered if None not in values else [*ordered, None]


def _text(name: str, side: Side) -> str:
    if isinstance(side, Stretch):
        match side:
            case (None, None):
                return f"{name} is not null"
            case (low, None):
                return f"{name} {_end(low, ('at least', 'above'), -math.inf)}"
            case (None, high):
                return f"{name} {_end(high, ('at most', 'below'), math.inf)}"
        return f"{name} from {_written(side.low)} to {_written(side.high)}"
    values = [_written(value) for value in _sorted(side)[:_SHOWN]]
    if len(side) == 1:
        return f"{name} is null" if None in side else f"{name} = {values[0]}"
    more = ", ..." if len(side) > _SHOWN else ""
    return f"{name} one of {', '.join(values)}{more}"


def _end(value: Any, words: tuple[str, str], outwards: float) -> str:
    """Return an end as people read it: a number just inside another, shorter one as open there.

    >>> _end(5.000000000000001, ("at least", "above"), -math.inf), _end(0.1, ("at least", "above"), -math.inf)
    ('above 5', 'at least 0.1')
    """
    closed = _written(value)
    if isinstance(value, float) and len(past := _written(math.nextafter(value, outwards))) < len(
        closed
    ):
        return f"{words[1]} {past}"
    return f"{words[0]} {closed}"


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


EVERYTHING = Box()
NOWHERE = Box((("", _EMPTY),))
