"""Quotients of two noisy numbers: exact arithmetic, each with its own confidence interval.

The interval is Fieller's: it holds every r that is consistent with the two numbers. Where the true quotient is r,
the released `of` less r times the released `over` is noise less r times noise; `Widths` bounds its distance from 0.
Rules: arithmetic uses fractions; results are decimals with a fixed number of digits after the point. A value is
rounded to the nearest decimal, halves to the even digit, a lower end down and an upper end up, so rounding breaks
no interval. None means an open end, or a value that does not exist. This file knows no release, series or noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm
from operator import floordiv
from typing import TypeAlias

_WIDE = Context(prec=60)
_NOTHING = Fraction(0)
_Ratio: TypeAlias = tuple[int, int]
"""A number over a positive one, not reduced: reducing takes most of the time."""


@dataclass(frozen=True)
class Widths:
    """Bound on |`of` - r `over`| for the true quotient r: the largest a + b |r| over the `pairs` (a, b). One pair
    describes two intervals that hold together, of half-widths a and b.
    """

    pairs: tuple[tuple[Fraction, Fraction], ...]

    def scaled(self, of: Fraction, over: Fraction) -> "Widths":
        """Return the widths in other units: `of` and `over` are what one unit of each answer is worth."""
        return Widths(tuple((a * of, b * over) for a, b in self.pairs))

    def at(self, quotient: Fraction) -> Fraction:
        return max(a + b * abs(quotient) for a, b in self.pairs)

    @cached_property
    def whole(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """A common denominator, and the pairs as integer numerators over it."""
        unit = lcm(*(end.denominator for pair in self.pairs for end in pair))
        return unit, tuple(
            (a.numerator * (unit // a.denominator), b.numerator * (unit // b.denominator))
            for a, b in self.pairs
        )


@dataclass(frozen=True, slots=True)
class Quotient:
    """A quotient and the ends of its interval; a value or an end may be None."""

    value: Decimal | None
    low: Decimal | None
    high: Decimal | None


def quotient(
    of: Fraction,
    over: Fraction,
    widths: Widths,
    digits: int,
    *,
    signed: bool,
    within: tuple[Fraction, Fraction] | None = None,
    plus: Fraction = _NOTHING,
) -> Quotient:
    """Return `of` / `over`, for `over` >= 0, and the ends of the set of all r with |of - r over| <= widths.at(r).

    Only r >= 0 count, unless `signed`; only then may `of` be below 0. `within` are the bounds of the true quotient.
    An end is None where r is unbounded on that side. The value is None where `over` is 0. `plus` is a known number
    that is added to value and ends before they are rounded.

    >>> quotient(Fraction(1), Fraction(8), Widths(((Fraction(0), Fraction(0)),)), 2, signed=False)
    Quotient(value=Decimal('0.12'), low=Decimal('0.12'), high=Decimal('0.13'))
    """
    above, below = of.numerator * over.denominator, over.numerator * of.denominator
    value = (above, below) if below > 0 else None
    if above < 0:
        bound = None if within is None else within[1]
        high, low = (_turned(end) for end in _ends(-of, over, widths, signed=True, bound=bound))
    else:
        bound = None if within is None else -within[0]
        low, high = _ends(of, over, widths, signed=signed, bound=bound)
    if within is not None:
        least, most = (end.as_integer_ratio() for end in within)
        value = None if value is None else _between(value, least, most)
        low = least if low is None else _between(low, least, most)
        high = most if high is None else _between(high, least, most)
    if plus:
        value, low, high = (_plus(each, plus) for each in (value, low, high))
    return Quotient(
        _decimal(value, digits, _half_even),
        _decimal(low, digits, floordiv),
        _decimal(high, digits, lambda of, by: -(-of // by)),
    )


def _ends(
    of: Fraction, over: Fraction, widths: Widths, *, signed: bool, bound: Fraction | None
) -> tuple[_Ratio | None, _Ratio | None]:
    """Return the least and the largest r, for `of` >= 0; r is at least -`bound`."""
    unit, pairs = widths.whole
    above, below = of.numerator * over.denominator * unit, over.numerator * of.denominator * unit
    each = of.denominator * over.denominator
    scaled = [(a * each, b * each) for a, b in pairs]
    high = (
        None
        if any(b >= below for _, b in scaled)
        else _largest([(above + a, below - b) for a, b in scaled])
    )
    lows = []
    for a, b in scaled:
        if signed and _far_below(above - a, below - b, bound):
            return None, high
        over_it = below - b if signed and above < a else below + b
        lows.append((a - above, over_it) if over_it else (0, 1))
    missing, under = _largest(lows)
    return (-missing if signed else max(-missing, 0), under), high


def _far_below(left: int, slope: int, bound: Fraction | None) -> bool:
    """Whether left + slope x <= 0 for some x, up to `bound` or without limit, and for all larger x."""
    if slope > 0:
        return False
    if left <= 0 or slope == 0:
        return left <= 0
    return bound is None or left <= -slope * bound


def _largest(quotients: Sequence[_Ratio]) -> _Ratio:
    best, over = quotients[0]
    for of, by in quotients[1:]:
        if of * over > best * by:
            best, over = of, by
    return best, over


def _between(ratio: _Ratio, least: _Ratio, most: _Ratio) -> _Ratio:
    of, over = ratio
    if of * least[1] < least[0] * over:
        return least
    return most if of * most[1] > most[0] * over else ratio


def _turned(end: _Ratio | None) -> _Ratio | None:
    return None if end is None else (-end[0], end[1])


def _plus(ratio: _Ratio | None, number: Fraction) -> _Ratio | None:
    if ratio is None:
        return None
    of, over = ratio
    return of * number.denominator + number.numerator * over, over * number.denominator


def _half_even(of: int, over: int) -> int:
    units, rest = divmod(of, over)
    return units + bool(2 * rest > over or (2 * rest == over and units % 2))


def _decimal(ratio: _Ratio | None, digits: int, whole: Callable[[int, int], int]) -> Decimal | None:
    """Return the ratio as a decimal with so many digits, in units of the last of which `whole` rounds it."""
    if ratio is None:
        return None
    return Decimal(whole(ratio[0] * 10**digits, ratio[1])).scaleb(-digits, _WIDE)
