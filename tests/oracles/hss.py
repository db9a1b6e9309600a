"""Exact worst-case loss of a small histogram by sparse vector and counters ([HSV] Algorithm 4).

The histogram form: AboveThreshold with one-sided geometric noise watches max_i c_i, the largest
count since the last crossing, against a public gamma(t, j); each crossing closes interval j and
releases the d interval sums, each plus one fresh DLap(l0 / e_c) (a counter with one node per
update). One event touches one interval: one SVT instance and at most L0 counters ([HSV] Cor 5.5,
Thm 4.10), hence e1 + e2 + e_c. Given the public bits, releases and comparisons are independent, so
the loss is the SVT's log ratio plus |change of the closed interval|_1 * e_c / l0.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from oracles.exact import log_ratio
from oracles.svt import Decays, pattern_probability

Stream: TypeAlias = tuple[tuple[int, ...], ...]
Gamma: TypeAlias = Callable[[int, int], int]


class Relation(Enum):
    """Neighbouring one-hot events: one more, or another content (the zero row included)."""

    ADD_REMOVE = auto()
    REPLACE = auto()


@dataclass(frozen=True, slots=True)
class Hss:
    """Budgets and noise factors: SVT scales 1/e1 and s/e2, counter scale l0/e_c."""

    e1: float
    e2: float
    e_c: float
    s: int
    l0: int
    gamma: Gamma

    @property
    def noise(self) -> Decays:
        return Decays.of(self.e1, self.e2, self.s)

    @property
    def claim(self) -> float:
        """What it would promise if s and l0 fit the relation."""
        return self.e1 + self.e2 + self.e_c


def intervals(tops: Sequence[bool]) -> list[tuple[int, int]]:
    """0-based half-open tick ranges of the intervals; only the last one can be open."""
    ends = [t + 1 for t, top in enumerate(tops) if top]
    begins = [0, *ends]
    closing = [*ends, len(tops)]
    return [(b, e) for b, e in zip(begins, closing, strict=True) if b < e]


@lru_cache(maxsize=1 << 18)
def bits_probability(stream: Stream, tops: tuple[bool, ...], hss: Hss) -> Fraction:
    """Exact P[the crossings are `tops`]."""
    result = Fraction(1)
    for j, (begin, end) in enumerate(intervals(tops), start=1):
        sums = np.cumsum(np.array(stream[begin:end]), axis=0)
        margin = tuple(
            hss.gamma(t, j) - int(row.max()) + 1 for t, row in enumerate(sums, start=begin + 1)
        )
        result *= pattern_probability(margin, tops[begin:end], hss.noise)
    return result


def released_change(a: Stream, b: Stream, tops: Sequence[bool]) -> int:
    """l1 distance of the released interval sums of two streams under equal crossings."""
    change = 0
    for begin, end in intervals(tops):
        if tops[end - 1]:
            gap = np.array(a[begin:end]).sum(axis=0) - np.array(b[begin:end]).sum(axis=0)
            change += int(np.abs(gap).sum())
    return change


def pair_loss(a: Stream, b: Stream, hss: Hss) -> float:
    """max over transcripts of |ln(P_a / P_b)|."""
    return max(
        abs(log_ratio(bits_probability(a, tops, hss), bits_probability(b, tops, hss)))
        + released_change(a, b, tops) * hss.e_c / hss.l0
        for tops in itertools.product((False, True), repeat=len(a))
    )


def contents(width: int, relation: Relation) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The two copies' contents of the one event that differs."""
    zero = (0,) * width
    hots = [tuple(int(i == j) for j in range(width)) for i in range(width)]
    yield from ((hot, zero) for hot in hots)
    if relation is Relation.REPLACE:
        yield from itertools.combinations(hots, 2)


def neighbours(
    horizon: int, relation: Relation, values: Sequence[int], width: int = 2
) -> Iterator[tuple[Stream, Stream]]:
    """All pairs of streams whose common rows have entries from `values`."""
    rows = list(itertools.product(values, repeat=width))
    for base in itertools.product(rows, repeat=horizon):
        for tick, (left, right) in itertools.product(range(horizon), contents(width, relation)):
            yield _plus(base, tick, left), _plus(base, tick, right)


def _plus(base: Stream, tick: int, event: Sequence[int]) -> Stream:
    """The stream with one more event in one tick."""
    row = tuple(x + e for x, e in zip(base[tick], event, strict=True))
    return (*base[:tick], row, *base[tick + 1 :])


@dataclass(frozen=True, slots=True)
class WorstStreams:
    """The worst pair of streams a search met and its exact loss."""

    loss: float
    streams: tuple[Stream, Stream]


def worst_loss(
    hss: Hss, relation: Relation, horizon: int, values: Sequence[int] = (0, 1, 2), width: int = 2
) -> WorstStreams:
    """Worst exact loss over all neighbouring streams with entries from `values`."""
    found = (
        WorstStreams(pair_loss(a, b, hss), (a, b))
        for a, b in neighbours(horizon, relation, values, width)
    )
    return max(found, key=lambda w: w.loss)
