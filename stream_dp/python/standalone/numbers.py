"""The numbers that a caller hands in: exact amounts of budget, and counts of events.

Rules: an amount of budget is exact, so a float is refused, with what to write in its place. A count is a whole number.
What was given as data is never repeated in an error.
"""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from operator import index
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from stream_dp.core.row_relations import MOST_EVENTS
from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.records.scalars import Confidence, Epsilon

Amount: TypeAlias = int | str | Fraction | Decimal
Number: TypeAlias = float | Fraction | Decimal
"""A number of an event: data, so it may be a float."""

_EPSILON: TypeAdapter[Fraction] = TypeAdapter(Epsilon)
_CONFIDENCE: TypeAdapter[Fraction] = TypeAdapter(Confidence)
SUREST = 1 - 1e-9
_OURS = "Value error, "  # what pydantic puts before our own words


def exactly(what: str, value: object) -> object:
    """Return `value`, or the fraction that it is exactly.

    Raises
    ------
    UsageError
        It is a float, which is not the decimal that was written.
    """
    if isinstance(value, float):
        raise UsageError(
            f"{what}: {float(value)!r} is a float; {_instead(f'{what}=', float(value))}"
        )
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    return value


def epsilon_from(value: Amount) -> Fraction:
    """Return the epsilon of a mechanism as an exact fraction.

    Raises
    ------
    UsageError
        It is no exact number between 10^-6 and 100.
    """
    return _valid(_EPSILON, "epsilon", exactly("epsilon", value))


def clamp_from(value: object) -> tuple[object, object]:
    """Return both bounds of a clamp; whether they are exact numbers is looked at where they are read.

    Raises
    ------
    UsageError
        There are not two of them, or one is a float.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise UsageError(
            'clamp: the least and the largest amount are needed, such as (0, 240) or ("-9.5", "9.5")'
        )
    low, high = (grid_from("clamp", bound) for bound in value)
    return low, high


def grid_from(what: str, value: object) -> object:
    """Return a bound or a step, or the fraction that it is exactly.

    Raises
    ------
    UsageError
        It is a float.
    """
    if isinstance(value, float):
        exact = float(value)
        raise UsageError(f"{what}: {exact!r} is a float; {_instead('', exact, 'amounts')}")
    return exactly(what, value)


def confidence_from(value: Amount | float) -> float:
    """Return a confidence; it is no part of the guarantee, so it may be a float.

    Raises
    ------
    UsageError
        It does not lie strictly between 0 and 1, or is too close to 1 for a band in doubles.
    """
    plain = repr(float(value)) if isinstance(value, float) else exactly("confidence", value)
    found = float(_valid(_CONFIDENCE, "confidence", plain))
    if found > SUREST:
        raise UsageError(f"confidence: must be at most {SUREST}; bands are reckoned in doubles")
    return found


def positive(what: str, value: int) -> int:
    """Return `value`, if it is a whole number from 1 to 10^15.

    Raises
    ------
    UsageError
        It is not.
    """
    if type(value) is not int or not 1 <= value <= 10**15:
        raise UsageError(f"{what}: must be a whole number from 1 to 10^15; got {value!r}")
    return value


def positive_or_none(what: str, value: int | None) -> int | None:
    """Return `value`, if it is None or what `positive` takes (UsageError)."""
    return None if value is None else positive(what, value)


def events_from(value: Any) -> int:
    """Return a number of events as an int.

    Raises
    ------
    RejectedMessage
        It is negative, too large, or no whole number (True and 3.0 are none).
    """
    try:
        count = None if isinstance(value, bool) else index(value)
    except TypeError:
        count = None
    if count is None or not 0 <= count <= MOST_EVENTS:
        raise RejectedMessage(
            "a number of events is a whole number from 0 to 2^40; nothing was added"
        )
    return count


def plain_numbers(amounts: Iterable[Any]) -> list[float]:
    """Return the numbers of some events as doubles, each the nearest one.

    Raises
    ------
    RejectedMessage
        One is no number (True is none), not finite, or beyond the doubles; or there is no list of them.
    """
    if isinstance(amounts, str | bytes | Mapping) or not isinstance(amounts, Iterable):
        raise RejectedMessage("the amounts of a tick are a list of numbers; nothing was added")
    return [_double(amount) for amount in amounts]


def _double(amount: Any) -> float:
    number = isinstance(amount, Real | Decimal) and not isinstance(amount, bool)
    try:
        found = float(amount) if number else math.nan
    except (OverflowError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise RejectedMessage(
            "an amount is a finite number, such as 12.5; nothing was added. Leave out events without one"
        )
    return found


def words(error: ValidationError, outer: str = "") -> str:
    """Return what is wrong with the caller's arguments, one after the other, without repeating a value."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    said = [
        f"{'.'.join(map(str, problem['loc'])) or outer}: {_said(problem['msg'])}"
        for problem in found
    ]
    return "; ".join(said)


def _said(message: str) -> str:
    return message.removeprefix(_OURS).replace("Input should be", "must be")


def _instead(given: str, value: float, kind: str = "budgets") -> str:
    """What to write in place of a float; `given` is what stands before it, such as "epsilon="."""
    if not math.isfinite(value):
        return f"write an exact number, such as {given}1"
    top, bottom = Fraction(repr(value)).as_integer_ratio()
    return f'{kind} are exact: write {given}"{value!r}" or {given}Fraction({top}, {bottom})'


def _valid(kind: TypeAdapter[Fraction], what: str, value: object) -> Fraction:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise UsageError(words(error, what)) from None
