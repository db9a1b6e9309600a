"""Which records a series selects: the conditions of `where:`.

Rules: conditions keep what was written; `typed` says what it means beside its field. Null never matches.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import InitErrorDetails

from stream_dp.core.box import Box, Side, Stretch
from stream_dp.records.scalars import Frozen, Value, exact, problem
from stream_dp.records.schema import (
    BooleanField,
    CategoryField,
    Fields,
    IntegerField,
    ListField,
    NumberField,
)

OPERATORS = ("at_least", "at_most", "equals", "one_of", "contains")
_SAME, _ORDER = ("equals", "one_of"), OPERATORS[:4]
_ALLOWED = {
    "integer": _ORDER, "number": _ORDER, "boolean": ("equals",), "category": _SAME, "text": _SAME,
    "list": ("contains",),
}  # fmt: skip
_TRUTHS = ("false", "true")
_INT64 = 2**63
_FEW = 10_000  # integers between two bounds that are looked at one by one
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class NoSuchValueError(ValueError):
    def __init__(self, message: str, names: Sequence[str]) -> None:
        super().__init__(message)
        self.names = names


class Condition(Frozen):
    """One comparison of one field with public values; null never matches."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 2, "maxProperties": 2})

    field: str
    at_least: Value | None = None
    at_most: Value | None = None
    equals: Value | None = None
    one_of: Annotated[tuple[Value, ...], Field(min_length=1)] | None = None
    contains: Value | None = None

    @model_validator(mode="after")
    def _one_operator(self) -> "Condition":
        if len([name for name in OPERATORS if getattr(self, name) is not None]) != 1:
            raise ValueError(f"needs exactly one of {', '.join(OPERATORS)}")
        return self

    @property
    def operator(self) -> str:
        given = ""
        for name in OPERATORS:  # of a hundred thousand conditions: no generator
            if getattr(self, name) is not None:
                given = name
        return given

    @property
    def texts(self) -> tuple[str, ...]:
        value: str | tuple[str, ...] = getattr(self, self.operator)
        return (value,) if isinstance(value, str) else value

    @property
    def text(self) -> str:
        """The condition as people read it: "amount at least 1000"."""
        return f"{self.field} {self.operator.replace('_', ' ')} {', '.join(self.texts)}"


Where: TypeAlias = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """A condition with its values in the field's type."""

    __test__ = False

    field: str
    operator: str
    values: frozenset[Any]


def tests_of(fields: Mapping[str, Any], where: Where) -> frozenset[Test]:
    return frozenset([_test(fields[condition.field], condition) for condition in where])


def _test(field: Any, condition: Condition) -> Test:
    operator = condition.operator
    values = frozenset([typed(field, operator, text) for text in condition.texts])
    return Test(condition.field, operator, values)


def typed(field: Any, operator: str, text: str) -> str | int | float | bool:
    """Return what `text` means beside a `field` of the schema; ValueError: the field is not compared like this."""
    allowed = _ALLOWED.get(field.type, ())
    if operator not in allowed:
        takes = f"; it takes {', '.join(allowed)}" if allowed else ""
        raise ValueError(f"a {field.type} field cannot be compared with {operator}{takes}")
    match field:
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


def box_of(tests: Collection[Test], fields: Mapping[str, Any]) -> Box:
    """Return a box with every record that passes all tests, and no other where none of them is about a list.

    An event may hold several values of a list, so conditions on lists are left out.
    """
    return Box(
        tuple(
            (test.field, side)
            for test in tests
            if fields[test.field].type != "list"
            for side in _sides(test)
        )
    )


def _sides(test: Test) -> list[Side]:
    match test.operator:
        case "at_least":
            return [Stretch(low=value) for value in test.values]
        case "at_most":
            return [Stretch(high=value) for value in test.values]
    return [test.values]


def implies(fields: Mapping[str, Any], part: Collection[Test], whole: Collection[Test]) -> bool:
    """Return whether every record that passes all tests of `part` passes all tests of `whole`.

    True is certain. False may be wrong for tests on lists, which are compared one by one, and for tests that no value
    of a field fails.
    """
    taken = {
        name: _Taken.by([test for test in part if test.field == name], fields[name].type)
        for name in {test.field for test in part}
    }
    if any(left.nothing for left in taken.values()):
        return True
    return all(test.field in taken and taken[test.field].passes(test) for test in whole)


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
    problems = []
    for number, condition in enumerate(where):
        here, operator = (*at, "where", number), condition.operator
        if condition.field not in fields:
            why = f"'{condition.field}' is not in the schema"
            problems.append(problem((*here, "field"), why, fields))
            continue
        for place, text in enumerate(condition.texts):
            try:
                typed(fields[condition.field], operator, text)
            except ValueError as error:
                inner = (place,) if operator == "one_of" else ()
                problems.append(value_problem((*here, operator, *inner), error))
    return problems
