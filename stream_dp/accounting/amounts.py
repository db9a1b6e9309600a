"""Amounts of budget as integers in units of 10^-12: costs round up, budgets round down.

Decimal intervals enclose inexact values. This file knows no privacy.
"""

import decimal
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product, starmap

_TRAPS = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
_UP, _DOWN = (
    decimal.Context(60, rounding, Emin=-20_000, Emax=20_000, traps=_TRAPS)
    for rounding in (decimal.ROUND_CEILING, decimal.ROUND_FLOOR)
)
Number = Fraction | int


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers between `low` and `high`, both included; every result encloses the true value.

    The decimal context rounds sums, products and quotients outwards. `exp`, `ln` and `sqrt` are correctly rounded (to
    nearest); one step outwards makes them enclosures. With 60 digits, cancellations of up to 30 digits leave more
    than the 24 digits that budgets keep.

    >>> third = Interval.of(Fraction(1, 3))
    >>> Fraction(third.low) < Fraction(1, 3) < Fraction(third.high)
    True
    """

    low: Decimal
    high: Decimal

    @classmethod
    def of(cls, number: Number) -> "Interval":
        top, bottom = Decimal(number.numerator), Decimal(number.denominator)
        return cls(_DOWN.divide(top, bottom), _UP.divide(top, bottom))

    def __add__(self, other: "Interval | Number") -> "Interval":
        o = _interval(other)
        return Interval(_DOWN.add(self.low, o.low), _UP.add(self.high, o.high))

    def __sub__(self, other: "Interval | Number") -> "Interval":
        o = _interval(other)
        return Interval(_DOWN.subtract(self.low, o.high), _UP.subtract(self.high, o.low))

    def __mul__(self, other: "Interval | Number") -> "Interval":
        pairs = self._ends(_interval(other))
        return Interval(min(starmap(_DOWN.multiply, pairs)), max(starmap(_UP.multiply, pairs)))

    def __truediv__(self, other: "Interval | Number") -> "Interval":
        """Return the quotient (ZeroDivisionError: the divisor's interval contains 0)."""
        o = _interval(other)
        if o.low <= 0 <= o.high:
            raise ZeroDivisionError("this divides by a number that may be 0")
        pairs = self._ends(o)
        return Interval(min(starmap(_DOWN.divide, pairs)), max(starmap(_UP.divide, pairs)))

    def _ends(self, other: "Interval") -> list[tuple[Decimal, Decimal]]:
        return list(product((self.low, self.high), (other.low, other.high)))

    def exp(self) -> "Interval":
        """Return e to the power of the interval; never negative."""
        low = _DOWN.next_minus(_DOWN.exp(self.low))
        return Interval(max(low, Decimal(0)), _UP.next_plus(_UP.exp(self.high)))

    def ln(self) -> "Interval":
        """Return the natural logarithm of a positive interval."""
        return Interval(_DOWN.next_minus(_DOWN.ln(self.low)), _UP.next_plus(_UP.ln(self.high)))

    def sqrt(self) -> "Interval":
        """Return the square root; a low end that outward rounding put below 0 counts as 0."""
        low = _DOWN.next_minus(_DOWN.sqrt(max(self.low, Decimal(0))))
        return Interval(max(low, Decimal(0)), _UP.next_plus(_UP.sqrt(self.high)))

    @property
    def upper(self) -> Fraction:
        """A rational number that is certainly at least the value."""
        return Fraction(self.high)

    @property
    def lower(self) -> Fraction:
        """A rational number that is certainly at most the value."""
        return Fraction(self.low)


def _interval(number: Interval | Number) -> Interval:
    return number if isinstance(number, Interval) else Interval.of(number)


def ln_inverse(probability: Fraction) -> Interval:
    """Return an interval around ln(1 / probability) (ValueError: it is not strictly between 0 and 1)."""
    if not 0 < probability < 1:
        raise ValueError(f"a probability must lie strictly between 0 and 1, got {probability}")
    return Interval.of(1 / probability).ln()


def ceil_units(value: Fraction, units: int) -> int:
    """Return `value` in multiples of 1 / `units`, rounded up."""
    return -((-value.numerator * units) // value.denominator)


def floor_units(value: Fraction, units: int) -> int:
    """Return `value` in multiples of 1 / `units`, rounded down."""
    return value.numerator * units // value.denominator


UNITS = 10**12


def cost_units(amount: Fraction) -> int:
    """Return the units of an amount to be charged, rounded up.

    >>> cost_units(Fraction(1, 3))
    333333333334
    """
    return ceil_units(amount, UNITS)


def budget_units(amount: Fraction) -> int:
    """Return the units of an amount that may be spent, rounded down.

    >>> budget_units(Fraction(1, 3))
    333333333333
    """
    return floor_units(amount, UNITS)


def exact(units: int) -> Fraction:
    return Fraction(units, UNITS)


def text(amount: Fraction | int) -> str:
    """Return a decimal without trailing zeros; an integer argument counts units.

    >>> text(Fraction(3, 2)), text(200000000000), text(Fraction(0)), text(Fraction(1, 3)), text(Fraction(-15, 2))
    ('1.5', '0.2', '0', '0.333333333334', '-7.5')
    """
    units = amount if isinstance(amount, int) else cost_units(amount)
    whole, rest = divmod(abs(units), UNITS)
    return f"{'-' * (units < 0)}{whole}.{rest:012d}".rstrip("0").rstrip(".")


def number(amount: Fraction | int) -> int | float:
    """Return `text`'s amount as a JSON number, for display and never for arithmetic; integers count units.

    >>> number(Fraction(2)), number(200000000000), number(Fraction(-15, 2))
    (2, 0.2, -7.5)
    """
    shown = text(amount)
    return float(shown) if "." in shown else int(shown)
