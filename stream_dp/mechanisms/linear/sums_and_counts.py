"""Sums of amounts together with the numbers of amounts: the two parts of a mean.

A row has two halves, each with an entry for each key: an event adds its amount, less the middle of the clamp, to the
first half, and 1 to the second half. Two mechanisms, each at its share of the epsilon, see one half each. Both halves
are functions of the same events, so the shares add up ([HSV] Thm 4.10). The noises of the two are independent, whatever
the events are: each mechanism has a state of its own, and no draw goes into both (`step`). The division is
post-processing, and not made here. Where users have a total of the amount that series share, the first half is what
records add within it (`MeansWithinTotal`). This file knows no noise, no ticks and no grid.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed, OfUsers
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP, differential_privacy
from stream_dp.core.mechanism import Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import HalvedLaw
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
from stream_dp.mechanisms.linear.noisy_forest import WindowForestState
from stream_dp.mechanisms.linear.window_forest import SumForest, WindowForest
from stream_dp.mechanisms.linear.windows_and_ever import (
    SharedSums,
    SumsAndEver,
    TotalSums,
    WindowsAndEver,
    WindowsAndEverState,
)

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
