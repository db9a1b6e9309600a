"""The exact law of a privately selected quantile, from its description alone: integers, Fractions, geometric series.

Rules: values below the clamp are one bucket, the clamp is cut into equal ones, values from its upper end on are the
last one. Of n values, bucket b is max(0, s before(b) - p n, p n - s through(b)) away from the quantile p/s. Each bucket
gets geometric noise, P[x] = (1 - a) a^x, and the first of those with the largest noise minus distance is told.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction


def bucket_of(value: float, low: Fraction, high: Fraction, buckets: int) -> int:
    """The bucket of a value, of `buckets` + 2."""
    if value < low:
        return 0
    if value >= high:
        return buckets + 1
    return 1 + math.floor((Fraction(value) - low) / (high - low) * buckets)


def distances(places: Sequence[int], of: int, asked: Fraction) -> list[int]:
    """How far each of `of` buckets is from the quantile `asked` of values in these buckets."""
    p, s, n = asked.numerator, asked.denominator, len(places)
    before = [sum(1 for place in places if place < b) for b in range(of)]
    through = [sum(1 for place in places if place <= b) for b in range(of)]
    return [max(0, s * before[b] - p * n, p * n - s * through[b]) for b in range(of)]


def law(away: Sequence[int], a: Fraction) -> list[Fraction]:
    """The chance of each bucket."""
    return [_wins(b, away, a) for b in range(len(away))]


def _wins(b: int, away: Sequence[int], a: Fraction) -> Fraction:
    """Sum over b's noise m of its chance times that of all others to stay below, or to be equal and come later."""
    most = [away[c] - away[b] - (1 if c < b else 0) for c in range(len(away)) if c != b]
    late = max(0, *(-each for each in most), 0)
    found = sum(
        ((1 - a) * a**m * math.prod(_at_most(m + each, a) for each in most) for m in range(late)),
        Fraction(0),
    )
    for number in range(len(most) + 1):  # from `late` on every factor is 1 - a^(m + each + 1)
        for those in itertools.combinations(most, number):
            rest = (1 - a) * (-1) ** number * a ** sum(each + 1 for each in those)
            found += rest * a ** (late * (1 + number)) / (1 - a ** (1 + number))
    return found


def _at_most(x: int, a: Fraction) -> Fraction:
    return 1 - a ** (x + 1) if x >= 0 else Fraction(0)
