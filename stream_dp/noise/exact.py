"""Enclosures, in integers, of exp(-x) and of values computed from it; the tables rest on them.

Rules: an `Interval` (lo, hi) at `width` w says lo <= 2^w * value <= hi, always: every operation rounds lo down and
hi up, so a wide interval is possible and a wrong one is not. Only Python integers: no float, no division that
rounds to nearest. All values here are in [0, 1], or in [1, 2] as a divisor. This file knows no distribution, no
bits and no table.
"""

from fractions import Fraction
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]

_HEADROOM = 32  # extra bits, so that the result of `exp_neg` is only a few units wide


def exp_neg(x: Fraction, width: int) -> Interval:
    """Return an enclosure of exp(-x), x >= 0, at `width`: alternating series of x / 2^j, then j squarings."""
    if x >= width:  # exp(-x) < 2^-x <= 2^-width
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 5)
    inner = width + halvings + _HEADROOM
    low = (x.numerator << inner) // (x.denominator << halvings)
    value = _series((low, low + 1), inner)
    for _ in range(halvings):
        value = multiply(value, value, inner)
    spare = inner - width
    return value[0] >> spare, -(-value[1] >> spare)


def _series(y: Interval, width: int) -> Interval:
    """Return an enclosure of exp(-y) for y <= 1/8: terms fall, so the first omitted one bounds the rest."""
    term: Interval = (1 << width, 1 << width)
    low = high = 0
    n = 0
    while term[1] > 1:
        low, high = (low - term[1], high - term[0]) if n % 2 else (low + term[0], high + term[1])
        n += 1
        product = multiply(term, y, width)
        term = product[0] // n, -(-product[1] // n)
    return max(0, low - term[1]), min(1 << width, high + term[1])


def multiply(a: Interval, b: Interval, width: int) -> Interval:
    """Enclose a * b."""
    return a[0] * b[0] >> width, -(-(a[1] * b[1]) >> width)


def divide(a: Interval, b: Interval, width: int) -> Interval:
    """Enclose a / b, known to be in [0, 1]; where b may be 0 the enclosure is all of [0, 1]."""
    if b[0] <= 0:
        return 0, 1 << width
    return (a[0] << width) // b[1], -(-(a[1] << width) // b[0])


def complement(a: Interval, width: int) -> Interval:
    """Enclose 1 - a."""
    return (1 << width) - a[1], (1 << width) - a[0]


def one_plus(a: Interval, width: int) -> Interval:
    """Enclose 1 + a."""
    return (1 << width) + a[0], (1 << width) + a[1]


def powers(a: Interval, count: int, width: int) -> list[Interval]:
    """Enclose a^0, a^1, ..., a^count, each computed from the power before."""
    found: list[Interval] = [(1 << width, 1 << width)]
    for _ in range(count):
        found.append(multiply(found[-1], a, width))
    return found
