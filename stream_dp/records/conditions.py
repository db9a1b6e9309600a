"""Which records a series selects: the conditions of `where:`.

Rules: conditions keep what was written; `tests_of` says what they mean beside the fields. Null makes a comparison
neither true nor false, as in SQL: it passes no comparison and no `not` of one. Only `is_null` tells it.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.core.box import NOWHERE, Box, Side, Stretch, intersection, union
from stream_dp.records.scalars import OTHER, Frozen, Value, exact, problem
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    Fields,
    IntegerField,
    ListField,
    NumberField,
)

OPERATORS = ("at_least", "at_most", "equals", "one_of", "contains", "is_null")
_SAME, _ORDER, _NULL = ("equals", "one_of"), OPERATORS[:4], "is_null"
_ALLOWED = {
    "integer": (*_ORDER, _NULL), "number": (*_ORDER, _NULL), "boolean": ("equals", _NULL),
    "category": (*_SAME, _NULL), "text": (*_SAME, _NULL), "list": ("contains",),
}  # fmt: skip
_COMBINING = ("any", "all", "not")
_TRUTHS = ("false", "true")
_INT64 = 2**63
_FEW = 10_000  # integers between two bounds that are looked at one by one
_SMALL = 1_000  # values of a domain of which all but some are named
_DEEPEST = 8  # conditions within one another
_TRIED = 64  # ways to pass alternatives that are looked at one by one
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class NoSuchValueError(ValueError):
    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names


class Condition(Frozen):
    """A comparison of one `field` with public values; or other conditions: `any` or `all` of them, or `not` one."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "maxProperties": 2,
            "if": {"required": ["field"]},
            "then": {"minProperties": 2},
            "else": {"maxProperties": 1},
        }
    )

    field: str | None = None
    at_least: Value | None = None
    at_most: Value | None = None
    equals: Value | None = None
    one_of: Annotated[tuple[Value, ...], Field(min_length=1)] | None = None
    contains: Value | None = None
    is_null: bool | None = None
    any: Annotated[tuple["Condition", ...], Field(min_length=1)] | None = None
    all: Annotated[tuple["Condition", ...], Field(min_length=1)] | None = None
    not_: Annotated["Condition | None", Field(alias="not")] = None

    @model_validator(mode="after")
    def _one_operator(self) -> "Condition":
        given = [
            name for name in (*OPERATORS, "any", "all", "not_") if getattr(self, name) is not None
        ]
        if self.field is not None:
            if len(given) != 1 or given[0] not in OPERATORS:
                raise ValueError(f"needs exactly one of {', '.join(OPERATORS)}")
        elif len(given) != 1 or given[0] in OPERATORS:
            raise ValueError(f"needs a field, or exactly one of {', '.join(_COMBINING)}")
        elif self.depth > _DEEPEST:
            raise ValueError(f"holds conditions that are more than {_DEEPEST} deep")
        return self

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for _, part in self.parts), default=0)

    @property
    def parts(self) -> "Sequence[tuple[tuple[str | int, ...], Condition]]":
        """The conditions that it is made of, each with its place; none where it is a comparison."""
        if self.field is not None:
            return ()
        if self.not_ is not None:
            return ((("not",), self.not_),)
        listed = enumerate(self.any or self.all or ())
        return [((self.combines, at), part) for at, part in listed]

    @property
    def combines(self) -> str:
        """How it is made of its parts."""
        return "not" if self.not_ is not None else "all" if self.any is None else "any"

    @property
    def operator(self) -> str:
        given = ""
        for name in OPERATORS:  # of a hundred thousand conditions: no generator
            if getattr(self, name) is not None:
                given = name
        return given

    @property
    def texts(self) -> tuple[str, ...]:
        value: str | bool | tuple[str, ...] = getattr(self, self.operator)
        if isinstance(value, bool):
            return (_TRUTHS[value],)
        return (value,) if isinstance(value, str) else value

    @property
    def text(self) -> str:
        """The condition as people read it: "amount at least 1000"."""
        if self.not_ is not None:
            text = self.not_.text
            return f"not {text}" if text.startswith("(") else f"not ({text})"
        if self.field is None:
            joined = " or " if self.combines == "any" else " and "
            return "(" + joined.join(part.text for _, part in self.parts) + ")"
        if self.is_null is not None:
            return f"{self.field} is {'null' if self.is_null else 'not null'}"
        return f"{self.field} {self.operator.replace('_', ' ')} {', '.join(self.texts)}"


Where: TypeAlias = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """A condition with its values in the field's type: a comparison, or whether the field `is_null`."""

    __test__ = False

    field: str
    operator: str
    values: frozenset[Any]

    @property
    def fields(self) -> Iterator[str]:
        yield self.field


@dataclass(frozen=True, slots=True)
class Fails:
    """The field has a value, and the test of it does not hold."""

    test: Test

    @property
    def fields(self) -> Iterator[str]:
        yield self.test.field


@dataclass(frozen=True, slots=True)
class AnyOf:
    """All needs of one alternative hold, or of several."""

    alternatives: "frozenset[Needs]"

    @property
    def fields(self) -> Iterator[str]:
        return (name for needs in self.alternatives for need in needs for name in need.fields)


Needs: TypeAlias = frozenset[Test | Fails | AnyOf]
"""What a record must pass, all of it."""


def tests_of(fields: Mapping[str, Any], where: Where) -> Needs:
    return frozenset([need for condition in where for need in _needs(fields, condition)])


def _needs(fields: Mapping[str, Any], condition: Condition, *, holds: bool = True) -> Needs:
    """Return what a record must pass for which the condition is true; or false, as a comparison of null is not."""
    if condition.field is None:
        if condition.not_ is not None:
            return _needs(fields, condition.not_, holds=not holds)
        parts = [_needs(fields, part, holds=holds) for _, part in condition.parts]
        if (condition.combines == "all") is holds or len(parts) == 1:
            return frozenset().union(*parts)
        return frozenset([AnyOf(frozenset(parts))])
    operator = condition.operator
    values = frozenset([typed(fields[condition.field], operator, text) for text in condition.texts])
    if operator == _NULL:
        return frozenset([Test(condition.field, operator, frozenset([holds in values]))])
    test = Test(condition.field, operator, values)
    return frozenset([test if holds else Fails(test)])


def typed(field: Any, operator: str, text: str) -> str | int | float | bool:
    """Return what `text` means beside a `field` of the schema; ValueError: the field is not compared like this."""
    allowed = _ALLOWED.get(field.type, ())
    if operator not in allowed:
        takes = f"; it takes {', '.join(allowed)}" if allowed else ""
        raise ValueError(f"a {field.type} field cannot be compared with {operator}{takes}")
    if operator == _NULL and not field.nullable:
        raise ValueError("is never null: the field is not nullable")
    match field:
        case _ if operator == _NULL:
            return text == "true"
        case IntegerField():
            if _INTEGER.fullmatch(text) is None or not -_INT64 <= int(text) < _INT64:
                raise ValueError(f"'{text}' is not a 64-bit integer")
            return int(text)
        case NumberField():
            return float(exact(text))
        case BooleanField():
            if text.lower() not in _TRUTHS:
                raise NoSuchValueError(f"'{text}' is neither true nor false", _TRUTHS)
            return text.lower() == "true"
        case CategoryField() | ListField() if text not in field.domain:
            raise NoSuchValueError(f"'{text}' is not in the domain of the field", field.domain)
    return text


def box_of(needs: Collection[Test | Fails | AnyOf], fields: Mapping[str, Any]) -> Box:
    """Return a box with every record that passes all `needs`.

    It holds others where a condition is about a list, for an event may hold several values of it; where alternatives
    make no box; and where all texts but some pass.
    """
    sides = _left(needs, fields, {})
    return NOWHERE if sides is None else Box(tuple(sides.items()))


def _left(
    needs: Collection[Test | Fails | AnyOf], fields: Mapping[str, Any], left: Mapping[str, Side]
) -> Mapping[str, Side] | None:
    """Return what `needs` leave of the records in some sides; None: no record."""
    sides = dict(left)
    for need in needs:
        for name, side in _sides(need, fields):
            sides[name] = intersection(sides[name], side) if name in sides else side
            if not sides[name]:
                return None
    for need in needs:
        if not isinstance(need, AnyOf):
            continue
        hull: dict[str, Side] | None = None
        for each in need.alternatives:
            some = _left(each, fields, sides)
            if some is None:
                continue
            if hull is None:
                hull = dict(some)
                continue
            unions = {name: union(hull[name], some[name]) for name in hull if name in some}
            hull = {name: side for name, side in unions.items() if side is not None}
        if hull is None:
            return None
        sides = hull
    return sides


def _sides(need: Test | Fails | AnyOf, fields: Mapping[str, Any]) -> Iterator[tuple[str, Side]]:
    if isinstance(need, AnyOf):
        return
    test, holds = (need.test, False) if isinstance(need, Fails) else (need, True)
    field = fields[test.field]
    if field.type == "list":
        return
    if test.operator in ("at_least", "at_most"):
        upwards = (test.operator == "at_least") is holds
        for value in test.values:
            end = value if holds else _beyond(field, value, upwards=upwards)
            yield test.field, Stretch(low=end) if upwards else Stretch(high=end)
    elif test.operator == _NULL:
        yield test.field, frozenset([None]) if True in test.values else Stretch()
    else:
        yield test.field, test.values if holds else _others(field, test.values)


def _beyond(field: Any, end: Any, *, upwards: bool) -> Any:
    """Return the next value of an integer or number field behind this one."""
    if isinstance(field, IntegerField):
        return end + 1 if upwards else end - 1
    return math.nextafter(end, math.inf if upwards else -math.inf)


def _others(field: Any, values: frozenset[Any]) -> Side:
    """Return a side with all values of a field but these, without null; `OTHER` is all that a domain does not list."""
    match field:
        case CategoryField(domain=domain) if len(domain) <= _SMALL:
            return frozenset([*domain, OTHER]) - values
        case BooleanField():
            return frozenset([False, True]) - values
    return Stretch()


def implies(fields: Mapping[str, Any], part: Needs, whole: Needs) -> bool:
    """Return whether every record that passes all of `part` passes all of `whole`.

    True is certain. False may be wrong for lists, which are compared one by one, for tests that no value of a field
    fails, and for what conditions within conditions say together.
    """
    unions = [need.alternatives for need in part if isinstance(need, AnyOf)]
    if math.prod(map(len, unions)) > _TRIED:
        unions = []
    whole = whole - part
    return all(_follows(fields, part.union(*chosen), whole) for chosen in product(*unions))


def _follows(fields: Mapping[str, Any], part: Needs, whole: Needs) -> bool:
    tests = [need for need in part if isinstance(need, Test) and need.operator != _NULL]
    taken = {
        name: _Taken.by([test for test in tests if test.field == name], fields[name].type)
        for name in {test.field for test in tests}
    }
    if any(left.nothing for left in taken.values()):
        return True
    valued = taken.keys() | {need.test.field for need in part if isinstance(need, Fails)}

    def follows(need: Test | Fails | AnyOf) -> bool:
        if need in part:
            return True
        if isinstance(need, AnyOf):
            return any(all(map(follows, each)) for each in need.alternatives)
        if isinstance(need, Fails):
            return need.test.field in taken and taken[need.test.field].misses(need.test)
        if need.operator == _NULL:
            return need.field in valued and False in need.values
        return need.field in taken and taken[need.field].passes(need)

    return all(map(follows, whole))


@dataclass(frozen=True, slots=True)
class _Taken:
    """The values of a field that some `tests` leave: `points`, or all from `low` to `high` where that is None."""

    tests: Collection[Test]
    points: Collection[Any] | None
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def by(cls, tests: Collection[Test], kind: str) -> "_Taken":
        if kind == "list":
            return cls(tests, None)
        named = [test.values for test in tests if test.operator in _SAME]
        if named:
            left = frozenset.intersection(*named)
            return cls(tests, [v for v in left if all(_takes(test, v) for test in tests)])
        least = [value for test in tests if test.operator == "at_least" for value in test.values]
        most = [value for test in tests if test.operator == "at_most" for value in test.values]
        low: Any = max(least, default=-math.inf)
        high: Any = min(most, default=math.inf)
        if kind == "integer" and math.isfinite(high - low) and high - low < _FEW:
            return cls(tests, range(low, high + 1))
        return cls(tests, [low] if low == high else None, low, high)

    @property
    def nothing(self) -> bool:
        return self.low > self.high if self.points is None else not self.points

    def misses(self, test: Test) -> bool:
        """Return whether no value that is left passes a test."""
        if self.points is not None:
            return not any(_takes(test, value) for value in self.points)
        if test.operator == "at_least":
            return all(self.high < value for value in test.values)
        if test.operator == "at_most":
            return all(self.low > value for value in test.values)
        return test.operator in _SAME and not any(
            self.low <= value <= self.high for value in test.values
        )

    def passes(self, test: Test) -> bool:
        """Return whether every value that is left passes a test."""
        if test in self.tests:
            return True
        if self.points is not None:
            return all(_takes(test, value) for value in self.points)
        if test.operator == "at_least":
            return all(self.low >= value for value in test.values)
        return test.operator == "at_most" and all(self.high <= value for value in test.values)


def _takes(test: Test, value: Any) -> bool:
    if test.operator == "at_least":
        return all(value >= least for least in test.values)
    if test.operator == "at_most":
        return all(value <= most for most in test.values)
    return value in test.values


def value_problem(at: tuple[str | int, ...], error: ValueError) -> InitErrorDetails:
    return problem(at, str(error), error.names if isinstance(error, NoSuchValueError) else ())


def where_problems(
    at: tuple[str | int, ...], where: Where, fields: Fields
) -> list[InitErrorDetails]:
    return [
        problem
        for number, condition in enumerate(where)
        for problem in _problems((*at, "where", number), condition, fields)
    ]


def _problems(
    here: tuple[str | int, ...], condition: Condition, fields: Fields
) -> Iterator[InitErrorDetails]:
    for inner, part in condition.parts:
        yield from _problems((*here, *inner), part, fields)
    if condition.field is None:
        return
    if condition.field not in fields:
        yield problem((*here, "field"), f"'{condition.field}' is not in the schema", fields)
        return
    operator = condition.operator
    for place, text in enumerate(condition.texts):
        try:
            typed(fields[condition.field], operator, text)
        except ValueError as error:
            at = (place,) if operator == "one_of" else ()
            yield value_problem((*here, operator, *at), error)
