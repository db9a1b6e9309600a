"""The test that a function must pass before it may decide or be released as a quantity.

All points of a small lattice and made-up sums up to 2^40 are tried, always the same ones: no source of randomness is
touched. Rules: a refusal names the property and the point where it fails; points are made up here, so they are public.
A function is asked in several orders, and its code is looked at for places where it could keep a state. This file knows
no registry and no mechanism.
"""

import dis
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import getclosurevars
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.errors import UsageError

Function: TypeAlias = Callable[[IntArray], int]
Point: TypeAlias = tuple[int, ...]

LARGEST = 1 << 60
MOST_COLUMNS = 1_000
WIDE = 64  # from so many columns on, less is tried at each point
LATTICES = (
    (1, 9),
    (2, 6),
    (3, 4),
    (5, 3),
)  # (columns, values 0..n-1): all points; the last one where not wide
MADE_UP = 60  # points beyond the lattice
STEPS = (24, 8)  # events tried at each point, at most; where it is wide
WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "YIELD_VALUE"}
SCALARS = (int, float, str, bytes, bool, type(None))
READABLE = (ModuleType, FunctionType, BuiltinFunctionType, type, np.ufunc)


@dataclass(frozen=True, slots=True)
class Stated:
    """What is said of a function: rows of `width` entries, events of at most `ones` ones, its Lipschitz constant."""

    width: int
    relation: Neighbors
    ones: int
    lipschitz: int


def tested(name: str, function: Function, stated: Stated) -> int:
    """Return in how many cases everything that is stated was found to hold.

    Raises:
        UsageError: something does not; the message says what, and where.
    """
    _well_stated(name, stated)
    _stateless_code(name, function)
    asked = _Asked(name, function)
    cases = 0
    for point in points(stated.width):
        cases += _try_at(asked, point, stated)
    cases += _try_across(asked, stated)
    _same_in_any_order(asked)
    return cases


def called(function: Function, sums: IntArray) -> int:
    """Return the function's value at a copy of these sums that cannot be written to.

    Raises:
        UsageError: it fails, or its value is no integer from 0 to 2^60; no number is repeated.
    """
    given = sums.copy()
    given.setflags(write=False)
    try:
        value: Any = function(given)
    except Exception as error:  # noqa: BLE001 - whatever somebody's code does
        raise UsageError(f"it raises {type(error).__name__}") from None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UsageError(f"it returns a {type(value).__name__}, and must return an integer")
    if not 0 <= value <= LARGEST:
        raise UsageError("it returns a number outside 0 to 2^60")
    return int(value)


def points(width: int) -> Iterator[Point]:
    """Where a function of `width` sums is tried: a whole lattice in some columns, and made-up sums of every size."""
    for columns, values in LATTICES:
        if columns <= width < WIDE or columns < LATTICES[-1][0] <= width:
            places = {(i * (width - 1)) // max(1, columns - 1) for i in range(columns)}
            for inside in itertools.product(range(values), repeat=len(places)):
                point = [0] * width
                for place, value in zip(sorted(places), inside, strict=True):
                    point[place] = value
                yield tuple(point)
    for number in range(MADE_UP):
        size = 1 + 40 * number // MADE_UP
        equal = number % 3 == 2  # many ties
        yield tuple(
            _made_up(number, 0 if equal and i % 2 else i) % (1 << size) for i in range(width)
        )


class _Asked:
    """A function and what it has answered; another answer at a point where it was asked before is refused."""

    def __init__(self, name: str, function: Function) -> None:
        self.name = name
        self._function = function
        self.answers: dict[Point, int] = {}

    def at(self, point: Point) -> int:
        """The value, asked for anew each time."""
        try:
            value = called(self._function, np.array(point, dtype=np.int64))
        except UsageError as error:
            _refused(self.name, f"{error}; at {_shown(point)}")
        if self.answers.setdefault(point, value) != value:
            _refused(
                self.name,
                f"it gives {self.answers[point]} and {value} at the same sums {_shown(point)}: it must depend on "
                "nothing else",
            )
        return value


def _try_at(asked: _Asked, point: Point, stated: Stated) -> int:
    """Check everything at one point and return the number of cases."""
    here = asked.at(point)
    after = {row: asked.at(_plus(point, row)) for row in _events(stated, sum(point) % 7)}
    for row, value in after.items():
        if value < here:
            _refused(
                asked.name,
                f"not monotone: {here} at {_shown(point)}, {value} at {_shown(_plus(point, row))}",
            )
    low = here if stated.relation is Neighbors.ADD_REMOVE else min(here, *after.values())
    for row, value in after.items():
        if value - low > 1:
            _refused(
                asked.name,
                f"one event changes it by {value - low} under {stated.relation}, at most 1 is allowed: {low} beside "
                f"{value} at {_shown(_plus(point, row))}",
            )
    raised = asked.at(tuple(x + 1 for x in point))
    if raised - here > stated.lipschitz:
        _refused(
            asked.name,
            f"not {stated.lipschitz}-Lipschitz: {here} at {_shown(point)}, and {raised} where every entry is 1 larger",
        )
    return len(after) + 2


def _try_across(asked: _Asked, stated: Stated) -> int:
    """Compare points far from each other, where no entry of one is above the other's; return the number of pairs."""
    tried = list(dict.fromkeys(points(stated.width)))
    every = np.array(tried, dtype=np.int64)
    values = np.array([asked.answers[point] for point in tried], dtype=np.int64)
    compared = 0
    for point, here in zip(tried, values, strict=True):
        apart = every - np.array(point, dtype=np.int64)
        rise, gap = values - here, apart.max(axis=1)
        above = (apart >= 0).all(axis=1)
        wrong = above & ((rise < 0) | (rise > stated.lipschitz * gap))
        if wrong.any():
            at = int(wrong.argmax())
            what = "monotone" if rise[at] < 0 else f"{stated.lipschitz}-Lipschitz"
            there = f"{values[at]} at {_shown(tried[at])}"
            _refused(asked.name, f"not {what}: {here} at {_shown(point)}, {there}")
        compared += int(above.sum())
    return compared


def _events(stated: Stated, turn: int) -> Iterator[Point]:
    """What one event may add: all rows with at most `ones` ones, or some of them, others at each turn."""
    sizes = range(1, min(stated.ones, stated.width) + 1)
    rows = itertools.chain.from_iterable(
        itertools.combinations(range(stated.width), size) for size in sizes
    )
    steps = STEPS[stated.width >= WIDE]
    every = list(itertools.islice(rows, steps + 1))
    if len(every) > steps:
        every = [_some(stated.width, sizes, turn, number) for number in range(steps)]
    for ones in every:
        yield tuple(int(i in ones) for i in range(stated.width))


def _some(width: int, sizes: Sequence[int], turn: int, number: int) -> tuple[int, ...]:
    """Made-up places of ones: single ones first, then more."""
    size = sizes[number % len(sizes)]
    begin = _made_up(turn, number) % width
    stride = 1 + _made_up(number, turn) % max(1, width // size)
    return tuple((begin + i * stride) % width for i in range(size))


def _same_in_any_order(asked: _Asked) -> None:
    """Ask again at every point: backwards, then in an order by digest, then each one twice."""
    every = list(asked.answers)
    for point in every[::-1]:
        asked.at(point)
    for point in sorted(every, key=lambda p: hashlib.sha256(repr(p).encode()).digest()):
        asked.at(point)
        asked.at(point)


def _stateless_code(name: str, function: object, seen_before: tuple[object, ...] = ()) -> None:
    """Refuse what could remember, in the function and in those it calls by their own names: objects, written globals
    and closures, defaults and closures that may change.
    """
    if not isinstance(function, FunctionType):
        _refused(name, "it must be a plain function, no object with a state of its own")
    for code in _codes(function.__code__):
        found = {each.opname for each in dis.get_instructions(code)} & WRITES
        outer = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF"}
        if found or outer & set(code.co_freevars):
            _refused(name, "its code writes to something that outlives a call, or yields")
    seen = getclosurevars(function)
    kept = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in (*seen.nonlocals.values(), *seen.globals.values(), *kept):
        if isinstance(value, FunctionType) and value not in (*seen_before, function):
            _stateless_code(name, value, (*seen_before, function))
        elif not (_constant(value) or isinstance(value, READABLE)):
            _refused(
                name,
                f"it reads a {type(value).__name__} from outside, which may change: pass constants only",
            )


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(_constant(each) for each in value)
    return isinstance(value, SCALARS)


def _well_stated(name: str, stated: Stated) -> None:
    if not name or not name.isidentifier():
        raise UsageError("quantity: its name must be letters, digits and _")
    if stated.relation is Neighbors.REPLACE_ANY_TICK:
        _refused(name, "state it for add_remove or replace; mechanisms are made for these")
    if not 1 <= stated.width <= MOST_COLUMNS:
        _refused(name, f"the width must lie from 1 to {MOST_COLUMNS}")
    if stated.ones < 1 or stated.lipschitz < 1:
        _refused(name, "ones and the Lipschitz constant are at least 1")


def _refused(name: str, why: str) -> NoReturn:
    """Refuse a function (UsageError)."""
    raise UsageError(f"quantity {name!r}: {why}. Nothing was registered")


def _shown(point: Point) -> str:
    """A point as text, not too long."""
    text = ", ".join(map(str, point[:8]))
    return f"({text}{', ...' if len(point) > 8 else ''})"


def _plus(point: Point, row: Point) -> Point:
    return tuple(x + e for x, e in zip(point, row, strict=True))


def _made_up(a: int, b: int) -> int:
    """A number by digest, the same each time."""
    return int.from_bytes(hashlib.sha256(f"{a} {b}".encode()).digest()[:8], "big")
