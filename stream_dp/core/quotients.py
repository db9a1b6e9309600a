"""Quotients of two numbers that are known up to intervals: exact, and with an interval of their own.

Rules: arithmetic is of fractions; what is told is a decimal of so many digits behind the point. A value is rounded to
the nearest one, halves to the even digit, a lower end down and an upper end up, so that rounding breaks no interval.
None is an end that is open, and a value that there is not. This file knows no release, series or noise.
"""

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import ceil, floor

_WIDE = Context(prec=60)
_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A released number, and the ends of the interval that its true value lies in when its band holds."""

    value: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def around(cls, value: Fraction, band: Fraction, *, signed: bool) -> "Measured":
        """Return a number with its half-width; a true value is not below 0 unless it is `signed`."""
        low, high = value - band, value + band
        return cls(value, low if signed else max(low, Fraction(0)), high)


@dataclass(frozen=True, slots=True)
class Quotient:
    """A quotient and the ends of its interval, of which each may be missing."""

    value: Decimal | None
    low: Decimal | None
    high: Decimal | None


def quotient(
    of: Measured,
    over: Measured,
    digits: int,
    within: tuple[Fraction, Fraction] | None = None,
    plus: Fraction = _NOTHING,
) -> Quotient:
    """Return `of` / `over` with an interval that holds whenever those of both do and the true `over` is above 0.

    Where the interval of `over` reaches 0, however large a quotient may be the true one: an end that depends on it is
    None. Where the released `over` is not above 0, there is no value. `within`: what the true quotient never leaves.
    `plus`: a known number that is added to what is told, before it is rounded.

    >>> sure = Fraction(0)
    >>> quotient(Measured.around(Fraction(1), sure, signed=False), Measured.around(Fraction(8), sure, signed=False), 2)
    Quotient(value=Decimal('0.12'), low=Decimal('0.12'), high=Decimal('0.13'))
    """
    value = of.value / over.value if over.value > 0 else None
    low = _end(of.low, over.high if of.low >= 0 else over.low)
    high = _end(of.high, over.low if of.high > 0 else over.high)
    if within is not None:
        least, most = within
        value = None if value is None else min(max(value, least), most)
        low = least if low is None else min(max(low, least), most)
        high = most if high is None else min(max(high, least), most)
    value, low, high = (None if each is None else each + plus for each in (value, low, high))
    return Quotient(_nearest(value, digits), _down(low, digits), _up(high, digits))


def _end(of: Fraction, over: Fraction) -> Fraction | None:
    """The quotient of two ends; 0 over anything is 0, and over 0 nothing else has an end."""
    if of == 0:
        return Fraction(0)
    return of / over if over > 0 else None


def _nearest(value: Fraction | None, digits: int) -> Decimal | None:
    return None if value is None else _decimal(round(value * 10**digits), digits)


def _down(value: Fraction | None, digits: int) -> Decimal | None:
    return None if value is None else _decimal(floor(value * 10**digits), digits)


def _up(value: Fraction | None, digits: int) -> Decimal | None:
    return None if value is None else _decimal(ceil(value * 10**digits), digits)


def _decimal(units: int, digits: int) -> Decimal:
    """An integer of units of the last digit as an exact decimal."""
    return Decimal(units).scaleb(-digits, _WIDE)
