"""Sliding windows with the count, or the sum, so far beside them: a forest and a counter on the same rows.

With n windows (a single tick counts as a window) the counter has 1 / (n + 1) of the budget, the share at which the
geometric mean of all errors is least. While the longest window still covers all ticks so far, the value so far is
read off that window, until the public tick from which the counter has less noise. This choice is post-processing.
`UserSums` is any mechanism for sums, these or a counter, where a user adds at most a total, and `SharedSums` one of
several that share it. This file knows no noise and no ticks.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed, SharedTotals, UserTotals
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP
from stream_dp.core.mechanism import Message, Noise, Query, Step
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import AmountLaw, RowLaw, ShapedLaw, TotalLaw
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    HybridCounter,
    HybridState,
    SumCounter,
    SumCounterState,
)
from stream_dp.mechanisms.linear.ended_windows import EndedSums, RunningWindows
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter, GaussianCounterState
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.window_forest import GaussianForest, SumForest, WindowForest
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.serving import Additive

SoFar: TypeAlias = Counter | HybridCounter
EACH = 256
"""Every one of the first `EACH` ticks is compared; one comparison takes a tenth of a millisecond."""


def ever_share(windows: int) -> Fraction:
    return Fraction(1, windows + 1)


@wire("windows-and-ever-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class WindowsAndEverState:
    forest: WindowForestState
    ever: CounterState | HybridState | SumCounterState | GaussianCounterState


def _compared(last: int) -> Iterator[int]:
    """Yield the ticks up to `last` to compare: the first `EACH` ones, then ticks spaced by a sixteenth."""
    tick = 1
    while tick < last:
        yield tick
        tick += 1 + max(0, tick - EACH) // 16
    yield last


class WithEver(Additive):
    """Shared code of windows with a value so far: two mechanisms on the same rows, each at its share of the budget.

    Answers have shape ((windows + 1) * width,): the answers of `forest`, then those of `ever`. In the first
    `covered` ticks the longest window replaces the answers of `ever`.

    Privacy claim: the sum of both epsilons, adaptively: both see the same rows ([HSV] Thm 4.10).
    """

    forest: WindowForest | SumForest | GaussianForest
    ever: SoFar | SumCounter | GaussianCounter

    @property
    def width(self) -> int:
        return self.forest.width

    @property
    def neighbors(self) -> Neighbors:
        return self.forest.neighbors

    @property
    def ones(self) -> int:
        """The most entries of a row that one event may set: the smaller of the forest's and the counter's bounds."""
        return min(self.forest.ones, self.ever.ones)

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.neighbors, self.ones)

    @property
    def guarantee(self) -> Guarantee:
        epsilon = self.forest.epsilon + self.ever.epsilon  # type: ignore[union-attr]  # Gaussian ones override it
        return Guarantee(PureDP(epsilon), self.neighbors)

    def _both(self, subject: str) -> Derivation:
        return derive((self.forest.derivation(), self.ever.derivation()), Fixed(subject))

    @cached_property
    def longest(self) -> int:
        return self.forest.windows.index(max(self.forest.windows))

    @cached_property
    def covered(self) -> int:
        """Number of first ticks in which the longest window is the value so far: it has all ticks and less noise.

        The result is a tick with less noise just before a tick without. For long windows not every tick is compared.
        """
        last, least = self.forest.windows[self.longest], 0
        for most in _compared(last):
            if not self._less_noise(most):
                ticks = range(least + 1, most)
                return least + bisect_left(ticks, True, key=lambda t: not self._less_noise(t))
            least = most
        return last

    def _less_noise(self, updates: int) -> bool:
        """Whether the longest window has less noise than the counter after `updates` updates, all in the window."""
        ever = self.ever.noise(updates).spread
        return self.forest.view_variance(self.longest, updates) < ever

    def band(self, public: int, confidence: float) -> int:
        views = range(len(self.forest.windows) + 1)
        return max(self.view_band(v, self.view_public(v, public, None), confidence) for v in views)

    def view_public(self, place: int, updates: int, state: Any) -> Hashable:
        if place < len(self.forest.windows):
            return self.forest.view_public(place, updates, state)
        return updates

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the view at index `view`; None means the value so far."""
        if view is not None and view < len(self.forest.windows):
            return self.forest.noise(public, view)
        if public <= self.covered:
            return self.forest.noise(public, self.longest)
        return self.ever.noise(public)

    def _require_same(self, what: str, *names: str) -> None:
        for name in names:
            if getattr(self.forest, name) != getattr(self.ever, name):
                raise NotDerivable(f"the windows and the {what} so far must have the same {name}")

    def init(self, noise: Noise) -> WindowsAndEverState:
        return WindowsAndEverState(self.forest.init(noise), self.ever.init(noise))

    def step(
        self, state: WindowsAndEverState, message: Message, noise: Noise
    ) -> Step[WindowsAndEverState]:
        ever: Any = self.ever
        counted, total = ever.step(state.ever, message, noise)
        forest, windows = self.forest.step(state.forest, message, noise)
        after = WindowsAndEverState(forest, counted)
        if isinstance(message, Query) and windows is not None:
            if forest.updates <= self.covered:
                total = windows.reshape(-1, self.width)[self.longest]
            return after, np.concatenate([windows, total])
        return after, None


@wire("windows-and-ever", 1)
@dataclass(frozen=True)
class WindowsAndEver(WithEver):
    """Counts over windows, then the counts so far (NotDerivable: forest and counter are made for different rows)."""

    forest: WindowForest
    ever: SoFar

    def __post_init__(self) -> None:
        """Check that both are made for the same rows; `ones` may differ, and the smaller bound holds."""
        self._require_same("count", "width", "neighbors")

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._both("windows and the count so far")


@wire("gaussian-and-ever", 1)
@dataclass(frozen=True)
class GaussianAndEver(WithEver):
    """Counts over windows, then the counts so far, with Gaussian noise and a claim in zCDP."""

    forest: GaussianForest
    ever: GaussianCounter

    def __post_init__(self) -> None:
        self._require_same("count", "width", "neighbors", "ones")
        if self.ever.gdp:
            raise NotDerivable(
                "the windows have a zCDP guarantee, but the count so far claims Gaussian DP"
            )
        if self.forest.of_users != self.ever.shape:
            raise NotDerivable(
                "the windows and the count so far must allow a user the same number of events: in "
                "all, in a tick, and in an entry"
            )

    @property
    def rows(self) -> ShapedLaw:
        return self.forest.rows

    @property
    def guarantee(self) -> Guarantee:
        rho, like = self.forest.rho + self.ever.rho, self.forest.guarantee
        return Guarantee(ZCDP(rho), self.neighbors, users=like.users, fresh=True)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._both("windows and the count so far, Gaussian")


@wire("sums-and-ever", 1)
@dataclass(frozen=True)
class SumsAndEver(WithEver):
    """Sums over windows, then the sums so far, of the same amounts (NotDerivable: made for different ones)."""

    forest: SumForest
    ever: SumCounter

    def __post_init__(self) -> None:
        self._require_same("sum", "width", "neighbors", "lowest", "highest", "ones")

    @property
    def rows(self) -> AmountLaw:
        return self.forest.rows

    def takes(self, message: object) -> bool:
        return self.forest.takes(message)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._both("windows and the sum so far")


OfAmounts: TypeAlias = SumCounter | SumForest | SumsAndEver | EndedSums | RunningWindows


class TotalSums(Additive):
    """Shared code of sums of amounts of which all records of a user add at most a total: answers of `inner`, made for
    single units.
    """

    inner: OfAmounts
    total: int
    users: Users

    def __post_init__(self) -> None:
        law, inner = self.inner.rows, self.inner
        units = -1 <= law.lowest <= 0 and (law.highest, law.ones) == (1, 1)
        if self.total < 1 or not units:
            raise NotDerivable(
                "a user's total must consist of units, and each unit must be an event that adds 1"
            )
        ends = isinstance(inner, EndedSums) and inner.windows == (self.users.window,)
        if law.lowest < 0 and not ends:
            raise NotDerivable(
                "units of both signs can be totalled only over a whole window of the users' cap, "
                "after the window has ended"
            )

    @property
    def width(self) -> int:
        return self.inner.width

    @property
    def neighbors(self) -> Neighbors:
        return self.inner.neighbors

    @property
    def epsilon(self) -> Fraction:
        measure: Any = self.inner.guarantee.measure
        return Fraction(self.total * measure.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.users)

    @property
    def rows(self) -> TotalLaw:
        return TotalLaw(self.width, self.neighbors, changes=self.total)

    def takes(self, message: object) -> bool:
        return self.inner.takes(message)

    def public(self, updates: int, state: Any) -> Any:
        return self.inner.public(updates, state)

    def view_public(self, place: int, updates: int, state: Any) -> Any:
        return self.inner.view_public(place, updates, state)

    def noise(self, public: Any, view: int | None = None) -> NoiseLaw:
        return self.inner.noise(public, view)

    def band(self, public: Any, confidence: float) -> int:
        return self.inner.band(public, confidence)

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        return self.inner.view_band(place, public, confidence)

    def init(self, noise: Noise) -> Any:
        return self.inner.init(noise)

    def step(self, state: Any, message: Message, noise: Noise) -> Step[Any]:
        inner: Any = self.inner
        after: Step[Any] = inner.step(state, message, noise)
        return after


@wire("user-sums", 1)
@dataclass(frozen=True)
class UserSums(TotalSums):
    """Sums of amounts of which all records of a user add at most a total: answers of `inner`, made for single units.

    The code that makes rows remembers how much each user has added, in each public window of the cap or for ever. So
    the rows with and without a user differ by at most `total` units in all, in whatever entries and ticks they lie, and
    the noise is that of sums whose events add one unit to one entry, at epsilon / total.

    Units may be of both signs where only whole windows of the cap are told: all that a user adds in one is then bounded
    at its end, and in no other span of ticks.

    Privacy claim: `total` times the epsilon of `inner`, for the `users`, adaptively, where a memory that decides by a
    user's own records makes the rows: those with and without the user differ by at most `total` units, and each unit is
    an event of `inner`.
    """

    inner: OfAmounts
    total: int
    users: Users

    @of_the_exact_class
    def derivation(self) -> Derivation:
        part = self.inner.derivation()
        return derive((part,), UserTotals("what a user adds in all", self.users, self.total))


@wire("shared-sums", 1)
@dataclass(frozen=True)
class SharedSums(TotalSums):
    """Sums of what records add within a total that a guard keeps for all series together; else as `UserSums`.

    Privacy claim: as `UserSums`. Each unit of a user lies in one record, so all mechanisms that share a total cost no
    more than those that see one record, at one tick (`accounting.rules.groups.shared_totals`). `of`: the amount, where
    users have several totals.
    """

    inner: OfAmounts
    total: int
    users: Users
    of: str = ""

    @of_the_exact_class
    def derivation(self) -> Derivation:
        part = self.inner.derivation()
        adding = SharedTotals("what a user adds to all", self.users, self.total, self.of)
        return derive((part,), adding)
