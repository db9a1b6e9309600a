"""The law of windows over single ticks, and what neighbouring rows cost, from the theory alone, in Fractions.

Each tick's row gets discrete Laplace noise of scale h / epsilon, P[z] proportional to a^|z|, where h is the l1 norm of
what neighbours may differ by; a window is the sum of its ticks' noisy rows, told not below 0 unless sums are signed. So
two streams cost the l1 distance of their rows over the scale.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

Rows: TypeAlias = Sequence[Sequence[int]]


def law(
    rows: Rows, windows: Sequence[int], a: Fraction, radius: int, *, signed: bool = False
) -> dict[tuple[tuple[int, ...], ...], Fraction]:
    """Tick by tick, all windows' entries in a row, with the chance of noise that is cut off at `radius`."""
    places = sum(map(len, rows))
    chances = {z: (1 - a) / (1 + a) * a ** abs(z) for z in range(-radius, radius + 1)}
    found: dict[tuple[tuple[int, ...], ...], Fraction] = {}
    for noise in itertools.product(chances, repeat=places):
        drawn = iter(noise)
        noisy = [[count + next(drawn) for count in row] for row in rows]
        told = tuple(
            tuple(
                total if signed else max(0, total)
                for window in windows
                for total in map(sum, zip(*noisy[max(0, t - window + 1) : t + 1], strict=True))
            )
            for t in range(len(rows))
        )
        chance = Fraction(1)
        for z in noise:
            chance *= chances[z]
        found[told] = found.get(told, Fraction(0)) + chance
    return found


def cost(left: Rows, right: Rows, epsilon: Fraction, h: int) -> Fraction:
    """What these two streams lose, where noise is for a difference of h."""
    apart = sum(
        abs(a - b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return apart * epsilon / h
