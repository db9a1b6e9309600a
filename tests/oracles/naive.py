"""Naive reference mechanisms with explicit noise values: obvious, slow, plain integers.

Every function takes the noise it would have drawn, so that a real mechanism fed the same values
must give the same answers. Ticks t and intervals j count from 1; sequences are indexed from 0, so
nus[t - 1], taus[j - 1].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

NodeNoise: TypeAlias = Callable[[int, int], int]
Gamma: TypeAlias = Callable[[int, int], int]
Row: TypeAlias = Sequence[int]


@dataclass(frozen=True, slots=True)
class HssTick:
    """One tick's outcome: whether the interval closed, and the released histogram, clipped at 0."""

    top: bool
    released: tuple[int, ...]


def hss_histogram(
    rows: Sequence[Row],
    gamma: Gamma,
    taus: Sequence[int],
    nus: Sequence[int],
    counter_noise: NodeNoise,
) -> list[HssTick]:
    """The histogram form: max column of the open interval against gamma(t, j).

    `counter_noise(j, i)` is the noise of counter i's value after its j-th update.
    """
    return _hss(rows, lambda c, _: max(c), lambda _: 0, gamma, taus, nus, counter_noise)


def hss_relative(
    rows: Sequence[Row],
    q: Callable[[Row], int],
    gamma: Gamma,
    taus: Sequence[int],
    nus: Sequence[int],
    counter_noise: NodeNoise,
) -> list[HssTick]:
    """The relative form: q(c + h) against q(h) + gamma(t, j), h the clipped public histogram."""

    def value(c: Row, h: Row) -> int:
        return q([x + y for x, y in zip(c, h, strict=True)])

    return _hss(rows, value, q, gamma, taus, nus, counter_noise)


def _hss(
    rows: Sequence[Row],
    value: Callable[[Row, Row], int],
    base: Callable[[Row], int],
    gamma: Gamma,
    taus: Sequence[int],
    nus: Sequence[int],
    counter_noise: NodeNoise,
) -> list[HssTick]:
    """The loop of both forms: [HSV] Algorithm 4 with a re-based threshold, no second check."""
    width = len(rows[0])
    begin, j, h, ticks = 0, 1, (0,) * width, []
    for t in range(1, len(rows) + 1):
        c = [sum(row[i] for row in rows[begin:t]) for i in range(width)]
        top = value(c, h) + nus[t - 1] > base(h) + gamma(t, j) + taus[j - 1]
        if top:
            totals = [sum(row[i] for row in rows[:t]) for i in range(width)]
            h = tuple(max(0, totals[i] + counter_noise(j, i)) for i in range(width))
            begin, j = t, j + 1
        ticks.append(HssTick(top, h))
    return ticks
