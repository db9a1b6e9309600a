"""Universal mechanisms' exact composition in Fractions: no float, no interval, every answer listed."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

ONE, ZERO = Fraction(1), Fraction(0)
Part = tuple[Fraction, Fraction]  # (odds = e^epsilon, delta)


def composed_delta(parts: Sequence[Part], ratio: Fraction) -> Fraction:
    """Murtagh, Vadhan: the least delta of RR_(e1,d1) x ... at e^epsilon = ratio, over all 2^k answers."""
    found = ZERO
    for told in itertools.product((True, False), repeat=len(parts)):
        p = math.prod((o if t else ONE for t, (o, _) in zip(told, parts, strict=True)), start=ONE)
        q = math.prod((ONE if t else o for t, (o, _) in zip(told, parts, strict=True)), start=ONE)
        found += max(ZERO, p - ratio * q)
    found /= math.prod((1 + odds for odds, _ in parts), start=ONE)
    return 1 - (1 - found) * math.prod((1 - d for _, d in parts), start=ONE)
