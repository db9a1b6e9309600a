"""The best linear estimate of a window from the complete nodes of a forest: integer gains, and each noise's weight.

A node's total is estimated from its own noisy count and its children's estimates: the surplus of the count over
these estimates, times a gain, corrects them. A window is covered from its end by the largest complete nodes that
fit. Where the window's first tick lies inside a node, the rest of that node is estimated from the smaller nodes
behind that tick, corrected by the surplus of each node above. Surpluses of different nodes are uncorrelated, so
each correction has its own gain; with exact gains no linear estimate is better (test_forest_exact computes dense
ones). No count moves a surplus, so any gain keeps the estimate unbiased. Rules: a gain is an integer over
2^GAIN_BITS, computed with fractions from node positions alone. This file knows no noise and no state.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

GAIN_BITS = 16
UNIT = 1 << GAIN_BITS


class Whole(NamedTuple):
    """Complete nodes of `level`, with indices from `first` to `past` - 1."""

    level: int
    first: int
    past: int


class Edge(NamedTuple):
    """The ticks from tick `before` to the end of the node of `level` that holds it."""

    level: int
    before: int


@dataclass(frozen=True)
class ForestDecoding:
    """Estimator for nodes of `arities[l]` children; `variances` of their noises by level, up to a common factor."""

    arities: tuple[int, ...]
    variances: tuple[Fraction, ...]

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Number of ticks that a node covers, by level."""
        return tuple(math.prod(self.arities[:level]) for level in range(len(self.variances)))

    @cached_property
    def finished(self) -> tuple[Fraction, ...]:
        """The variance of a complete node's estimate, by level."""
        found = [self.variances[0]]
        for arity, own in zip(self.arities, self.variances[1:], strict=True):
            below = arity * found[-1]
            found.append(own * below / (own + below))
        return tuple(found)

    @cached_property
    def own_gains(self) -> tuple[int, ...]:
        """By level: the gain of a complete node's surplus in its own estimate; 0 at the lowest level."""
        pairs = zip(self.finished[1:], self.variances[1:], strict=True)
        return (0, *(round(done / own * UNIT) for done, own in pairs))

    def cover(self, updates: int, window: int) -> tuple[tuple[Whole, ...], Edge | None]:
        """Return the complete nodes, from the end, that cover the last `window` of `updates` ticks, and any edge."""
        begin, found = max(0, updates - window), []
        for level, span in enumerate(self.spans):
            past = updates // span
            above = -1
            if level < len(self.arities):
                above = past // self.arities[level] * self.arities[level]
            if begin <= above * span:
                found.append(Whole(level, above, past))
                continue
            found.append(Whole(level, -(-begin // span), past))
            return tuple(found), Edge(level, begin - 1) if begin % span else None
        return tuple(found), None

    def gains(self, edge: Edge) -> tuple[int, ...]:
        """By level from 1 to the edge's: the gain of the surplus of the node above `before` for the edge's ticks."""
        key = edge.level, edge.before % self.spans[edge.level]
        if key not in self._gains:
            self._gains[key] = self._computed(edge)
        return self._gains[key]

    @cached_property
    def _gains(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Cache of gains; it has at most one entry for each tick position in a highest node and each level."""
        return {}

    def _computed(self, edge: Edge) -> tuple[int, ...]:
        cross, place, found = Fraction(0), edge.before, []
        for level in range(edge.level):
            arity, own = self.arities[level], self.variances[level + 1]
            place, digit = divmod(place, arity)
            surplus = own + arity * self.finished[level]
            gain = ((arity - 1 - digit) * self.finished[level] + cross) / surplus
            found.append(round(gain * UNIT))
            cross = gain * own
        return tuple(found)

    def behind(self, edge: Edge) -> tuple[Whole, ...]:
        """Return the complete nodes, by level, from `before` to the end of the edge's node."""
        found = []
        for level in range(edge.level):
            place = edge.before // self.spans[level]
            past = (place // self.arities[level] + 1) * self.arities[level]
            found.append(Whole(level, place + 1, past))
        return tuple(found)

    def weights(self, updates: int, window: int) -> list[tuple[int, int, float]]:
        """Return (number, level, weight) of the node noises in the window's estimate, with the gains as used."""
        whole, edge = self.cover(updates, window)
        found = [part for each in whole for part in self._below(each.level, each.past - each.first)]
        if edge is not None:
            found += self._edge_weights(edge)
        return [part for part in found if part[0] and part[2]]

    def _edge_weights(self, edge: Edge) -> list[tuple[int, int, float]]:
        carried, found = 0.0, []
        for level in range(edge.level, 0, -1):
            place = edge.before // self.spans[level - 1] % self.arities[level - 1]
            own = self.own_gains[level] / UNIT
            taken = self.gains(edge)[level - 1] / UNIT + carried * own
            carried -= taken
            found.append((1, level, taken))
            found += self._below(level - 1, place, carried)
            found += self._below(level - 1, self.arities[level - 1] - 1 - place, 1 + carried)
        return [*found, (1, 0, carried)]

    def _below(self, level: int, number: int, weight: float = 1.0) -> list[tuple[int, int, float]]:
        """Return (number, level, weight) of the noises in the estimates of `number` complete nodes of `level`."""
        found = []
        for upper in range(level, 0, -1):
            own = self.own_gains[upper] / UNIT
            found.append((number, upper, weight * own))
            number, weight = number * self.arities[upper - 1], weight * (1 - own)
        return [*found, (number, 0, weight)]
