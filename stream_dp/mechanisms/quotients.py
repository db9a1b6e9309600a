"""Quotients of two noisy numbers: exact, and with an interval of their own.

The interval is Fieller's: it holds every r that the two numbers do not speak against. Where the true quotient is r, the
released `of` less r times the released `over` is noise less r times noise; how far that may be from 0 is said by
`Widths`. Rules: arithmetic is of fractions; what is told is a decimal of so many digits behind the point. A value is
rounded to the nearest one, halves to the even digit, a lower end down and an upper end up, so that rounding breaks no
interval. None is an end that is open, and a value that there is not. This file knows no release, series or noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm

_WIDE = Context(prec=60)
_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Widths:
    """How far `of` - r `over` is from 0 at most, for the true quotient r: the largest a + b |r| of the `pairs` (a, b).

    One pair is two intervals that hold together, of half-widths a and b.
    """

    pairs: tuple[tuple[Fraction, Fraction], ...]

    def scaled(self, of: Fraction, over: Fraction) -> "Widths":
        """Return the widths of numbers where these were of units: so much is a unit of `of` and of `over`."""
        return Widths(tuple((a * of, b * over) for a, b in self.pairs))

    def at(self, quotient: Fraction) -> Fraction:
        """Return the largest a + b |r|."""
        return max(a + b * abs(quotient) for a, b in self.pairs)

    @cached_property
    def whole(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """A denominator of all, and the pairs as integers over it."""
        unit = lcm(*(end.denominator for pair in self.pairs for end in pair))
        return unit, tuple((int(a * unit), int(b * unit)) for a, b in self.pairs)


@dataclass(frozen=True, slots=True)
class Quotient:
    """A quotient and the ends of its interval, of which each may be missing."""

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
    """Return `of` / `over`, where `over` is not below 0, and the ends of all r with |of - r over| <= widths.at(r).

    They are r from 0 on, and if `signed` any; only then may `of` be below 0. `within` says what the true quotient never
    leaves. Where r may be as large as one likes its end is None. Where `over` is 0 there is no value. `plus`: a known
    number that is added to what is told, before it is rounded.

    >>> quotient(Fraction(1), Fraction(8), Widths(((Fraction(0), Fraction(0)),)), 2, signed=False)
    Quotient(value=Decimal('0.12'), low=Decimal('0.12'), high=Decimal('0.13'))
    """
    value = of / over if over > 0 else None
    if of < 0:
        bound = None if within is None else within[1]
        high, low = (_turned(end) for end in _ends(-of, over, widths, signed=True, bound=bound))
    else:
        bound = None if within is None else -within[0]
        low, high = _ends(of, over, widths, signed=signed, bound=bound)
    if within is not None:
        least, most = within
        value = None if value is None else min(max(value, least), most)
        low = least if low is None else min(max(low, least), most)
        high = most if high is None else min(max(high, least), most)
    if plus:
        value, low, high = (None if each is None else each + plus for each in (value, low, high))
    return Quotient(_nearest(value, digits), _down(low, digits), _up(high, digits))


def _ends(
    of: Fraction, over: Fraction, widths: Widths, *, signed: bool, bound: Fraction | None
) -> tuple[Fraction | None, Fraction | None]:
    """The least and the largest r, for `of` from 0 on; r is not below -`bound`. In integers, for there are many."""
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
    low = -_largest(lows)
    return (low if signed else max(low, _NOTHING)), high


def _far_below(left: int, slope: int, bound: Fraction | None) -> bool:
    """Whether left + slope x <= 0 for some x, as large as one likes or up to `bound`, and for all beyond."""
    if slope > 0:
        return False
    if left <= 0 or slope == 0:
        return left <= 0
    return bound is None or left <= -slope * bound


def _largest(quotients: Sequence[tuple[int, int]]) -> Fraction:
    """The largest of the quotients of integers, each over a positive one."""
    best, over = quotients[0]
    for of, by in quotients[1:]:
        if of * over > best * by:
            best, over = of, by
    return Fraction(best, over)


def _turned(end: Fraction | None) -> Fraction | None:
    return None if end is None else -end


def _nearest(value: Fraction | None, digits: int) -> Decimal | None:
    return None if value is None else _decimal(round(value * 10**digits), digits)


def _down(value: Fraction | None, digits: int) -> Decimal | None:
    if value is None:
        return None
    return _decimal(value.numerator * 10**digits // value.denominator, digits)


def _up(value: Fraction | None, digits: int) -> Decimal | None:
    if value is None:
        return None
    return _decimal(-(-value.numerator * 10**digits // value.denominator), digits)


def _decimal(units: int, digits: int) -> Decimal:
    """An integer of units of the last digit as an exact decimal."""
    return Decimal(units).scaleb(-digits, _WIDE)
