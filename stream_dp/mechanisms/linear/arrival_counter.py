"""How many identifiers were there, so far or since their public window began: a counter of first ticks.

An entry of a row is the number of identifiers that came in its tick for the first time in the window, of all of them or
of those with one key; the code that makes rows remembers them. One event moves up to `changes` units of such rows, at
most one for a tick, an entry and an identifier, so the counter counts at epsilon / changes. When a window begins, the
counter starts anew with its own noise. This file knows no identifier, no memory and no names.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import FirstArrivals, Fixed, Parallel, Touched
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Step, Update
from stream_dp.core.neighbors import Neighbors, Users
from stream_dp.core.row_law import ArrivalLaw
from stream_dp.core.row_relations import Arrivals
from stream_dp.core.wire import wire
from stream_dp.mechanisms.checks import checked, of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    HybridCounter,
    HybridState,
    Linear,
    counter_for,
)
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.serving import Additive

TEST = "tests/unit/mechanisms/test_arrivals_exact.py"


@wire("arrival-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class ArrivalCounterState:
    """`updates` in this window, and the state of its counter."""

    updates: int
    counter: CounterState | HybridState


@wire("arrival-counter", 1, rests_on=(Counter, HybridCounter))
@dataclass(frozen=True)
class ArrivalCounter(Linear[ArrivalCounterState]):
    """Answers of shape (width,): identifiers since the window of `arrivals` began, for any number of windows.

    Without windows: identifiers so far, for at most `horizon` updates, or for any number (up to 2^40) where it is None.

    Privacy claim: `epsilon`-DP for events under `neighbors`, or for the users of `arrivals`, adaptively, where an exact
    memory of each public window makes the rows from the events: a unit lies in one window's counter ([HSV] Cor 5.5, k =
    1), which runs at epsilon / changes, and neighbours differ by so many units.
    """

    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    arrivals: Arrivals
    width: int = 1

    def __post_init__(self) -> None:
        self.arrivals.require_steps(self.width, self.neighbors)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.arrivals.users)

    @cached_property
    def inner(self) -> Counter | HybridCounter:
        lengths = [each for each in (self.arrivals.window, self.horizon) if each is not None]
        share = self.epsilon / self.rows.changes
        return counter_for(self.width, share, self.neighbors, min(lengths, default=None))

    @property
    def rows(self) -> ArrivalLaw:
        return ArrivalLaw(self.width, self.neighbors, changes=self.arrivals.changes)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: a window's counter, windows in turn, then the units by which neighbours differ."""
        part = self.inner.derivation()
        if self.arrivals.window is not None:
            once = Touched.intervals(self.neighbors, "a unit lies in one window", TEST)
            part = derive((part,), Parallel("windows one after the other", once))
        return derive((part,), FirstArrivals("identifiers", self.arrivals))

    def public(self, updates: int, state: Any) -> int:
        """Return the number of updates in the window: the noise of its counter depends on nothing else."""
        window = self.arrivals.window
        return updates if window is None or not updates else (updates - 1) % window + 1

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return self.inner.noise(public)

    def init(self, noise: Noise) -> ArrivalCounterState:
        return ArrivalCounterState(0, self.inner.init(noise))

    def step(
        self, state: ArrivalCounterState, message: Message, noise: Noise
    ) -> Step[ArrivalCounterState]:
        counter: Any = self.inner
        if isinstance(message, Query):
            return state, counter.step(state.counter, message, noise)[1]
        if state.updates == self.arrivals.window:
            state = self.init(noise)
        after, _ = counter.step(state.counter, message, noise)
        return ArrivalCounterState(state.updates + 1, after), None


ENTRIES = 2


@wire("cut-off-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CutOffState:
    """The states of both counters, and `last`: their answers at the end of the window before."""

    active: ArrivalCounterState
    cut: ArrivalCounterState
    last: IntArray


@wire("cut-off-counter", 1)
@dataclass(frozen=True)
class CutOffCounter(Additive):
    """Answers of shape (4,): users active and users cut off since the window of `users` began, then in the one before.

    Where `users` are protected for ever, answers have shape (2,): both numbers so far, for at most `horizon` updates,
    or for any number where it is None.

    A row has two entries: the users with their first event in its tick, and the users with their first event that the
    used-up cap excluded. The code that makes rows remembers the users. In a window of the cap a user has at most one
    unit of each entry, wherever the units lie and however many events there are. So each counter has half the epsilon,
    and the cap does not change the noise. Both counters start anew with the cap's windows.

    Privacy claim: `epsilon`-DP for `users`, adaptively, where a guard that decides by a user's own events makes the
    rows: each counter is epsilon / 2-DP for them (`ArrivalCounter`), and both see the same stream ([HSV] Thm 4.10).
    """

    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    users: Users

    @property
    def width(self) -> int:
        return ENTRIES

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.users)

    @cached_property
    def inner(self) -> ArrivalCounter:
        theirs = Arrivals(self.users.window, self.users)
        return ArrivalCounter(self.epsilon / ENTRIES, self.neighbors, self.horizon, theirs)

    @property
    def rows(self) -> ArrivalLaw:
        """What all events of one user change in rows, over both entries."""
        changes = ENTRIES * self.inner.rows.changes
        return ArrivalLaw(ENTRIES, self.neighbors, changes=changes, moved=1)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        each = self.inner.derivation()
        return derive((each, each), Fixed("users active and users cut off"))

    def public(self, updates: int, state: Any) -> int:
        return self.inner.public(updates, None)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        return self.inner.noise(public)

    def view_public(self, place: int, updates: int, state: Any) -> int:
        """Return the number of updates in the window at index `place`; the window before has had all its updates."""
        if place and self.users.window is not None:
            return self.users.window
        return self.public(updates, state)

    def init(self, noise: Noise) -> CutOffState:
        nobody = np.zeros(ENTRIES, np.int64)
        return CutOffState(self.inner.init(noise), self.inner.init(noise), nobody)

    def step(self, state: CutOffState, message: Message, noise: Noise) -> Step[CutOffState]:
        if isinstance(message, Query):
            now = self._answer(state, noise)
            return state, now if self.users.window is None else np.concatenate([now, state.last])
        if state.active.updates == self.users.window:
            state = replace(state, last=self._answer(state, noise))
        row = checked(message.row, self.width)
        active, _ = self.inner.step(state.active, Update(row[:1]), noise)
        cut, _ = self.inner.step(state.cut, Update(row[1:]), noise)
        return replace(state, active=active, cut=cut), None

    def _answer(self, state: CutOffState, noise: Noise) -> IntArray:
        counters = state.active, state.cut
        answers: list[Any] = [self.inner.step(each, Query(), noise)[1] for each in counters]
        return np.concatenate(answers)
