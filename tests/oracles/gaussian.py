"""The discrete Gaussian in rationals: enclosures of its weights and masses.

Rules: nothing here knows the product's tables, blocks or coins; exp is that of `decimal`, which rounds correctly.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt

PLACES = 80  # enclosures are this fine
UNIT = Fraction(1, 10**PLACES)


def exp_enclosed(x: Fraction) -> tuple[Fraction, Fraction]:
    """Lower and upper bound of exp(-x) for x >= 0, two units of 10^-80 apart or four."""
    with localcontext() as context:
        context.prec = 2 * PLACES
        exponent = -Decimal(x.numerator) / Decimal(x.denominator)  # off by 10^-160 of itself
        found = int(exponent.exp().scaleb(PLACES))
    return max(Fraction(0), (found - 1) * UNIT), (found + 2) * UNIT


def weight(x: int, variance: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of exp(-x^2 / (2 variance))."""
    return exp_enclosed(x * x / (2 * variance))


def weights(first: int, variance: Fraction) -> tuple[Fraction, Fraction]:
    """Bounds of the sum of the weights from `first` >= 1 on; a geometric series is above the rest."""
    end = first + 20 * (isqrt(int(variance)) + 1)
    parts = [weight(x, variance) for x in range(first, end)]
    rest = weight(end, variance)[1] / (1 - exp_enclosed((2 * end + 1) / (2 * variance))[1])
    low = sum((part[0] for part in parts), Fraction(0))
    return low, sum((part[1] for part in parts), Fraction(0)) + rest


def mass(x: int, variance: Fraction) -> tuple[Fraction, Fraction]:
    low, high = weights(1, variance)
    own = weight(x, variance)
    return own[0] / (1 + 2 * high), own[1] / (1 + 2 * low)


def floor_exp(x: Fraction, bits: int) -> int:
    """floor(2^bits exp(-x)), where the enclosure tells it."""
    low, high = exp_enclosed(x)
    found = int(low * 2**bits)
    assert found == int(high * 2**bits), "the oracle's enclosure is too wide"
    return found
