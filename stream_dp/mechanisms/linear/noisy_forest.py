"""The forest behind sliding windows: all windows are answered at every tick, at one price.

A node of the forest covers some ticks. When its last tick is complete, its exact sums receive noise once and are
forgotten. Answers are computed from these noisy sums alone, so they cost nothing more: a window is the sum of its noisy
ticks, corrected by the counts of higher nodes (`ForestDecoding`). All of it is in fixed point. A surplus is a node's
noisy sum less the noisy sum of its ticks; no row moves it, so corrections, functions of surpluses, may be rounded. A
row lies in one node of each level, so the shares of the levels add up. The forest runs without end; its state holds the
longest window. `window_forest` states the noise. This file knows no privacy parameter, no ticks' times and no names.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import mul
from typing import ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, GOLDEN, UNIT, Variances, part, rounded
from stream_dp.mechanisms.serving import Additive

FLAT_IS_BEST = 64  # ticks: a window up to this length is a sum of single ticks, whatever other windows are requested
ARITIES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
PARTS = 32  # shares are multiples of 1 / PARTS
HIGHEST = 4
PHASES, ROUGH = 48, 12  # phases at which errors are compared: among the best, and first
FINALISTS = 4


def _spans(arities: Sequence[int]) -> tuple[int, ...]:
    """Return the number of ticks that a node covers, by level."""
    return tuple(itertools.accumulate(arities, mul, initial=1))


@wire("forest-shape", 1)
@dataclass(frozen=True)
class ForestShape:
    """`arities[l]` nodes of level l make one of level l + 1; level l has `shares[l]` of the budget.

    Node i of level l covers the ticks i K_l .. (i + 1) K_l - 1, K_l the product of the first l arities. There is
    nothing above the highest level, so a forest runs without end. All numbers here are public; the derivation checks
    that the shares add up to 1.
    """

    arities: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.arities) + 1 or min((2, *self.arities)) < 2:
            raise NotDerivable(
                "a forest needs one share of the budget for each level, and nodes with at least 2 "
                "children"
            )
        if min(self.shares) <= 0:
            raise NotDerivable("each level of a forest needs a share of the budget")

    @property
    def height(self) -> int:
        return len(self.shares)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        return _spans(self.arities)


FLAT = ForestShape((), (Fraction(1),))
"""Single ticks alone, at the whole budget."""


@lru_cache(maxsize=64)
def best_forest(windows: tuple[int, ...], power: int = 2) -> ForestShape:
    """Return the shape with the least geometric mean of the errors of `windows` (ticks).

    So no window loses more, in proportion, than the others gain. Errors are those of `ForestDecoding` with exact gains,
    at some phases. A node's noise variance is divided by (the level's share)^`power`: 2 for Laplace noise, 1 for
    Gaussian.
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
    return ForestShape(arities, tuple(Fraction(share, PARTS) for share in parts))


def _candidates(longest: int) -> Iterator[tuple[int, ...]]:
    """Yield arities whose highest nodes fit 2 to 100 times into the longest window."""
    for levels in range(1, HIGHEST):
        for arities in itertools.product(ARITIES, repeat=levels):
            if longest / 100 <= math.prod(arities) <= longest / 2:
                yield arities


def _equal(height: int) -> tuple[int, ...]:
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


@lru_cache(maxsize=256)  # neighbouring shares have neighbours in common
def _score(
    arities: tuple[int, ...],
    parts: tuple[int, ...],
    windows: tuple[int, ...],
    power: int,
    phases: int,
) -> float:
    """Return the mean logarithm of the windows' variances, rounded so that every machine gets the same number."""
    nodes = [(PARTS / share) ** power for share in parts]
    logs = [math.log(mean_variance(arities, nodes, window, phases)) for window in windows]
    return round(sum(logs) / len(logs), 9)


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
    """Return the variances of the estimates (`ForestDecoding`) of windows with the first ticks `first`; its shape."""
    past = first + window
    variances: Variances = np.zeros(first.shape)
    left = np.ones(first.shape, dtype=np.bool_)
    done, edge = float(nodes[0]), _EdgeVariance(first - 1)
    span = 1
    for level in range(len(nodes)):
        top = level == len(nodes) - 1
        last = past // span
        above = -1 if top else last // arities[level] * arities[level]
        ends = left & (first > above * span)
        begins = np.where(ends, -(-first // span), above)
        variances += np.where(left, (last - begins) * done, 0.0)
        variances += np.where(ends & (first % span > 0), edge.variance, 0.0)
        left &= ~ends
        if not top:
            own = nodes[level + 1]
            edge.climb(arities[level], done, float(own))
            span *= arities[level]
            done = own * arities[level] * done / (own + arities[level] * done)
    return variances


class _EdgeVariance:
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


# The last rows of a sequence, in blocks of shape (rows, width); all but the last block are full. Rings are values: a
# new row makes a new ring, which shares all blocks but the last with the ring before.

BLOCK = 64

Ring: TypeAlias = tuple[IntArray, ...]


def pushed(ring: Ring, row: IntArray, keep: int) -> Ring:
    """Return the ring with one more row; drop the oldest block where `keep` rows remain without it."""
    if ring and len(ring[-1]) < BLOCK:
        blocks = (*ring[:-1], np.concatenate([ring[-1], row[None]]))
    else:
        blocks = (*ring, row[None].copy())
    enough = BLOCK * (len(blocks) - 2) + len(blocks[-1]) >= keep
    return blocks[1:] if len(blocks) > 1 and enough else blocks


def row_back(ring: Ring, back: int) -> IntArray:
    block, place, last = 0, back, len(ring[-1])
    if back >= last:
        block, place = divmod(back - last, BLOCK)
        block, last = block + 1, BLOCK
    row: IntArray = ring[-1 - block][last - 1 - place]
    return row


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
    """The best linear estimate of a window from the complete nodes of a forest.

    A node of level l + 1 has `arities[l]` children; `variances` are those of the levels' noises, up to a common factor.

    A node's total is estimated from its own noisy count and its children's estimates: the surplus of the count over
    these estimates, times a gain, corrects them. A window is covered from its end by the largest complete nodes that
    fit. Where the window's first tick lies inside a node, the rest of that node is estimated from the smaller nodes
    behind that tick, corrected by the surplus of each node above. Surpluses of different nodes are uncorrelated, so
    each correction has its own gain, an integer over 2^GAIN_BITS. With exact gains no linear estimate is better
    (test_forest_exact computes dense ones). No count moves a surplus, so any gain keeps the estimate unbiased.
    """

    arities: tuple[int, ...]
    variances: tuple[Fraction, ...]

    @cached_property
    def spans(self) -> tuple[int, ...]:
        return _spans(self.arities)

    @cached_property
    def finished(self) -> tuple[Fraction, ...]:
        """The variance of a complete node's estimate, by level."""
        variances = [self.variances[0]]
        for arity, own in zip(self.arities, self.variances[1:], strict=True):
            below = arity * variances[-1]
            variances.append(own * below / (own + below))
        return tuple(variances)

    @cached_property
    def own_gains(self) -> tuple[int, ...]:
        """By level: the gain of a complete node's surplus in its own estimate; 0 at the lowest level."""
        pairs = zip(self.finished[1:], self.variances[1:], strict=True)
        return (0, *(round(done / own * UNIT) for done, own in pairs))

    def cover(self, updates: int, window: int) -> tuple[tuple[Whole, ...], Edge | None]:
        """Return the complete nodes, from the end, that cover the last `window` of `updates` ticks, and any edge."""
        begin, nodes = max(0, updates - window), []
        for level, span in enumerate(self.spans):
            past = updates // span
            above = -1
            if level < len(self.arities):
                above = past // self.arities[level] * self.arities[level]
            if begin > above * span:
                nodes.append(Whole(level, -(-begin // span), past))
                return tuple(nodes), Edge(level, begin - 1) if begin % span else None
            nodes.append(Whole(level, above, past))
        return tuple(nodes), None

    def gains(self, edge: Edge) -> tuple[int, ...]:
        """By level from 1 to the edge's: the gain of the surplus of the node above `before` for the edge's ticks."""
        key = edge.level, edge.before % self.spans[edge.level]
        if key not in self._gains:
            self._gains[key] = self._computed(edge)
        return self._gains[key]

    @cached_property
    def _gains(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Cache of gains: at most one entry for each tick position in a highest node and each level."""
        return {}

    def _computed(self, edge: Edge) -> tuple[int, ...]:
        cross, place, gains = Fraction(0), edge.before, []
        for level in range(edge.level):
            arity, own = self.arities[level], self.variances[level + 1]
            place, digit = divmod(place, arity)
            surplus = own + arity * self.finished[level]
            gain = ((arity - 1 - digit) * self.finished[level] + cross) / surplus
            gains.append(round(gain * UNIT))
            cross = gain * own
        return tuple(gains)

    def behind(self, edge: Edge) -> tuple[Whole, ...]:
        """Return the complete nodes, by level, from `before` to the end of the edge's node."""
        nodes = []
        for level in range(edge.level):
            place = edge.before // self.spans[level]
            past = (place // self.arities[level] + 1) * self.arities[level]
            nodes.append(Whole(level, place + 1, past))
        return tuple(nodes)

    def weights(self, updates: int, window: int) -> list[tuple[int, int, float]]:
        """Return (number, level, weight) of the node noises in the window's estimate, with the gains as used."""
        whole, edge = self.cover(updates, window)
        parts = [each for level, first, past in whole for each in self._below(level, past - first)]
        if edge is not None:
            parts += self._edge_weights(edge)
        return [each for each in parts if each[0] and each[2]]

    def _edge_weights(self, edge: Edge) -> list[tuple[int, int, float]]:
        carried, parts = 0.0, []
        for level in range(edge.level, 0, -1):
            place = edge.before // self.spans[level - 1] % self.arities[level - 1]
            own = self.own_gains[level] / UNIT
            taken = self.gains(edge)[level - 1] / UNIT + carried * own
            carried -= taken
            parts.append((1, level, taken))
            parts += self._below(level - 1, place, carried)
            parts += self._below(level - 1, self.arities[level - 1] - 1 - place, 1 + carried)
        return [*parts, (1, 0, carried)]

    def _below(self, level: int, number: int, weight: float = 1.0) -> list[tuple[int, int, float]]:
        """Return (number, level, weight) of the noises in the estimates of `number` complete nodes of `level`."""
        parts = []
        for upper in range(level, 0, -1):
            own = self.own_gains[upper] / UNIT
            parts.append((number, upper, weight * own))
            number, weight = number * self.arities[upper - 1], weight * (1 - own)
        return [*parts, (number, 0, weight)]


TEST = "tests/unit/mechanisms/test_forest_exact.py"
ONCE = "a node gets noise once, after its last tick, and an event lies in one node of each level"
MARGIN = 4  # bound on a window's parts and their corrections, as a multiple of the sum itself
MOST_HELD = 400_000  # numbers: a snapshot of them takes 3 MB


@wire("window-forest-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WindowForestState:
    """State after `updates` ticks (public). `open`: exact counts of open nodes, (levels - 1, width), private.

    `sums[l]` is a ring of rows of shape (width,) with running totals: level 0 adds up the noisy ticks, higher levels
    the corrections of complete nodes. `surpluses[l - 1]` has the surpluses of the complete nodes of level l. Values of
    the higher levels are in units of 2^-FRACTION_BITS.
    """

    updates: int
    open: IntArray
    sums: tuple[Ring, ...]
    surpluses: tuple[Ring, ...]


def require_held(windows: Sequence[int], width: int, beside: int = 0) -> None:
    """Raise NotDerivable where a state cannot hold the longest window, and `beside` more ticks, of so many counts."""
    if not windows or min(windows) < 1:
        raise NotDerivable("windows have 1 or more ticks")
    longest = max(windows)
    if (held := (longest + beside) * width) > MOST_HELD:
        raise NotDerivable(
            f"a window of {longest:,} ticks of {width:,} counts would hold {held:,} numbers, "
            f"more than {MOST_HELD:,}. Use a shorter window, fewer keys, or a longer clock step"
        )


class NoisyForest(Additive):
    """Answers of shape (windows * width,): the sums over each of `windows` (in ticks), one window after the other.

    A window longer than the stream so far counts what there is. Mechanisms declare the fields, and state the law of the
    noise: `node_variances`, `_drawable`, `_reach`, `noise`, and `_drawn`, which alone draws noise.
    """

    width: int
    windows: tuple[int, ...]
    shape: ForestShape
    ever: ClassVar[None] = None

    @property
    def forest(self) -> Self:
        return self

    @property
    def node_variances(self) -> tuple[Fraction, ...]:
        """The variance of one node's noise, by level, up to lattice effects."""
        raise NotImplementedError

    @property
    def _drawable(self) -> bool:
        """Whether the noise of every node can be drawn."""
        raise NotImplementedError

    def _reach(self, level: int, number: int) -> float:
        """Return a bound that the noises of `number` nodes of `level` in sum exceed with probability < e^-LIKELY."""
        raise NotImplementedError

    def _drawn(self, level: int, noise: Noise) -> IntArray:
        """Draw the noise of one node of `level`, shape (width,)."""
        raise NotImplementedError

    def checked_row(self, row: IntArray) -> IntArray:
        """Return `row` if it is a row for this mechanism, else raise RejectedMessage."""
        raise NotImplementedError

    @cached_property
    def decoding(self) -> ForestDecoding:
        return ForestDecoding(self.shape.arities, self.node_variances)

    def _require_room(self) -> None:
        """Raise NotDerivable where a state cannot hold the windows or 64 bits cannot hold their noise."""
        require_held(self.windows, self.width)
        longest = max(self.windows)
        if longest < self.shape.spans[-1]:
            raise NotDerivable("no node of a forest may be longer than the forest's longest window")
        widest = sum(
            self._reach(level, longest // span + 1) for level, span in enumerate(self.shape.spans)
        )
        bits = 62 if self.shape.height == 1 else 62 - FRACTION_BITS
        if MARGIN * widest >= 1 << bits or not self._drawable:
            raise NotDerivable(
                "noise in these windows is too wide for 64 bits; give more epsilon or, for a sum, a wider step"
            )

    def public(self, updates: int, state: WindowForestState | None) -> int:
        """Return the number of updates, reduced to a number of updates with the same noise: the law is periodic."""
        return self._repeating(updates, max(self.windows))

    def band(self, public: int, confidence: float) -> int:
        views = ((place, self._repeating(public, each)) for place, each in enumerate(self.windows))
        return max(self.view_band(place, now, confidence) for place, now in views)

    def view_public(self, place: int, updates: int, state: WindowForestState | None) -> int:
        return self._repeating(updates, self.windows[place])

    def view_variance(self, place: int, public: int) -> float:
        """Return the variance of a value of the window at index `place`, before rounding."""
        weights, nodes = self.decoding.weights(public, self.windows[place]), self.node_variances
        return sum(n * float(nodes[level]) * weight**2 for n, level, weight in weights)

    def _repeating(self, updates: int, window: int) -> int:
        """Return `updates` up to the window's length; later the noise repeats with the span of the highest nodes."""
        turn = self.shape.spans[-1]
        return updates if updates <= window else window + (updates - window - 1) % turn + 1

    def init(self, noise: Noise) -> WindowForestState:
        zeros, higher = np.zeros(self.width, dtype=np.int64), self.shape.height - 1
        none: tuple[Ring, ...] = ((),) * higher
        sums = (pushed((), zeros, 1),) * (higher + 1)
        return WindowForestState(0, np.zeros((higher, self.width), dtype=np.int64), sums, none)

    def step(
        self, state: WindowForestState, message: Message, noise: Noise
    ) -> Step[WindowForestState]:
        if isinstance(message, Query):
            return state, np.concatenate([self._window(state, each) for each in self.windows])
        return self._taken(state, self.checked_row(message.row), noise), None

    def _taken(self, state: WindowForestState, row: IntArray, noise: Noise) -> WindowForestState:
        updates = state.updates + 1
        ticks = row_back(state.sums[0], 0) + row + self._drawn(0, noise)
        sums = [pushed(state.sums[0], ticks, max(self.windows) + 1), *state.sums[1:]]
        surpluses, counted = list(state.surpluses), state.open + row
        for level in range(1, self.shape.height):
            span = self.shape.spans[level]
            if updates % span:
                break
            noisy = counted[level - 1] + self._drawn(level, noise)
            known = np.zeros_like(row)  # the corrections of its children
            if level > 1:
                ring = sums[level - 1]
                known = row_back(ring, 0) - row_back(ring, self.shape.arities[level - 1])
            of_ticks = ticks - row_back(sums[0], span)
            surplus = ((noisy - of_ticks) << FRACTION_BITS) - known
            correction = known + part(self.decoding.own_gains[level], surplus)
            keep = max(self.windows) // span + 3
            sums[level] = pushed(sums[level], row_back(sums[level], 0) + correction, keep)
            surpluses[level - 1] = pushed(surpluses[level - 1], surplus, keep)
            counted[level - 1] = 0
        return WindowForestState(updates, counted, tuple(sums), tuple(surpluses))

    def _window(self, state: WindowForestState, window: int) -> IntArray:
        updates, ring = state.updates, state.sums[0]
        ticks = row_back(ring, 0) - row_back(ring, min(window, updates))
        if self.shape.height == 1:
            return ticks
        whole, edge = self.decoding.cover(updates, window)
        fine = self._corrections(state, whole)
        if edge is not None:
            fine += self._corrections(state, self.decoding.behind(edge))
            fine += self._corrected(state, edge)
        return ticks + rounded(fine)

    def _corrections(self, state: WindowForestState, nodes: Sequence[Whole]) -> IntArray:
        fine = np.zeros(self.width, dtype=np.int64)
        for level, first, past in nodes:
            if level and past > first:
                ring, last = state.sums[level], state.updates // self.shape.spans[level]
                fine += row_back(ring, last - past) - row_back(ring, last - first)
        return fine

    def _corrected(self, state: WindowForestState, edge: Edge) -> IntArray:
        """Return the correction of the ticks behind the edge, from the surpluses of the nodes above it."""
        fine = np.zeros(self.width, dtype=np.int64)
        for level, gain in enumerate(self.decoding.gains(edge), start=1):
            span = self.shape.spans[level]
            back = state.updates // span - 1 - edge.before // span
            fine += part(gain, row_back(state.surpluses[level - 1], back))
        return fine
