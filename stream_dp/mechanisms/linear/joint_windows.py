"""Sliding windows and the count so far with one noise for all of them: Gaussian, or Laplace without a delta.

`CorrelatedWindows` has differences of one Gaussian counter's answers. The counter adds correlated noise to the count so
far. A window is that sum now less the sum before the window, which is post-processing: windows cost nothing, and no
budget is split among them. What makes windows narrow is the choice of the counter's decays (`best_decays`).

`NestedWindows` has one tree of spans with Laplace noise. A node of level l covers the steps of `spans[l]` ticks; the
spans are those of a `ForestShape`, each a multiple of the one before, and each level has a share of the budget. All
noises of a highest node are drawn when its first step comes, and the noise of every prefix inside it is computed then:
the prefix sums of the least squares estimate of the steps, given all node totals. A window is a difference of two noisy
prefixes, and that is its least squares estimate too.

Privacy: the release is A x + f(z), where f(z + R y) = f(z) + A y for every integer stream y (R y: the node totals of
y). Going up, a node's estimate is its children's sum, corrected by a part of the surplus of its noise over that sum;
going down, the surplus of a node's estimate over its children's is spread evenly. R y moves no surplus, so all these
parts may be rounded. Hence, for streams that differ by y at step i, shift the noises of the nodes that hold i by R y:
answers before i do not move, so the shift may depend on them, and it costs the sum over levels of 1 / scale.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise, product
from operator import mul
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.linear.counter import Linear, PureShares
from stream_dp.mechanisms.linear.gaussian_counter import (
    GUARD,
    MOST_GAIN,
    MOST_STEPS,
    Decays,
    GaussianCounter,
    GaussianCounterState,
)
from stream_dp.mechanisms.linear.noisy_forest import (
    ForestDecoding,
    ForestShape,
    Ring,
    pushed,
    require_held,
    row_back,
)
from stream_dp.mechanisms.linear.tree import FRACTION_BITS, GOLDEN, LIKELY, UNIT, part, rounded
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import Additive, CountRows

# Fitting decays. A view is a window, or all ticks so far, after some number of ticks.

POWER = 8  # of the mean over the views: near the worst of them, and smooth
FINEST = 16  # a gain is a power of 2^(1 / FINEST), rounded
MOST_BUFFERS = 6
OCTAVES = 3  # halvings that one buffer stands for, at first
ENDLESS_TICKS = 1 << 14, 1 << 24  # where the count so far is compared, without a horizon


class View(NamedTuple):
    window: int
    ticks: int

    @property
    def least(self) -> float:
        """The least error times sensitivity of any Toeplitz strategy for this view alone, up to 1 %.

        It is the squared norm of the root of the view's power series; for a window, of sqrt((1 - x^W) / (1 - x)).
        """
        if self.window < self.ticks:
            return 1 + 4 / math.pi**2 * math.log(self.window)
        return 1 + (math.log(self.ticks) + 0.5772 + math.log(16) - math.pi) / math.pi


class Buffers(NamedTuple):
    """Buffers with these halvings, in falling order, and gains 2^(powers / FINEST), rounded."""

    halvings: tuple[int, ...]
    powers: tuple[int, ...]

    @classmethod
    def spread(cls, number: int, halvings: int) -> "Buffers":
        """Return buffers at even distances, with gains for which c falls like the root of the number of steps."""
        spread = sorted({max(1, round(halvings * (i + 0.7) / number)) for i in range(number)})
        powers = [FINEST * (k // 2 + GUARD - 2) for k in reversed(spread)]
        return cls(tuple(reversed(spread)), tuple(powers))

    @property
    def decays(self) -> Decays:
        return Decays(self.halvings, tuple(round(2 ** (power / FINEST)) for power in self.powers))

    def moves(self, by: int) -> Iterator["Buffers"]:
        """Yield the buffers next to these: one gain moved, or one buffer to the next halving."""
        for at, (halving, power) in enumerate(zip(*self, strict=True)):
            for step in (-by, by):
                yield self._with(at, halving, power + step)
            # with the halving, the weight moves by so many half octaves against it
            for step, kept in product((-1, 1), (0, 1, 2)):
                yield self._with(at, halving + step, power + step * kept * FINEST // 2)

    def _with(self, at: int, halving: int, power: int) -> "Buffers":
        halvings, powers = list(self.halvings), list(self.powers)
        halvings[at], powers[at] = halving, power
        return Buffers(tuple(halvings), tuple(powers))

    @property
    def sound(self) -> bool:
        falling = all(high > low for high, low in pairwise((*self.halvings, 0)))
        most = FINEST * math.log2(MOST_GAIN)
        return falling and 0 <= min(self.powers) <= max(self.powers) <= most - 1


@lru_cache(maxsize=64)
def best_decays(windows: tuple[int, ...], ever: bool, horizon: int | None) -> Decays:
    """Return decays for which these windows (in ticks), and with `ever` the count so far, all have little error.

    For each view the mean square error has a least value of its own. What is least here is the mean, of power `POWER`,
    of the quotients, so that no view is far worse off than another. The search is local, from two spreads of buffers;
    scores are rounded, so that machines get the same decays. One that got others would refuse the journal.
    """
    last = MOST_STEPS if horizon is None else horizon
    views = [View(window, last) for window in windows]
    if ever:
        views += [View(ticks, ticks) for ticks in (ENDLESS_TICKS if horizon is None else (last,))]
    halvings = max(min(view) for view in views).bit_length()
    fewest = min(MOST_BUFFERS, max(2, halvings // OCTAVES)) - 1
    ends = [_local(Buffers.spread(n, halvings), tuple(views)) for n in (fewest, fewest + 1)]
    return min(ends)[1].decays


def _local(buffers: Buffers, views: Sequence[View]) -> tuple[float, Buffers]:
    """Return (score, buffers) of a local optimum of gains and halvings."""
    best, by = (_score(buffers, views), buffers), FINEST
    while by:
        moved = [(_score(each, views), each) for each in best[1].moves(by) if each.sound]
        if moved and min(moved)[0] < best[0]:
            best = min(moved)
        else:
            by //= 2
    return best


def _score(buffers: Buffers, views: Sequence[View]) -> float:
    decays = buffers.decays
    if not decays.falling:
        return math.inf
    modes = decays.modes
    quotients = [modes.norm * modes.growth(v.ticks, v.window) / v.least**2 for v in views]
    mean: float = sum(q**POWER for q in quotients) ** (1 / POWER)
    return round(mean, 9)


SUM_BITS = 6  # bits of a held sum below an integer


@wire("correlated-windows-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CorrelatedWindowsState:
    """`counter`: that of the counter, private. `sums`: its last noisy counts so far, in units of 2^-SUM_BITS."""

    counter: GaussianCounterState
    sums: Ring


class CounterWindows(CountRows, Additive):
    """Answers of shape (views * width,): the counts over each of `windows` (in ticks), one window after the other.

    With `ever` the counts so far follow. A window longer than the stream so far counts what there is. Mechanisms
    declare the fields and say what they hold of a counter's state: `fine`, the noisy counts so far in units of
    2^-`below`.
    """

    counter: Any
    windows: tuple[int, ...]
    ever: bool
    held: ClassVar[type]

    @property
    def below(self) -> int:
        raise NotImplementedError

    def fine(self, state: Any) -> IntArray:
        raise NotImplementedError

    def updates(self, state: Any) -> int:
        raise NotImplementedError

    @property
    def width(self) -> int:  # type: ignore[override]  # of the counter, and no field
        return int(self.counter.width)

    @property
    def neighbors(self) -> Neighbors:  # type: ignore[override]
        neighbors: Neighbors = self.counter.neighbors
        return neighbors

    @property
    def ones(self) -> int:  # type: ignore[override]
        return int(self.counter.ones)

    @property
    def rows(self) -> RowLaw:
        rows: RowLaw = self.counter.rows
        return rows

    @property
    def guarantee(self) -> Guarantee:
        guarantee: Guarantee = self.counter.guarantee
        return guarantee

    def _of_the_counter(self, kind: str) -> Derivation:
        """Derive the claim of the counter, which is that of what is computed from its noisy counts."""
        over = f"{how_many(self.width, 'count')} over {how_many(len(self.windows), 'window')}"
        derivation: Derivation = self.counter.derivation()
        return replace(derivation, subject=f"{over}, differences of one {kind}'s")

    def band(self, public: int, confidence: float) -> int:
        return max(
            self.view_band(place, self.view_public(place, public, None), confidence)
            for place in range(len(self.windows) + self.ever)
        )

    def init(self, noise: Noise) -> Any:
        zeros = np.zeros(self.width, dtype=np.int64)
        return self.held(self.counter.init(noise), pushed((), zeros, 1))

    def step(self, state: Any, message: Message, noise: Noise) -> Step[Any]:
        counter, so_far = self.counter.step(state.counter, message, noise)
        if so_far is None:
            sums = pushed(state.sums, self.fine(counter), max(self.windows) + 1)
            return self.held(counter, sums), None
        views = [self._window(state, window) for window in self.windows]
        return state, np.concatenate([*views, so_far] if self.ever else views)

    def _window(self, state: Any, window: int) -> IntArray:
        back = min(window, self.updates(state.counter))
        inside = row_back(state.sums, 0) - row_back(state.sums, back)
        rounded: IntArray = (inside + ((1 << self.below) >> 1)) >> self.below
        return rounded


@wire("correlated-windows", 1)
@dataclass(frozen=True)
class CorrelatedWindows(CounterWindows):
    """Windows of one Gaussian counter; a window holds fewer than 2^57 events.

    Privacy claim: that of `counter`, adaptively: what is answered is computed from the lattice values (count plus
    noise) that the proof of its noise takes as released (`LatticeNoise`).
    """

    held = CorrelatedWindowsState

    counter: GaussianCounter
    windows: tuple[int, ...]
    ever: bool = False

    def __post_init__(self) -> None:
        require_held(self.windows, self.width)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._of_the_counter("Gaussian counter")

    @cached_property
    def below(self) -> int:
        """Bits below an integer in a held sum; the noise's own where it has fewer."""
        return min(SUM_BITS, self.counter.lattice.bits)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the view at index `view`; None means the first."""
        place = view or 0
        if place == len(self.windows):
            return self.counter.noise(public)
        if not public:
            return NOTHING
        lattice, window = self.counter.lattice, self.windows[place]
        growth = lattice.decays.window_growth(public, window)
        unit = 1 / (1 << lattice.bits)
        # by Cauchy and Schwarz, as `LatticeNoise.drift`; and each of two held sums is rounded by half a part
        inner = float(lattice.decays.rounding) * unit * math.sqrt(public * growth)
        inner += 1 / (1 << self.below)
        variance = float(lattice.variance) * growth * unit**2
        return NoiseLaw((), variance, 0.5 + inner, between=2 * inner)

    def updates(self, state: GaussianCounterState) -> int:
        return state.noise.steps

    def fine(self, state: GaussianCounterState) -> IntArray:
        less = self.counter.lattice.bits - self.below
        noise = (state.noise.noise + ((1 << less) >> 1)) >> less
        fine: IntArray = (state.total << self.below) + noise
        return fine


Floats = NDArray[np.float64]
ARITIES = 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64
PARTS = 64  # shares are multiples of 1 / PARTS
PLACES = 96  # of a view, at which errors are compared
FINALISTS = 4
MORE, FINER = 32, 10  # where errors have aims: starts that are tuned, and parts of a part at last
LARGEST = 1 << 62
USUAL = (1, 2.8), (24, 10.5), (168, 12.5), (8_760, 19.0), (10**6, 26.8)  # ticks of a view, aim
MEAN_LOSS, LOSS = 1.01, 1.05
"""By which factors usual aims may make errors larger: their geometric mean, and that of one view."""


def covariances(spans: Sequence[int], variances: Sequence[float]) -> Floats:
    """Return a_l, by level, for which two steps' estimates have the covariance sum of a_l over the nodes they share.

    The covariance of all estimates is the inverse of sum_l B_l / v_l, B_l the blocks of ones of the nodes of level l.
    On what sums to 0 over each node of level l + 1 and is even in each of level l it is 1 / sum_(j <= l) s_j / v_j.
    """
    inverse = 1 / np.cumsum(np.array(spans) / np.array(variances))
    rises: Floats = np.diff(inverse, prepend=0.0) / np.array(spans)
    return rises


def view_variances(
    spans: Sequence[int], variances: Sequence[float], first: IntArray, past: IntArray
) -> Floats:
    """Return the variances of the estimates of windows from `first` to before `past`; their shape."""
    sums: Floats = np.zeros(first.shape)
    for span, each in zip(spans, covariances(spans, variances).tolist(), strict=True):
        low, high = first // span, (past - 1) // span
        left, right = (low + 1) * span - first, past - high * span
        apart = left**2 + right**2 + (high - low - 1) * span**2
        sums += each * np.where(low == high, (past - first) ** 2, apart)
    return sums


class Views:
    """Windows (in ticks), and with `ever` all ticks so far, at places spread over a stream of `last` ticks."""

    def __init__(
        self, windows: tuple[int, ...], ever: bool, last: int, aims: tuple[float, ...] = ()
    ) -> None:
        self.aims = np.array(aims) / min(aims, default=1.0)
        spread = np.arange(PLACES) * GOLDEN % 1
        pasts = [w + (spread * (last - w + 1)).astype(np.int64) for w in windows]
        self.places = [(past - w, past) for past, w in zip(pasts, windows, strict=True)]
        if ever:
            past = 1 + (spread * last).astype(np.int64)
            self.places.append((past * 0, past))

    def errors(self, arities: tuple[int, ...], parts: Sequence[int | Fraction]) -> Floats:
        """Return the mean variance of each view, at epsilon 1; `parts` are the levels' shares of their sum."""
        spans, whole = tuple(itertools.accumulate(arities, mul, initial=1)), sum(parts)
        nodes = [2 * float(whole / share) ** 2 for share in parts]
        return np.array([view_variances(spans, nodes, *each).mean() for each in self.places])

    def score(self, arities: tuple[int, ...], parts: Sequence[int]) -> float:
        errors = np.sqrt(self.errors(arities, parts))
        return round(float((errors / self.aims).max() if len(self.aims) else errors.sum()), 9)


@lru_cache(maxsize=64)
def best_nested(
    windows: tuple[int, ...], ever: bool, last: int, most: int, aims: tuple[float, ...] = ()
) -> ForestShape:
    """Return the shape with the least sum of errors (RMSE) of these windows, and with `ever` of all `last` ticks.

    With `aims`, an error by view or infinity, it is the shape whose largest error is least, each in proportion to its
    aim. Spans are at most `most` ticks. Scores are rounded, so that machines get the same shape. One that got another
    would refuse the journal.
    """
    views = Views(windows, ever, last, aims)
    shapes = [arities for arities in _candidates() if math.prod(arities) <= min(most, last)]
    starts = [(arities, parts) for arities in shapes for parts in _starts(len(arities))]
    first = sorted((views.score(*start), *start) for start in starts)
    tuned = [
        _tuned(arities, parts, views) for _, arities, parts in first[: MORE if aims else FINALISTS]
    ]
    if aims:
        tuned = [
            _tuned(arities, tuple(FINER * share for share in parts), views)
            for _, arities, parts in sorted(tuned)[:FINALISTS]
        ]
    _, arities, parts = min(tuned)
    return ForestShape(arities, tuple(Fraction(share, sum(parts)) for share in parts))


@lru_cache(maxsize=64)
def usual_nested(windows: tuple[int, ...], ever: bool, last: int, most: int) -> ForestShape:
    """Return the shape for views without aims: for those that `USUAL` has for their lengths, if little is lost by it,
    or else the shape with the least sum of errors.

    Between two lengths, aims go by the logarithm.
    """
    lengths, errors = np.array(USUAL).T
    own = np.array([*windows, last] if ever else windows)
    aims = np.interp(np.log(own), np.log(lengths), errors).round(3)
    views = Views(windows, ever, last)
    least = best_nested(windows, ever, last, most)
    aimed = best_nested(windows, ever, last, most, tuple(aims.tolist()))
    ratios = np.sqrt(
        views.errors(aimed.arities, aimed.shares) / views.errors(least.arities, least.shares)
    ).round(9)
    fits = ratios.max() <= LOSS and ratios.prod() <= MEAN_LOSS ** len(ratios)
    return aimed if fits else least


def _candidates() -> Iterator[tuple[int, ...]]:
    for levels in range(3):
        yield from itertools.product(ARITIES, repeat=levels)


def _starts(levels: int) -> list[tuple[int, ...]]:
    """Return some shares by level, of PARTS in all."""
    if not levels:
        return [(PARTS,)]
    if levels == 1:
        return [(48, 16), (40, 24), (32, 32), (20, 44)]
    return [(40, 16, 8), (32, 22, 10), (24, 24, 16), (20, 32, 12)]


def _tuned(
    arities: tuple[int, ...], parts: tuple[int, ...], views: Views
) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """Return (score, arities, parts) of a local optimum: no move of a part between two levels improves it."""
    best = views.score(arities, parts), arities, parts
    while True:
        moved = []
        for giver, taker in itertools.permutations(range(len(best[2])), 2):
            after = list(best[2])
            after[giver] -= 1
            after[taker] += 1
            if after[giver]:
                moved.append((views.score(arities, after), arities, tuple(after)))
        if not moved or min(moved)[0] >= best[0]:
            return best
        best = min(moved)


SOURCE = (
    "tree of spans, an event in one node of each level (arXiv 2408.07021), decoded by least squares"
)


@wire("nested-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class NestedCounterState:
    """After `updates` updates (public): `total`, exact counts, shape (width,), private.

    `ended`: the noise of all highest nodes before the open one, shape (width,); `inside`: the noise of every prefix
    inside the open one, shape (span, width). Both are in units of 2^-FRACTION_BITS.
    """

    updates: int
    total: IntArray
    ended: IntArray
    inside: IntArray


@wire("nested-counter", 1)
@dataclass(frozen=True)
class NestedCounter(CountRows, PureShares, Linear[NestedCounterState]):
    """`width` counters for any number of updates, by a tree of spans that has nothing above its highest nodes.

    `ones`: the most entries of a row that one event sets.

    Privacy claim: `epsilon`-DP under `neighbors`, at every prefix, adaptively: an event changes one update, which lies
    in one node of each level; the columns are composed in parallel ([HSV] Cor 5.5, k = L0).
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    shape: ForestShape
    ones: int = 1

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        scales = tuple(1 / (share * self.unit_epsilon) for share in self.shape.shares)
        reach = float(max(scales)) * LIKELY * self.span
        if reach * (1 << FRACTION_BITS) * max(self.shape.arities, default=1) >= LARGEST:
            raise NotDerivable("noise in these windows is too wide for 64 bits; give more epsilon")
        return scales

    @property
    def span(self) -> int:
        return self.shape.spans[-1]

    @of_the_exact_class
    def derivation(self) -> Derivation:
        share = self.epsilon / self.rows.l0
        paid = sum((1 / scale for scale in self.scales), Fraction(0))
        sums = " + ".join(f"1 / {text(scale)}" for scale in self.scales)
        enough = Condition(
            "noise", paid <= share, f"1 / scale, by level: {sums}, at most {text(share)}"
        )
        claim = Guarantee(PureDP(share), self.neighbors)
        column = leaf("one column's counter: a tree of spans", claim, SOURCE, (enough,))
        touched = Touched.columns(self.rows)
        return derive(
            (column,), Parallel(f"{how_many(self.width, 'column')}", touched, (self.width,))
        )

    @cached_property
    def variances(self) -> tuple[float, ...]:
        return tuple(2 * float(scale) ** 2 for scale in self.scales)

    @cached_property
    def gains(self) -> tuple[int, ...]:
        """By level: the gain of a node's surplus in its estimate, in units of 1 / UNIT; 0 at the lowest."""
        variances = tuple(2 * scale**2 for scale in self.scales)
        return ForestDecoding(self.shape.arities, variances).own_gains

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return self.law(0, public)

    def law(self, first: int, past: int) -> NoiseLaw:
        """Return the law of the noise in the count of the updates from `first` to before `past`."""
        low, high = first // self.span, (past - 1) // self.span
        parts = [(0, self.span, high - low - 1)]
        if low == high:
            parts = [(first - low * self.span, past - low * self.span, 1)]
        elif first < past:
            parts += [(first - low * self.span, self.span, 1), (0, past - high * self.span, 1)]
        numbers: dict[tuple[Fraction, float], int] = {}
        for start, end, times in parts:
            for term in self._terms(start, end) if times > 0 else ():
                key = term.scale, term.weight
                numbers[key] = numbers.get(key, 0) + times * term.number
        terms = (Term(scale, number, weight) for (scale, weight), number in numbers.items())
        return NoiseLaw(tuple(terms))

    def _terms(self, first: int, past: int) -> list[Term]:
        """Return the noises in the estimate of a part of one highest node, those of one weight together.

        The weights are those of the two passes of `_opened`, run backwards.
        """
        final: Floats = np.zeros(self.span)
        final[first:past] = 1.0
        below = []
        for arity in self.shape.arities:
            mean = final.reshape(-1, arity).mean(axis=1)
            below.append(final - np.repeat(mean, arity))
            final = mean
        terms: list[Term] = []
        for level in range(self.shape.height - 1, -1, -1):
            gain = self.gains[level] / UNIT if level else 1.0
            weights, numbers = np.unique(np.abs(final * gain).round(12), return_counts=True)
            terms += [
                Term(self.scales[level], int(number), float(weight))
                for weight, number in zip(weights, numbers, strict=True)
                if weight
            ]
            if level:
                final = below[level - 1] + np.repeat(
                    final * (1 - gain), self.shape.arities[level - 1]
                )
        return terms

    def init(self, noise: Noise) -> NestedCounterState:
        zeros = np.zeros(self.width, dtype=np.int64)
        return NestedCounterState(0, zeros, zeros, zeros[None][:0])

    def advanced(
        self, state: NestedCounterState, total: IntArray, noise: Noise
    ) -> NestedCounterState:
        ended, inside = state.ended, state.inside
        if state.updates % self.span == 0:
            ended = ended + inside[-1] if len(inside) else ended
            inside = self._opened(noise)
        return NestedCounterState(state.updates + 1, total, ended, inside)

    def _opened(self, noise: Noise) -> IntArray:
        """Draw all noises of a highest node, and return that of every prefix inside it, shape (span, width)."""
        estimates, spans = list[IntArray](), self.shape.spans
        for level, scale in enumerate(self.scales):
            number = self.span // spans[level]
            own = noise.laplace(scale, number * self.width).reshape(number, self.width)
            own = own << FRACTION_BITS
            if level:
                known = self._families(estimates[-1], level).sum(axis=1)
                own = known + part(self.gains[level], own - known)
            estimates.append(own)
        final = estimates[-1]
        for level in range(len(self.shape.arities), 0, -1):
            arity = self.shape.arities[level - 1]
            sums = np.cumsum(self._families(estimates[level - 1], level), axis=1)
            surplus = (final - sums[:, -1])[:, None]
            sums = sums + surplus * np.arange(1, arity + 1)[:, None] // arity
            final = np.diff(sums, axis=1, prepend=0).reshape(-1, self.width)
        inside: IntArray = np.cumsum(final, axis=0)
        return inside

    def _families(self, children: IntArray, level: int) -> IntArray:
        return children.reshape(-1, self.shape.arities[level - 1], self.width)

    def fine(self, state: NestedCounterState) -> IntArray:
        """Return the noise of the count so far, in units of 2^-FRACTION_BITS."""
        if not state.updates:
            return state.ended
        fine: IntArray = state.ended + state.inside[(state.updates - 1) % self.span]
        return fine

    def value(self, state: NestedCounterState) -> IntArray:
        return rounded(self.fine(state))


@wire("nested-windows-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class NestedWindowsState:
    """`counter`: that of the counter, private. `sums`: its last noisy counts so far, in units of 2^-FRACTION_BITS."""

    counter: NestedCounterState
    sums: Ring


@wire("nested-windows", 1)
@dataclass(frozen=True)
class NestedWindows(CounterWindows):
    """Windows of one tree of spans; a window holds fewer than 2^49 events.

    Privacy claim: that of `counter`, adaptively: what is answered is computed from its noisy counts, before they are
    rounded, which its proof takes as released.
    """

    held = NestedWindowsState

    counter: NestedCounter
    windows: tuple[int, ...]
    ever: bool = False

    def __post_init__(self) -> None:
        require_held(self.windows, self.width, self.counter.span)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._of_the_counter("tree of spans")

    @property
    def below(self) -> int:
        return FRACTION_BITS

    def view_public(self, place: int, updates: int, state: object) -> int:
        """Return `updates`, or for a window a number of updates with the same noise: it repeats with a highest node."""
        if place == len(self.windows) or updates <= self.windows[place]:
            return updates
        window = self.windows[place]
        return window + (updates - window - 1) % self.counter.span + 1

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the view at index `view`; None means the first."""
        place = view or 0
        ever = place == len(self.windows)
        return self.counter.law(0 if ever else max(0, public - self.windows[place]), public)

    def updates(self, state: NestedCounterState) -> int:
        return state.updates

    def fine(self, state: NestedCounterState) -> IntArray:
        fine: IntArray = (state.total << FRACTION_BITS) + self.counter.fine(state)
        return fine
