"""Numbers made of a record's numbers: `from: price * quantity`.

Rules: a number that a record holds means the shortest decimal that is read as its double, so 0.1 is a tenth; the
formula's value is the double that is nearest to the exact one, whatever is on the way to it. It depends on its record
alone. Null in any of the fields makes null. What no double reaches is the largest one, or the least.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import add, mul, sub
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
# Numbers of integers and places behind the point, and where they are exact.
_Scaled: TypeAlias = tuple[Floats, int, NDArray[np.bool_]]

_ALLOWED = (
    "a formula has names of fields, decimals, + - * and parentheses, such as price * quantity"
)
_TOKEN = re.compile(r'\s*("[^"]+"|[^\W\d]\w*|\d+(?:\.\d+)?|\S)')
_DECIMAL = re.compile(r"\d{1,15}(\.\d{1,15})?", re.ASCII)
_NAME = re.compile(r'"[^"]+"|[^\W\d]\w*')
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul}
_MOST = 2.0**53  # below, every integer is a double
_PLACES, _DIGITS = (
    (0, 2, 4, 6),
    10.0**15,
)  # of decimals that columns have: 15 digits name one double
_MOST_PLACES = 22  # the largest power of ten that is a double
_TEN = np.float64(10)  # its powers end in infinity, not in an error


@dataclass(frozen=True, slots=True)
class Formula:
    """`steps` in postfix form: names, decimals and operations; `text` is the formula in one spelling."""

    text: str
    steps: tuple[str | Fraction | Callable[[Any, Any], Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step for step in self.steps if isinstance(step, str)))

    def of(self, columns: Mapping[str, Sequence[float | None]], number: int) -> list[float | None]:
        """Return the value of each of `number` records, whose fields are in these columns."""
        some = {name: columns[name] for name in self.names}
        with np.errstate(all="ignore"):
            doubles = {name: np.array(column, np.float64) for name, column in some.items()}
            null = np.any([np.isnan(column) for column in doubles.values()], axis=0)
            whole, places, right = self._run(
                lambda step: (
                    _whole(doubles[step]) if isinstance(step, str) else _constant(step, number)
                ),
                _together,
            )
            values: list[float | None] = (whole / _TEN**places + 0.0).tolist()
        right &= places <= _MOST_PLACES
        for at in np.flatnonzero(null).tolist():
            values[at] = None
        for at in np.flatnonzero(~(right | null)).tolist():
            values[at] = self._exactly({name: column[at] for name, column in some.items()})
        return values

    def _exactly(self, record: Mapping[str, float | None]) -> float:
        value: Fraction = self._run(
            lambda step: Fraction(repr(record[step])) if isinstance(step, str) else step,
            lambda operation, left, right: operation(left, right),
        )
        try:
            return value.numerator / value.denominator + 0.0  # of -0.0
        except OverflowError:
            return sys.float_info.max if value > 0 else -sys.float_info.max

    def _run(self, load: Callable[[Any], Any], apply: Callable[[Any, Any, Any], Any]) -> Any:
        stack: list[Any] = []
        for step in self.steps:
            if isinstance(step, str | Fraction):
                stack.append(load(step))
            else:
                right = stack.pop()
                stack.append(apply(step, stack.pop(), right))
        return stack[0]


def _whole(values: Floats) -> _Scaled:
    """Return doubles as integers and places; exact where so many places, and 15 digits, name the double."""
    for places in _PLACES:
        scale = 10.0**places
        whole = np.rint(values * scale)
        right = (np.abs(whole) < _DIGITS) & (whole / scale == values)
        if right.all():
            break
    return whole, places, right


def _constant(value: Fraction, number: int) -> _Scaled:
    places = next(places for places in range(16) if (value * 10**places).denominator == 1)
    whole = float(value * 10**places)
    return np.full(number, whole), places, np.full(number, whole < _MOST)


def _together(operation: Any, left: _Scaled, right: _Scaled) -> _Scaled:
    """Return the result where every integer on the way is a double."""
    (first, places, known), (second, others, also) = left, right
    right_of = known & also
    if operation is mul:
        result, places = first * second, places + others
    else:
        most = max(places, others)
        first, second = first * _TEN ** (most - places), second * _TEN ** (most - others)
        right_of &= (np.abs(first) < _MOST) & (np.abs(second) < _MOST)
        result, places = operation(first, second), most
    return result, places, right_of & (np.abs(result) < _MOST)


@lru_cache(1024)
def formula(text: str) -> Formula:
    """Read a formula; ValueError says what cannot be read, and where."""
    reading = _Reading([(match[1], match.start(1) + 1) for match in _TOKEN.finditer(text)])
    spelled = " ".join(token for token, _ in reading.tokens)
    reading.total()
    if reading.tokens:
        raise reading.wrong()
    if not any(isinstance(step, str) for step in reading.steps):
        raise ValueError(f"names no field: {_ALLOWED}")
    return Formula(spelled, tuple(reading.steps))


class _Reading:
    """What is left of a formula, with the place of each token, and the steps so far."""

    def __init__(self, tokens: list[tuple[str, int]]) -> None:
        self.tokens = tokens
        self.steps: list[str | Fraction | Callable[[Any, Any], Any]] = []

    def wrong(self) -> ValueError:
        if not self.tokens:
            return ValueError(f"ends too early: {_ALLOWED}")
        token, at = self.tokens[0]
        return ValueError(f"'{token}' at character {at} cannot be read: {_ALLOWED}")

    def total(self) -> None:
        self._row(self._product, "+-")

    def _product(self) -> None:
        self._row(self._single, "*")

    def _row(self, part: Callable[[], None], operations: str) -> None:
        part()
        while operation := self._taken(operations):
            part()
            self.steps.append(_OPERATIONS[operation])

    def _taken(self, wanted: str) -> str:
        return self.tokens.pop(0)[0] if self.tokens and self.tokens[0][0] in wanted else ""

    def _single(self) -> None:
        token = self.tokens[0][0] if self.tokens else ""
        if self._taken("("):
            self.total()
            if not self._taken(")"):
                raise self.wrong()
        elif self._taken("-"):
            self.steps.append(Fraction(0))
            self._single()
            self.steps.append(sub)
        elif _NAME.fullmatch(token) or _DECIMAL.fullmatch(token):
            named = not token[0].isdecimal()
            self.steps.append(token.strip('"') if named else Fraction(token))
            del self.tokens[0]
        else:
            raise self.wrong()
