"""How many identifiers were there, so far or since their public window began: a counter of first ticks.

An entry of a row is the number of identifiers that came in its tick for the first time in the window; the code that
makes rows remembers them. One event moves up to `changes` units of such rows, at most one for a tick and an
identifier, so the counter counts at epsilon / changes. When a window begins, the counter starts anew with its own
noise. This file knows no identifier, no memory and no names.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import FirstArrivals, Parallel, Touched
from stream_dp.core.arrivals import Arrivals
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import ArrivalLaw
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.counter import (
    Counter,
    CounterState,
    HybridCounter,
    HybridState,
    Linear,
)
from stream_dp.mechanisms.noise_law import NoiseLaw

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
    """Answers of shape (1,): identifiers since the window of `arrivals` began, for any number of windows.

    Without windows: identifiers so far, for at most `horizon` updates, or for any number (up to 2^40) where it is
    None.

    Privacy claim: `epsilon`-DP for events under `neighbors`, or for the users of `arrivals`, adaptively, where an
    exact memory of each public window makes the rows from the events: a unit lies in one window's counter ([HSV]
    Cor 5.5, k = 1), which runs at epsilon / changes, and neighbours differ by so many units.

    >>> from stream_dp.core.messages import Update
    >>> from stream_dp.testing.noise import ZeroNoise
    >>> import numpy as np
    >>> distinct = ArrivalCounter(Fraction(1), Neighbors.ADD_REMOVE, 10, Arrivals(window=2))
    >>> state = distinct.init(ZeroNoise())
    >>> for row in (3, 4, 5):
    ...     state, _ = distinct.step(state, Update(np.array([row])), ZeroNoise())
    >>> distinct.step(state, Query(), ZeroNoise())[1], distinct.rows.changes
    (array([5]), 2)
    """

    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    arrivals: Arrivals

    @property
    def width(self) -> int:
        """Number of entries of a row."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon`, for the unit that `arrivals` protects."""
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.arrivals.users)

    @cached_property
    def inner(self) -> Counter | HybridCounter:
        """The counter of one window."""
        share, window = self.epsilon / self.rows.changes, self.arrivals.window
        lengths = [length for length in (window, self.horizon) if length is not None]
        if not lengths:
            return HybridCounter(1, share, self.neighbors)
        return Counter(1, share, self.neighbors, min(lengths))

    @property
    def rows(self) -> ArrivalLaw:
        """What one event changes in its rows."""
        return ArrivalLaw(1, self.neighbors, changes=self.arrivals.changes)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: a window's counter, windows one after the other, then the units by which neighbours
        differ.

        Raises:
            NotDerivable: the noise is too small for `epsilon`, or an event may lie in two ticks.
        """
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
        """Return the law of the noise in the answer after `public` updates of the window."""
        return self.inner.noise(public)

    def view_public(self, place: int, updates: int, state: Any) -> int:
        """Return the value of `public`: there is only one view."""
        return self.public(updates, state)

    def init(self, noise: Noise) -> ArrivalCounterState:
        """Return the first state: no identifiers counted."""
        return ArrivalCounterState(0, self.inner.init(noise))

    def step(
        self, state: ArrivalCounterState, message: Message, noise: Noise
    ) -> tuple[ArrivalCounterState, IntArray | None]:
        """Add a row, after a new start where a window has ended, or answer.

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon.
        """
        counter: Any = self.inner
        if isinstance(message, Query):
            _, answer = counter.step(state.counter, message, noise)
            return state, answer
        if state.updates == self.arrivals.window:
            state = self.init(noise)
        after, _ = counter.step(state.counter, message, noise)
        return ArrivalCounterState(state.updates + 1, after), None
