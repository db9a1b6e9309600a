"""Levels of a forest of windows: how many ticks the nodes of a level cover, and its share of the budget.

A node (level l, index i) covers the ticks i K_l .. (i + 1) K_l - 1, K_l the product of the first l arities; there
is nothing above the highest level, so a forest runs without end. `best_forest` chooses the shape with the least
geometric mean of the errors of the requested windows, so that no window loses more, in proportion, than the others
gain. It evaluates the closed form of `forest_decoding`, with exact gains, at some phases. Rules: all numbers here
are public, and none is added to a count. This file draws nothing.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from stream_dp.core.messages import IntArray
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable

Variances = NDArray[np.float64]
FLAT_IS_BEST = 64  # ticks: a window up to this length is a sum of single ticks, whatever other windows are requested
ARITIES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
PARTS = 32  # shares are multiples of 1 / PARTS
HIGHEST = 4
PHASES, ROUGH = 48, 12  # phases at which errors are compared: among the best, and first
FINALISTS = 4
GOLDEN = (math.sqrt(5) - 1) / 2


@wire("forest-shape", 1)
@dataclass(frozen=True)
class ForestShape:
    """`arities[l]` nodes of level l make one of level l + 1; level l has `shares[l]` of the budget.

    Raises:
        NotDerivable: the numbers of levels and shares do not match.
    """

    arities: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        """Check levels and shares; that the shares add up to 1 is checked by the derivation."""
        if len(self.shares) != len(self.arities) + 1 or min((2, *self.arities)) < 2:
            raise NotDerivable("a forest has one share for each level, and nodes of 2 or more")
        if min(self.shares) <= 0:
            raise NotDerivable("each level of a forest has a share of the budget")

    @property
    def height(self) -> int:
        """Number of levels: every tick lies in one node of each."""
        return len(self.shares)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Number of ticks that a node covers, by level."""
        return tuple(math.prod(self.arities[:level]) for level in range(self.height))


FLAT = ForestShape((), (Fraction(1),))
"""Single ticks alone, at the whole budget."""


@lru_cache(maxsize=64)
def best_forest(windows: tuple[int, ...], power: int = 2) -> ForestShape:
    """Return the shape with the least geometric mean of the errors of `windows` (ticks).

    A node's noise variance is that at the whole budget, divided by (the level's share)^`power`: 2 for Laplace
    noise, 1 for Gaussian noise.
    """
    longest = max(windows)
    if longest <= FLAT_IS_BEST:
        return FLAT
    equal = [
        (_score(arities, _equal(len(arities) + 1), windows, power, ROUGH), arities)
        for arities in _candidates(longest)
    ]
    tuned = [_tuned(arities, windows, power) for _, arities in sorted(equal)[:FINALISTS]]
    flat = (_score((), (PARTS,), windows, power, PHASES), (), (PARTS,))
    _, arities, parts = min([flat, *tuned])
    return ForestShape(arities, tuple(Fraction(part, PARTS) for part in parts))


def _candidates(longest: int) -> Iterator[tuple[int, ...]]:
    """Yield arities whose highest nodes fit 2 to 100 times into the longest window."""
    for levels in range(1, HIGHEST):
        for arities in itertools.product(ARITIES, repeat=levels):
            if longest / 100 <= math.prod(arities) <= longest / 2:
                yield arities


def _equal(height: int) -> tuple[int, ...]:
    """Return shares that differ by at most one part."""
    return tuple(PARTS * (level + 1) // height - PARTS * level // height for level in range(height))


def _tuned(
    arities: tuple[int, ...], windows: tuple[int, ...], power: int
) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """Return (score, arities, shares) of a local optimum: no move of one part between two levels improves it."""
    parts = _equal(len(arities) + 1)
    score = _score(arities, parts, windows, power, PHASES)
    while True:
        moved = [(_score(arities, after, windows, power, PHASES), after) for after in _moves(parts)]
        best = min(moved)
        if best[0] >= score:
            return score, arities, parts
        score, parts = best


def _moves(parts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for giver, taker in itertools.permutations(range(len(parts)), 2):
        if parts[giver] > 1:
            after = list(parts)
            after[giver] -= 1
            after[taker] += 1
            yield tuple(after)


def _score(
    arities: tuple[int, ...], parts: Sequence[int], windows: Sequence[int], power: int, phases: int
) -> float:
    """Return the mean logarithm of the windows' variances, rounded so that every machine gets the same number."""
    nodes = [(PARTS / part) ** power for part in parts]
    found = [math.log(mean_variance(arities, nodes, window, phases)) for window in windows]
    return round(sum(found) / len(found), 9)


def mean_variance(
    arities: Sequence[int], nodes: Sequence[float], window: int, phases: int
) -> float:
    """Return the mean variance of a window's estimate over phases; `nodes` has the noise variances by level."""
    turn = math.prod(arities)
    spread = np.arange(min(phases, turn)) * GOLDEN % 1 if turn > phases else np.arange(turn) / turn
    first = turn + (spread * turn + 1e-9).astype(np.int64)
    return float(window_variances(arities, nodes, first, window).mean())


def window_variances(
    arities: Sequence[int], nodes: Sequence[float], first: IntArray, window: int
) -> Variances:
    """Return the variances of the estimates of windows whose first ticks are `first`; shape of `first`.

    A window is covered from its end by the largest whole nodes, until a node holds its first tick inside. The rest
    of that node is estimated from its own noise and all nodes below (`forest_decoding`).
    """
    past = first + window
    found: Variances = np.zeros(first.shape)
    left = np.ones(first.shape, dtype=np.bool_)
    done, edge = float(nodes[0]), _Edge(first - 1)
    span = 1
    for level in range(len(nodes)):
        top = level == len(nodes) - 1
        last = past // span
        above = -1 if top else last // arities[level] * arities[level]
        ends = left & (first > above * span)
        begins = np.where(ends, -(-first // span), above)
        found += np.where(left, (last - begins) * done, 0.0)
        found += np.where(ends & (first % span > 0), edge.variance, 0.0)
        left &= ~ends
        if not top:
            edge.climb(arities[level], done, float(nodes[level + 1]))
            span *= arities[level]
            done = (
                nodes[level + 1]
                * arities[level]
                * done
                / (nodes[level + 1] + arities[level] * done)
            )
    return found


class _Edge:
    """The part of a node behind tick `place`: its estimate's variance and covariance with the node's estimate."""

    def __init__(self, place: IntArray) -> None:
        self.variance: Variances = np.zeros(place.shape)
        self._place = place
        self._cross: Variances = np.zeros(place.shape)

    def climb(self, arity: int, below: float, own: float) -> None:
        """Move to the parent, with `arity` children of estimate variance `below` and own noise variance `own`."""
        behind = arity - 1 - self._place % arity
        moved = behind * below + self._cross
        surplus = own + arity * below
        self.variance = self.variance + behind * below - moved**2 / surplus
        self._cross = moved * own / surplus
        self._place = self._place // arity
