"""How many users were active, and how many were cut off by their cap: two counters of first ticks on one stream.

A row is how many users had their first event in its tick, and how many their first one that does not count because the
cap was used up; who makes it remembers them. A user has one unit of each in a window of the cap, wherever
they lie and however many events there are, so each counter has half the epsilon, and no cap plays a part in the noise.
Both begin anew with the cap's windows. This file knows no event, no guard and no names.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.accounting.derive import derive
from stream_dp.accounting.situations import Fixed
from stream_dp.core.arrivals import Arrivals
from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import ArrivalLaw
from stream_dp.core.users import Users
from stream_dp.core.wire import wire
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter, ArrivalCounterState
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.row_check import checked
from stream_dp.mechanisms.serving import Additive

ENTRIES = 2


@wire("cut-off-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CutOffState:
    """The states of both counters, and `last`: what both answered at the end of the window before."""

    active: ArrivalCounterState
    cut: ArrivalCounterState
    last: IntArray


@wire("cut-off-counter", 1)
@dataclass(frozen=True)
class CutOffCounter(Additive):
    """Answers of shape (4,): active and cut off since the window of `users` began, then both of the window before.

    Where `users` are protected for ever, of shape (2,): so far, for at most `horizon` updates, or for any number.

    Privacy claim: `epsilon`-DP for `users`, adaptively, where rows are made by a guard that decides by a user's own
    events: each counter is epsilon / 2-DP for them (`ArrivalCounter`), and both see the same stream ([HSV] Thm 4.10).

    >>> from stream_dp.core.messages import Update
    >>> from stream_dp.testing.noise import ZeroNoise
    >>> each = CutOffCounter(Fraction(1), Neighbors.ADD_REMOVE, 10, Users(20, 2))
    >>> state = each.init(ZeroNoise())
    >>> for row in ((3, 0), (4, 1), (5, 2)):
    ...     state, _ = each.step(state, Update(np.array(row)), ZeroNoise())
    >>> each.step(state, Query(), ZeroNoise())[1]
    array([5, 2, 7, 1])
    """

    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    users: Users

    @property
    def width(self) -> int:
        """Two entries: active, and cut off."""
        return ENTRIES

    @property
    def guarantee(self) -> Guarantee:
        """Pure DP at `epsilon` for the users."""
        return Guarantee(PureDP(self.epsilon), self.neighbors, users=self.users)

    @cached_property
    def inner(self) -> ArrivalCounter:
        """The counter of either."""
        theirs = Arrivals(self.users.window, self.users)
        return ArrivalCounter(self.epsilon / ENTRIES, self.neighbors, self.horizon, theirs)

    @property
    def rows(self) -> ArrivalLaw:
        """What all events of one user change in its rows, in both entries."""
        changes = ENTRIES * self.inner.rows.changes
        return ArrivalLaw(ENTRIES, self.neighbors, changes=changes, moved=1)

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: both counters at once.

        Raises:
            NotDerivable: the noise of one is too small for its half.
        """
        each = self.inner.derivation()
        return derive((each, each), Fixed("users active and users cut off"))

    def public(self, updates: int, state: Any) -> int:
        """Return how many updates the window has had."""
        return self.inner.public(updates, None)

    def noise(self, public: int, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise in either answer after so many updates of a window."""
        return self.inner.noise(public)

    def view_public(self, place: int, updates: int, state: Any) -> int:
        """Return how many updates the window at `place` has had: the one before, all of them."""
        if place and self.users.window is not None:
            return self.users.window
        return self.public(updates, state)

    def init(self, noise: Noise) -> CutOffState:
        """Return the first state: nobody was there."""
        nobody = np.zeros(ENTRIES, np.int64)
        return CutOffState(self.inner.init(noise), self.inner.init(noise), nobody)

    def step(
        self, state: CutOffState, message: Message, noise: Noise
    ) -> tuple[CutOffState, IntArray | None]:
        """Give each its entry of the row, or answer what both answer and what they did before the window began.

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon.
        """
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
        """What both answer."""
        found: list[Any] = [
            self.inner.step(each, Query(), noise)[1] for each in (state.active, state.cut)
        ]
        return np.concatenate(found)
