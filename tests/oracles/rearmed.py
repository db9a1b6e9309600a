"""Exact law of re-armed alerts on one key's count: one bit per tick.

The instance that crosses consumes the whole tick; the next one starts from 0 with the next tick and fresh noise.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction

from oracles.svt import Decays, pattern_probability


def bits_probability(
    increments: Sequence[int], tops: tuple[bool, ...], threshold: int, noise: Decays
) -> Fraction:
    """Exact P[the alert bits are `tops`]."""
    chance, begin = Fraction(1), 0
    for end in range(1, len(tops) + 1):
        if tops[end - 1] or end == len(tops):
            counts = itertools.accumulate(increments[begin:end])
            margin = tuple(threshold - count + 1 for count in counts)
            chance *= pattern_probability(margin, tops[begin:end], noise)
            begin = end
    return chance
