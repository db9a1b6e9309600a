"""Exact law and worst loss of one column of HSS bin by bin: a re-armed count sparse vector and the counter behind it.

AboveThreshold with one-sided geometric noise compares the column's count since its last crossing with gamma(t, j); each
crossing closes interval j and releases the total plus counter noise. Here the counter draws one fresh DLap(1 / e_c)
for each update and never drops it, so a release minus the one before is the interval's sum plus one draw. Given the
public bits, comparisons and counter noise are independent: the loss is the bits' log ratio plus e_c where the event's
interval has closed. Two columns are independent, so under replace the losses of the column that has one more and of the
column that has one less add up. Ticks t and intervals j count from 1.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from oracles.exact import laplace_pmf, log_ratio
from oracles.svt import Decays, pattern_probability

Gamma: TypeAlias = Callable[[int, int], int]
Bits: TypeAlias = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Budgets of one column and its public thresholds."""

    e1: float
    e2: float
    e_c: float
    gamma: Gamma

    @property
    def noise(self) -> Decays:
        """The decays of the sparse vector's noise: one-signed changes."""
        return Decays.of(self.e1, self.e2)


def intervals(tops: Sequence[bool]) -> list[tuple[int, int, bool]]:
    """(begin, end, closed) of each interval, 0-based and half-open."""
    ends = [t + 1 for t, top in enumerate(tops) if top]
    closed = [(b, e, True) for b, e in zip([0, *ends], ends, strict=False)]
    last = ends[-1] if ends else 0
    return [*closed, (last, len(tops), False)] if last < len(tops) else closed


def bits_probability(counts: Sequence[int], tops: Bits, column: Column) -> Fraction:
    """Exact P[the crossings are `tops`]."""
    result = Fraction(1)
    for j, (begin, end, _) in enumerate(intervals(tops), start=1):
        sums = itertools.accumulate(counts[begin:end])
        margin = tuple(column.gamma(t, j) - c for t, c in enumerate(sums, start=begin + 1))
        result *= pattern_probability(margin, tops[begin:end], column.noise)
    return result


def released(counts: Sequence[int], tops: Bits) -> int:
    """How many events lie in closed intervals."""
    return sum(sum(counts[begin:end]) for begin, end, closed in intervals(tops) if closed)


def directed_loss(a: Sequence[int], b: Sequence[int], column: Column) -> float:
    """max over transcripts of ln(P_a / P_b), for streams that differ by one event."""
    return max(
        log_ratio(bits_probability(a, tops, column), bits_probability(b, tops, column))
        + abs(released(a, tops) - released(b, tops)) * column.e_c
        for tops in itertools.product((False, True), repeat=len(a))
    )


def pairs(horizon: int, values: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All streams of per-tick counts, each with the same stream and one more event in one tick."""
    for base in itertools.product(values, repeat=horizon):
        for tick in range(horizon):
            yield base, tuple(x + int(t == tick) for t, x in enumerate(base))


def worst_added(column: Column, horizon: int, values: Sequence[int] = (0, 1, 2)) -> float:
    """Worst loss over one event more or less in one column."""
    return max(
        max(directed_loss(a, b, column), directed_loss(b, a, column))
        for a, b in pairs(horizon, values)
    )


def worst_moved(column: Column, horizon: int, values: Sequence[int] = (0, 1, 2)) -> float:
    """Worst loss over one event that lies in one of two equal columns or in the other, in one tick."""
    up: dict[int, float] = {}
    down: dict[int, float] = {}
    for a, b in pairs(horizon, values):
        tick = next(t for t in range(horizon) if a[t] != b[t])
        up[tick] = max(up.get(tick, 0.0), directed_loss(b, a, column))
        down[tick] = max(down.get(tick, 0.0), directed_loss(a, b, column))
    return max(up[tick] + down[tick] for tick in range(horizon))


def law(
    counts: Sequence[int], column: Column, decay: Fraction, radius: int
) -> dict[tuple[int, ...], Fraction]:
    """P[what is released at each tick], clipped at 0; each counter draw within `radius`, the rest is left out."""
    found: dict[tuple[int, ...], Fraction] = {}
    for tops in itertools.product((False, True), repeat=len(counts)):
        chance = bits_probability(counts, tops, column)
        for draws in itertools.product(range(-radius, radius + 1), repeat=sum(tops)):
            shown, noise, left, total, value = [], 0, iter(draws), 0, 0
            for count, top in zip(counts, tops, strict=True):
                total += count
                if top:
                    noise += next(left)
                    value = max(0, total + noise)
                shown.append(value)
            weight = chance
            for draw in draws:
                weight *= laplace_pmf(draw, decay)
            found[tuple(shown)] = found.get(tuple(shown), Fraction(0)) + weight
    return found
