"""Sliding windows, and the count so far, as differences of one Gaussian counter's answers: one noise for all of them.

A counter adds correlated noise to the count so far. A window is that sum now less the sum before the window, which is
post-processing: windows cost nothing, and no budget is split among them. What makes windows narrow is the choice of the
counter's decays (`best_decays`). This file knows no ticks' times and no names.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Message, Noise, Step
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.linear.gaussian_counter import (
    GUARD,
    MOST_GAIN,
    MOST_STEPS,
    Decays,
    GaussianCounter,
    GaussianCounterState,
)
from stream_dp.mechanisms.linear.noisy_forest import Ring, pushed, require_held, row_back
from stream_dp.mechanisms.noise_law import NOTHING, NoiseLaw
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


PARTS = 6  # bits of a held sum below an integer


@wire("correlated-windows-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CorrelatedWindowsState:
    """`counter`: that of the counter, private. `sums`: its last noisy counts so far, in units of 2^-PARTS."""

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
        return min(PARTS, self.counter.lattice.bits)

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
