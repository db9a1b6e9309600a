"""Two linear mechanisms on the same rows: windows with the value so far, and sums with the numbers of amounts.

`WindowsAndEver` is a forest of sliding windows, and a counter beside it for the value so far. With n windows (a single
tick counts as a window) the counter has 1 / (n + 1) of the budget, the share at which the geometric mean of all errors
is least. While the longest window still covers all ticks so far, the value so far is read off that window, until the
public tick from which the counter has less noise. This choice is post-processing. `UserSums` is any mechanism for sums,
these or a counter, where a user adds at most a total, and `SharedSums` one of several that share it.

`SumsAndCounts` has the two parts of a mean. A row has two halves, each with an entry for each key: an event adds its
amount, less the middle of the clamp, to the first half, and 1 to the second half. Two mechanisms, each at its share of
the epsilon, see one half each. Both halves are functions of the same events, so the shares add up ([HSV] Thm 4.10). The
noises of the two are independent, whatever the events are: each mechanism has a state of its own, and no draw goes into
both (`step`). The division is post-processing, and not made here. Where users have a total of the amount that series
share, the first half is what records add within it (`MeansWithinTotal`).
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed, OfUsers, SharedTotals, UserTotals
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import ZCDP, Guarantee, PureDP, differential_privacy
from stream_dp.core.mechanism import Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import AmountLaw, HalvedLaw, RowLaw, ShapedLaw, TotalLaw
from stream_dp.core.row_relations import AMOUNTS, COUNTS
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import checked, checked_amounts, of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    HybridCounter,
    HybridState,
    SumCounter,
    SumCounterState,
)
from stream_dp.mechanisms.linear.ended_windows import (
    EndedCounts,
    EndedSums,
    EndedWindows,
    EndedWindowsState,
    RunningWindows,
    RunningWindowsState,
)
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


Sums: TypeAlias = SumCounter | SumForest | SumsAndEver | EndedSums | RunningWindows | SharedSums
Counts: TypeAlias = (
    Counter | HybridCounter | WindowForest | WindowsAndEver | EndedCounts | RunningWindows
)

PARTS = 20  # the share of the sums is a multiple of 1 / PARTS


def sums_share(l1: int, touched: int, half: Fraction) -> Fraction:
    """Return the sums' share of the epsilon with the least error of a mean, on average over the clamp.

    One event changes the sums by `l1` in l1 norm, and changes `touched` counts; a mean lies at most `half` from the
    middle of the clamp. At the distance m from it the noise of a sum and m times that of a count add up, and m^2 is
    half^2 / 3 on average.

    >>> sums_share(120, 1, Fraction(120)), sums_share(240, 1, Fraction(120))
    (Fraction(3, 5), Fraction(7, 10))
    """
    shares = [Fraction(part, PARTS) for part in range(1, PARTS)]
    return min(shares, key=lambda s: l1**2 / s**2 + touched**2 * half**2 / 3 / (1 - s) ** 2)


@wire("sums-and-counts-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class SumsAndCountsState:
    sums: (
        SumCounterState
        | WindowForestState
        | WindowsAndEverState
        | EndedWindowsState
        | RunningWindowsState
    )
    counts: (
        CounterState
        | HybridState
        | WindowForestState
        | WindowsAndEverState
        | EndedWindowsState
        | RunningWindowsState
    )


@wire("sums-and-counts", 1)
@dataclass(frozen=True)
class SumsAndCounts:
    """The mechanism `sums` on the first half of each row, and `counts` on the second half.

    Answers have the sums, followed by the counts; with windows, both for one window after the other.

    Privacy claim: the sum of both epsilons, adaptively: both see functions of the same events ([HSV] Thm 4.10).
    """

    sums: Sums
    counts: Counts

    def __post_init__(self) -> None:
        for name in ("width", "neighbors", "ones"):
            if getattr(self.sums.rows, name) != getattr(self.counts.rows, name):
                raise NotDerivable(f"sums and counts must have the same {name}")
        if _windows(self.sums) != _windows(self.counts):
            raise NotDerivable("sums and counts must have the same windows")
        if _horizon(self.sums) != _horizon(self.counts):
            raise NotDerivable("sums and counts must have the same horizon")

    @property
    def _both(self) -> tuple[Any, Any]:
        """Sums and counts; the type checker cannot see that a state or public value is a mechanism's own."""
        return self.sums, self.counts

    @property
    def width(self) -> int:
        return 2 * self.sums.width

    @property
    def neighbors(self) -> Neighbors:
        return self.sums.neighbors

    @property
    def ones(self) -> int:
        return self.sums.rows.ones

    @property
    def rows(self) -> HalvedLaw:
        return HalvedLaw.of(self.sums.rows, self.counts.rows)

    @property
    def views(self) -> int:
        windows = _windows(self.sums)
        return len(windows.lengths) + windows.ever

    @property
    def guarantee(self) -> Guarantee:
        shares = [differential_privacy(each.guarantee.measure).epsilon for each in self._both]
        return Guarantee(PureDP(shares[0] + shares[1]), self.neighbors)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        both = (self.sums.derivation(), self.counts.derivation())
        return derive(both, Fixed("sums and counts of the same events"))

    def takes(self, message: object) -> bool:
        if not isinstance(message, Update):
            return isinstance(message, Query)
        row, half = message.row, self.sums.width
        if not AMOUNTS.of_width(self.width).holds(row):
            return False
        return COUNTS.of_width(half).holds(row[half:])

    def public(self, updates: int, state: Any) -> Hashable:
        return tuple(each.public(updates, None) for each in self._both)

    def band(self, public: Any, confidence: float) -> int:
        """Return the larger of the two half-widths, in units of amounts or in events."""
        pairs = zip(self._both, public, strict=True)
        return int(max(each.band(known, confidence) for each, known in pairs))

    def view_public(self, place: int, updates: int, state: Any) -> Hashable:
        return tuple(each.view_public(place, updates, None) for each in self._both)

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        pairs = zip(self._both, public, strict=True)
        return int(max(each.view_band(place, known, confidence) for each, known in pairs))

    def noise(self, public: Any, view: int | None = None) -> None:
        """Return None: sums and counts have different laws."""

    def opening(self) -> tuple[int, int]:
        return 0, 0

    def init(self, noise: Noise) -> SumsAndCountsState:
        return SumsAndCountsState(self.sums.init(noise), self.counts.init(noise))

    def step(
        self, state: SumsAndCountsState, message: Message, noise: Noise
    ) -> Step[SumsAndCountsState]:
        (sums, counts), half = self._both, self.sums.width
        if isinstance(message, Query):
            _, added = sums.step(state.sums, message, noise)
            _, counted = counts.step(state.counts, message, noise)
            shape = (self.views, half)
            return state, np.hstack([added.reshape(shape), counted.reshape(shape)]).ravel()
        row = checked_amounts(message.row, self.width)
        counting = Update(checked(row[half:], half))
        after, _ = sums.step(state.sums, Update(row[:half]), noise)
        return SumsAndCountsState(after, counts.step(state.counts, counting, noise)[0]), None


@wire("means-within-total", 1)
@dataclass(frozen=True)
class MeansWithinTotal(SumsAndCounts):
    """Sums of what records add within a total that series share, and numbers of records of which so many a user count.

    Privacy claim: the sum of both epsilons, for the users of `sums`, adaptively: a unit of the total costs its part of
    that of the sums, and each of the users' events that count its part of that of the counts.
    """

    sums: SharedSums

    @property
    def users(self) -> Users:
        return self.sums.users

    @property
    def guarantee(self) -> Guarantee:
        counts = self.users.cap * differential_privacy(self.counts.guarantee.measure).epsilon
        return Guarantee(PureDP(self.sums.epsilon + counts), self.neighbors, users=self.users)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        events = OfUsers("records of a user", self.users)
        both = self.sums.derivation(), derive((self.counts.derivation(),), events)
        return derive(both, Fixed("sums within a total, and counts of records"))


class _Windows(NamedTuple):
    """What a mechanism answers: windows of these lengths, which are `told` so, and the value so far or not."""

    lengths: tuple[int | None, ...]
    told: str
    ever: bool


def _windows(mechanism: Sums | Counts) -> _Windows:
    if isinstance(mechanism, TotalSums):
        return _windows(mechanism.inner)
    if isinstance(mechanism, EndedWindows):
        return _Windows(mechanism.windows, "ended", ever=False)
    if isinstance(mechanism, RunningWindows):
        return _Windows(mechanism.windows, "running", ever=False)
    lengths = () if mechanism.forest is None else mechanism.forest.windows
    return _Windows(lengths, "sliding", ever=mechanism.ever is not None)


def _horizon(mechanism: Sums | Counts) -> int | None:
    """Return the horizon of the values so far; None: no horizon, or no value so far."""
    if isinstance(mechanism, TotalSums):
        return _horizon(mechanism.inner)
    if isinstance(mechanism, EndedWindows | RunningWindows) or mechanism.ever is None:
        return None
    return mechanism.ever.horizon
