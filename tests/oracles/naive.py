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


def tree_noise(t: int, k: int, h: int, node: NodeNoise) -> int:
    """Noise of the k-ary tree with subtraction after t items, from each node's noise."""
    total, x = 0, t
    for level in range(h):
        digit = x % k
        if digit > (k - 1) // 2:
            digit -= k
        x = (x - digit) // k
        for i in range(k * x, k * x + digit):
            total += node(level, i)
        for i in range(k * x + digit, k * x):
            total -= node(level, i)
    return total


def tree_counter(items: Sequence[int], k: int, h: int, node: NodeNoise) -> list[int]:
    """The releases after each item: exact prefix sums plus tree noise."""
    return [sum(items[:t]) + tree_noise(t, k, h, node) for t in range(1, len(items) + 1)]


def above_threshold(
    queries: Sequence[int], thresholds: Sequence[int], tau: int, nus: Sequence[int]
) -> list[bool]:
    """AboveThreshold ([HSV] Algorithm 3): False for bottom; ends with the first True."""
    answers: list[bool] = []
    for query, threshold, nu in zip(queries, thresholds, nus, strict=False):
        answers.append(query + nu > threshold + tau)
        if answers[-1]:
            break
    return answers


def rearmed_alerts(
    counts: Sequence[int], threshold: int, taus: Sequence[int], nus: Sequence[int]
) -> list[bool]:
    """One key's alerts: a crossing consumes its tick, the next instance starts from 0 after it."""
    answers: list[bool] = []
    begin = 0
    for t in range(1, len(counts) + 1):
        top = sum(counts[begin:t]) + nus[t - 1] > threshold + taus[sum(answers)]
        answers.append(top)
        if top:
            begin = t
    return answers


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
