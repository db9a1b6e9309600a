"""What a record adds to a sum: a number field, clamped, in whole units of a declared grid; or 1 up or down.

Rules: a record's units depend on its own value alone. A value becomes units in IEEE arithmetic, value by value, and
each operation is exactly rounded: it is clamped, divided by the step, rounded to the nearest integer (halves to the
even one), and as an integer clamped once more. So whatever a double looks like, its units lie in the range that the
noise is made for. Null, and what is no number, adds nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np
from pydantic import AfterValidator
from pydantic_core import InitErrorDetails

from stream_dp.core.mechanism import IntArray
from stream_dp.core.row_law import MOST_UNITS
from stream_dp.records.conditions import Test, typed
from stream_dp.records.groupings import decimal_text
from stream_dp.records.record_columns import Numbers
from stream_dp.records.scalars import Exact, problem
from stream_dp.records.schema import Fields, field_problems

FINEST = Fraction(1, 10**6)
_EXACT_INTEGERS = 2**53  # the largest doubles that no integer is missing below


def _stepped(step: Fraction) -> Fraction:
    if not FINEST <= step <= MOST_UNITS or (step / FINEST).denominator != 1:
        raise ValueError(
            "must be a decimal from 0.000001 to 1000000000 with at most 6 places, such as 0.01"
        )
    return step


Step: TypeAlias = Annotated[Exact, AfterValidator(_stepped)]
Clamp: TypeAlias = tuple[Exact, Exact]


@dataclass(frozen=True, slots=True)
class Amount:
    """The value of `field`, clamped to `lowest` .. `highest`, in units of `step`: both are whole numbers of units."""

    field: str
    lowest: Fraction
    highest: Fraction
    step: Fraction = Fraction(1)

    @property
    def units(self) -> tuple[int, int]:
        return int(self.lowest / self.step), int(self.highest / self.step)

    def of(self, numbers: Numbers) -> IntArray:
        """Return the units of each record, shape (records,); 0 where the value is not there."""
        low, high = self.units
        values = np.clip(numbers.values.astype(np.float64), float(self.lowest), float(self.highest))
        known = values if numbers.known is None else np.where(numbers.known, values, 0.0)
        units = np.clip(np.rint(known / float(self.step)).astype(np.int64), low, high)
        return units if numbers.known is None else np.where(numbers.known, units, 0)


@dataclass(frozen=True, slots=True)
class Sign:
    """1 where `field` is one of `plus`, -1 where it is one of `minus`, in the words of the file; else 0."""

    field: str
    plus: tuple[str, ...]
    minus: tuple[str, ...]

    units: ClassVar[tuple[int, int]] = (-1, 1)

    def tests(self, fields: Mapping[str, Any]) -> tuple[Test, Test]:
        up, down = (self._test(fields[self.field], texts) for texts in (self.plus, self.minus))
        return up, down

    def _test(self, field: Any, texts: tuple[str, ...]) -> Test:
        return Test(self.field, "one_of", frozenset(typed(field, "equals", t) for t in texts))


def plain_number(value: Fraction) -> int | float:
    """Return a fraction as a number to be shown: an integer, or the nearest double.

    >>> plain_number(Fraction(-15, 2)), plain_number(Fraction(3))
    (-7.5, 3)
    """
    return int(value) if value.denominator == 1 else float(value)


def total_problems(total: Fraction, step: Fraction) -> list[str]:
    """Return what is wrong with the most that a user adds, in steps of so much."""
    if step <= total <= step * MOST_UNITS and (total / step).denominator == 1:
        return []
    steps = f"a whole number of steps of {decimal_text(step)}"
    return [f"'{decimal_text(total)}' must be {steps}, from 1 step to {MOST_UNITS:,}"]


def number_problems(
    of: str, fields: Fields, at: tuple[str, ...] = ("of",)
) -> list[InitErrorDetails]:
    wrong = ", not a number or an integer"
    return field_problems(at, of, fields, ("integer", "number"), wrong)


def clamp_problems(clamp: Clamp, step: Fraction) -> list[InitErrorDetails]:
    lowest, highest = clamp
    problems = []
    for place, bound in enumerate(clamp):
        shown = decimal_text(bound)
        if (bound / step).denominator != 1:
            why = f"'{shown}' must be a multiple of the step {decimal_text(step)}: move it, or give a finer step"
            problems.append(problem(("clamp", place), why))
        elif abs(bound) > step * MOST_UNITS or abs(bound) >= _EXACT_INTEGERS:
            why = f"'{shown}' is more than {MOST_UNITS:,} steps, or than 2^53: give a wider step or a narrower clamp"
            problems.append(problem(("clamp", place), why))
    if not lowest < highest:
        why = f"'{decimal_text(highest)}' must be greater than the lower bound '{decimal_text(lowest)}'"
        problems.append(problem(("clamp", 1), why))
    return problems


@dataclass(frozen=True, slots=True)
class Centred:
    """An amount less the middle of its range: with `Known`, what a record adds to a mean.

    The middle is a whole number of units, the lower one where there are two. Null adds nothing to either, and not the
    middle.
    """

    whole: Amount

    @property
    def field(self) -> str:
        return self.whole.field

    @property
    def middle(self) -> int:
        return sum(self.whole.units) // 2

    @property
    def centre(self) -> Fraction:
        return self.middle * self.whole.step

    @property
    def units(self) -> tuple[int, int]:
        lowest, highest = self.whole.units
        return lowest - self.middle, highest - self.middle

    def of(self, numbers: Numbers) -> IntArray:
        units = self.whole.of(numbers) - self.middle
        return units if numbers.known is None else np.where(numbers.known, units, 0)


@dataclass(frozen=True, slots=True)
class Known:
    """1 where the field has a value."""

    field: str

    units: ClassVar[tuple[int, int]] = (0, 1)

    def of(self, numbers: Numbers) -> IntArray:
        if numbers.known is None:
            return np.ones(len(numbers.values), dtype=np.int64)
        return numbers.known.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Decided:
    """An amount of which something else than the record alone decides how much of it counts."""

    amount: Amount

    @property
    def field(self) -> str:
        return self.amount.field

    @property
    def units(self) -> tuple[int, int]:
        return self.amount.units


@dataclass(frozen=True, slots=True)
class UserTotal(_Decided):
    """An amount of which all records of a user add at most `most` units in a window of the cap.

    How much of it a record adds is for the engine's memory to say; of amounts of both signs, what a window's come to.
    """

    most: int

    @property
    def signed(self) -> bool:
        return self.amount.lowest < 0


@dataclass(frozen=True, slots=True)
class SharedAmount(_Decided):
    """What is left of an amount of the total that a guard lets a user add, before any series' conditions."""


@dataclass(frozen=True, slots=True)
class Fitting(SharedAmount):
    """The amount, less the lowest one, of records that fit wholly into what is left of the total; with `counted`, 1.

    So what the records of a user add up to is at most the total, and their number that of the events that count.
    """

    counted: bool = False

    @property
    def units(self) -> tuple[int, int]:
        lowest, highest = self.amount.units
        return (0, 1) if self.counted else (0, highest - lowest)

    @property
    def centre(self) -> Fraction:
        return self.amount.lowest

    def of(self, numbers: Numbers, units: IntArray) -> IntArray:
        """Return what each record adds, shape (records,), of the `units` that the guard lets it add."""
        fits = units == self.amount.of(numbers)
        if numbers.known is not None:
            fits = fits & numbers.known
        added = np.ones_like(units) if self.counted else units - self.amount.units[0]
        return np.where(fits, added, 0)


# what a record adds to its entries of a feature
Addend: TypeAlias = Amount | Sign | Centred | Known | UserTotal | SharedAmount | Fitting
