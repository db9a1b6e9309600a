"""Counts, and sums, of windows that follow one another: what each window held, once it has ended.

Exact totals are collected within each public window of W ticks; the first window begins with the first update. At a
window's last update its totals receive noise once, and are forgotten. These noisy totals are the answer until the next
window of that length ends. An event lies in one window of each length, so a window pays for no other: its noise has the
scale l1 / epsilon, whatever its length, where a sliding window adds up the noise of its ticks. Or a counter of its own
answers within each window, at every tick (`RunningWindows`). Lengths share the epsilon evenly. This file knows no
ticks' times, no names, no identifiers and no grid: amounts are whole units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.accounting.amounts import text
from stream_dp.accounting.derive import derive
from stream_dp.accounting.rules.rule import leaf
from stream_dp.accounting.situations import FirstArrivals, Fixed, Parallel, Touched
from stream_dp.core.derivation import Condition, Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import ArrivalLaw, RowLaw
from stream_dp.core.row_relations import COUNTS, Arrivals
from stream_dp.core.wire import wire
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    EventAmounts,
    PureShares,
    SumCounter,
    SumCounterState,
)
from stream_dp.mechanisms.linear.window_forest import SUM_SOURCE
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.noise_quantiles import Term
from stream_dp.mechanisms.serving import Additive, CountRows
from stream_dp.mechanisms.watches.block import WIDEST

TEST = "tests/unit/mechanisms/test_ended_windows.py"
ARRIVALS_TEST = "tests/unit/mechanisms/test_arrivals_exact.py"


@wire("ended-windows-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class EndedWindowsState:
    """Exact totals of each open window, private, and the last noisy ones, `told`, public, both (windows, width)."""

    updates: int
    totals: IntArray
    told: IntArray


def of_each_length(
    window: Derivation, neighbors: Neighbors, windows: Sequence[int], suite: str
) -> Derivation:
    """Derive the guarantee of windows that follow one another, of each of these lengths, from that of one window."""
    once = Touched.intervals(neighbors, "an event lies in one window of each length", suite)
    spans = [Parallel(f"{length}-tick windows", once) for length in windows]
    lengths = tuple(derive((window,), span) for span in spans)
    return derive(lengths, Fixed("windows of each length"))


class EndedWindows(PureShares, Additive):
    """Answers of shape (len(windows) * width,): by window length, the noisy totals of the last window that ended.

    `windows` are lengths in updates. Before the first window of a length has ended, its totals are 0.

    Privacy claim: `epsilon`-DP for its rows under `neighbors`, for ever, adaptively: an event lies in one window of
    each length, whose totals differ by at most l1 and receive noise of scale len(windows) l1 / epsilon once ([HSV] Cor
    5.5, k = 1); the lengths add up ([HSV] Thm 4.10).
    """

    width: int
    windows: tuple[int, ...]

    def checked_row(self, row: IntArray) -> IntArray:
        raise NotImplementedError

    @cached_property
    def scale(self) -> Fraction:
        return len(self.windows) / self.unit_epsilon

    def _require_drawable(self) -> None:
        if self.scale > WIDEST:
            raise NotDerivable("noise for these windows is too wide to be drawn; give more epsilon")

    def _lengths(self) -> Derivation:
        self._require_drawable()
        share = self.epsilon / len(self.windows)
        why = f"l1 norm of a row / scale = {self.l1} / {text(self.scale)}, at most {text(share)}"
        enough = Condition("noise", self.scale * share >= self.l1, why)
        one = leaf(
            "the totals of one window",
            Guarantee(PureDP(share), self.neighbors),
            SUM_SOURCE,
            (enough,),
        )
        return of_each_length(one, self.neighbors, self.windows, TEST)

    def public(self, updates: int, state: EndedWindowsState | None) -> None:
        """Return None: the totals of every window have the same noise."""

    def noise(self, public: None, view: int | None = None) -> NoiseLaw:
        return NoiseLaw((Term(self.scale, 1, 1.0),))

    def init(self, noise: Noise) -> EndedWindowsState:
        nothing = np.zeros((len(self.windows), self.width), dtype=np.int64)
        return EndedWindowsState(0, nothing, nothing)

    def step(
        self, state: EndedWindowsState, message: Message, noise: Noise
    ) -> Step[EndedWindowsState]:
        if isinstance(message, Query):
            return state, state.told.flatten()
        updates = state.updates + 1
        totals, told = state.totals + self.checked_row(message.row), state.told
        for place, length in enumerate(self.windows):
            if updates % length == 0:
                told = told.copy()
                told[place] = totals[place] + noise.laplace(self.scale, self.width)
                totals[place] = 0
        return EndedWindowsState(updates, totals, told), None


@wire("ended-counts", 1)
@dataclass(frozen=True)
class EndedCounts(CountRows, EndedWindows):
    """Counts of windows that follow one another (`EndedWindows`); `ones`: the most entries that one event sets."""

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    ones: int = 1

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._lengths()


@wire("ended-sums", 1)
@dataclass(frozen=True)
class EndedSums(EventAmounts, EndedWindows):
    """Sums of windows that follow one another (`EndedWindows`).

    An event adds one amount from `lowest` to `highest` (in units) to at most `ones` entries of its row, or nothing.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    windows: tuple[int, ...]
    lowest: int
    highest: int
    ones: int = 1

    def __post_init__(self) -> None:
        self._require_amounts()

    @of_the_exact_class
    def derivation(self) -> Derivation:
        return self._lengths()


@wire("running-windows-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class RunningWindowsState:
    """The state of the counter of each open window."""

    updates: int
    counters: tuple[CounterState | SumCounterState, ...]


@wire("running-windows", 1)
@dataclass(frozen=True)
class RunningWindows(Additive):
    """Counts, or sums, since each of the open windows began, at every update: answers of shape (lengths * width,).

    `counters` are one for each length, of which its horizon is one: with each window it begins anew, with new noise.

    Privacy claim: the sum of the epsilons of the `counters`, for their rows, for ever, adaptively: an event lies in one
    window of each length, and no other window's counter sees it ([HSV] Cor 5.5, k = 1); the lengths add up ([HSV] Thm
    4.10).
    """

    counters: tuple[Counter | SumCounter, ...]

    def __post_init__(self) -> None:
        if len({counter.rows for counter in self.counters}) != 1:
            raise NotDerivable("the counters of these windows must all have the same rows")
        if None in self.windows:
            raise NotDerivable("the counter of a window must end when the window ends")

    @property
    def windows(self) -> tuple[int | None, ...]:
        return tuple(counter.horizon for counter in self.counters)

    @property
    def width(self) -> int:
        return self.counters[0].width

    @property
    def neighbors(self) -> Neighbors:
        return self.counters[0].neighbors

    @property
    def ones(self) -> int:
        return self.counters[0].ones

    @property
    def rows(self) -> RowLaw:
        return self.counters[0].rows

    @property
    def epsilon(self) -> Fraction:
        return sum((counter.epsilon for counter in self.counters), Fraction(0))

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one window's counter, windows in turn, then the lengths."""
        once = Touched.intervals(self.neighbors, "an event lies in one window of each length", TEST)
        lengths = [
            derive(
                (counter.derivation(),),
                Parallel(f"{counter.horizon}-tick windows", once),
            )
            for counter in self.counters
        ]
        return derive(tuple(lengths), Fixed("windows of each length"))

    def takes(self, message: object) -> bool:
        counter = self.counters[0]
        if isinstance(counter, SumCounter):
            return counter.takes(message)
        if isinstance(message, Update):
            return COUNTS.of_width(self.width).holds(message.row)
        return isinstance(message, Query)

    def _inside(self, updates: int, place: int) -> int:
        """Return how many updates the open window has after `updates` in all."""
        return updates and (updates - 1) % (self.windows[place] or 1) + 1

    def view_public(self, place: int, updates: int, state: Any) -> int:
        return self._inside(updates, place)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in the window of the length at index `view`; None means the first."""
        place = view or 0
        return self.counters[place].noise(self._inside(public, place))

    def band(self, public: int, confidence: float) -> int:
        places = range(len(self.counters))
        return max(self.noise(public, place).band(confidence) for place in places)

    def init(self, noise: Noise) -> RunningWindowsState:
        return RunningWindowsState(0, tuple(counter.init(noise) for counter in self.counters))

    def step(
        self, state: RunningWindowsState, message: Message, noise: Noise
    ) -> Step[RunningWindowsState]:
        pairs: list[tuple[Any, Any]] = [*zip(self.counters, state.counters, strict=True)]
        if isinstance(message, Query):
            answers = [counter.step(known, message, noise)[1] for counter, known in pairs]
            return state, np.concatenate(answers)
        self.counters[0].checked_row(message.row)  # before anything is drawn
        updates, after = state.updates, []
        for counter, known in pairs:
            begins = updates > 0 and updates % counter.horizon == 0
            own = counter.init(noise) if begins else known
            after.append(counter.step(own, message, noise)[0])
        return RunningWindowsState(updates + 1, tuple(after)), None


@wire("ended-arrivals", 1)
@dataclass(frozen=True)
class EndedArrivals(EndedWindows):
    """How many identifiers each window of `arrivals` had, by rows that count an identifier at its first tick in it, in
    `width` entries.

    An exact memory of each public window makes the rows from the events. Privacy claim: `epsilon`-DP for events under
    `neighbors`, or for the users of `arrivals`, adaptively: the numbers of whole windows of neighbours differ by
    `changes` units in all, each of which lies in one window ([HSV] Cor 5.5, k = 1) and costs epsilon / changes.
    """

    epsilon: Fraction
    neighbors: Neighbors
    arrivals: Arrivals
    width: int = 1

    def __post_init__(self) -> None:
        self.arrivals.require_steps(self.width, self.neighbors)
        if not self.arrivals.ended:
            raise NotDerivable(
                "this mechanism needs arrivals that are seen only after a window has ended: ended=True"
            )

    @property
    def windows(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.arrivals.window or 0,)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.arrivals.users)

    @property
    def rows(self) -> ArrivalLaw:
        changes, window = self.arrivals.changes, self.arrivals.window
        return ArrivalLaw(self.width, self.neighbors, changes=changes, ended=window)

    @property
    def l1(self) -> int:
        return self.rows.changes

    def checked_row(self, row: IntArray) -> IntArray:
        return checked(row, self.width)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: one window's number, windows in turn, then the units by which neighbours differ."""
        self._require_drawable()
        unit = self.epsilon / self.arrivals.changes
        why = f"1 / scale = 1 / {text(self.scale)}, at most {text(unit)}"
        enough = Condition("noise", self.scale * unit >= 1, why)
        one = leaf(
            "the number of one window",
            Guarantee(PureDP(unit), self.neighbors),
            SUM_SOURCE,
            (enough,),
        )
        once = Touched.intervals(self.neighbors, "a unit lies in one window", ARRIVALS_TEST)
        windows = derive((one,), Parallel("windows one after the other", once))
        return derive((windows,), FirstArrivals("identifiers", self.arrivals))
