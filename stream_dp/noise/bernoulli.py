"""An exact coin: is a uniform real number below exp(-y)?

Theory: bits of the uniform number are drawn until they differ from those of exp(-y), which integer enclosures give to
any length. Deciding ends: exp(-y) is transcendental for a rational y > 0, hence never a dyadic number.
"""

from fractions import Fraction

from stream_dp.noise.bits import Words
from stream_dp.noise.exact import exp_neg
from stream_dp.noise.tables import WORD_BITS, decided_floor

_GUARD = 32  # bits beyond the wanted ones in the first attempt


def below_exp_neg(y: Fraction, number: int, bits: int, more: Words) -> bool:
    """Say whether the uniform number whose first `bits` bits are `number` is below exp(-y), y >= 0.

    Args:
        y: the exponent, exact.
        number: the bits that are known, 0 <= number < 2^bits; may be none.
        bits: how many.
        more: where further bits come from, asked only if the known ones do not decide.
    """
    if y == 0:
        return True
    while True:
        floor = _floor(y, bits)
        if number != floor:
            return number < floor
        number = number << WORD_BITS | more.word()
        bits += WORD_BITS


def _floor(y: Fraction, bits: int) -> int:
    """Return floor(2^bits * exp(-y)) for y > 0."""
    guard = _GUARD
    while True:
        found = decided_floor(exp_neg(y, bits + guard), bits + guard, bits)
        if found is not None:
            return found
        guard *= 2
