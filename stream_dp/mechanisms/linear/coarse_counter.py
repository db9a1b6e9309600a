"""Tree counters that are released at public deadlines only, the last value held in between.

A tree over the deadlines is smaller than one over the ticks, and so is its noise: what is released is nearer to the
count at its deadline, and older. Rules: deadlines are every `every`-th update and the last one, whatever the data are.
This file knows no ticks and no names.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Noise
from stream_dp.core.messages import IntArray, Message, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.wire import wire
from stream_dp.errors import UsageError
from stream_dp.mechanisms.exact_class import of_the_exact_class
from stream_dp.mechanisms.linear.counter import Counter, CounterState
from stream_dp.mechanisms.linear.hybrid_counter import HybridCounter, HybridState
from stream_dp.mechanisms.row_check import checked, require_left


@wire("coarse-counter-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CoarseState:
    """`updates` so far and `released` (shape (width,)) are public; `pending`, the rows since a deadline, is not."""

    updates: int
    released: IntArray
    pending: IntArray
    counter: CounterState | HybridState


@wire("coarse-counter", 1, rests_on=(Counter, HybridCounter))
@dataclass(frozen=True)
class CoarseCounter:
    """`width` counters over at most `horizon` updates (None: any number), released after every `every`-th of them.

    Answers of shape (width,): the counts at the last deadline, zeros before the first. `ones`: the most entries of a
    row that one event sets.

    Privacy claim: `epsilon`-DP under `neighbors`, adaptively: that of the counter, whose updates are the sums of rows
    between public deadlines: an event lies in one row, a row in one sum.

    Raises:
        UsageError: `every` is less than 1.
    """

    width: int
    epsilon: Fraction
    neighbors: Neighbors
    horizon: int | None
    every: int
    ones: int = 1

    def __post_init__(self) -> None:
        """Refuse deadlines that are none."""
        if self.every < 1:
            raise UsageError("releases come every 1 or more ticks")

    @property
    def guarantee(self) -> Guarantee:
        """That of the counter."""
        return self.counter.guarantee

    @cached_property
    def counter(self) -> Counter | HybridCounter:
        """The counter over deadlines."""
        if self.horizon is None:
            return HybridCounter(self.width, self.epsilon, self.neighbors, self.ones)
        deadlines = -(-self.horizon // self.every)
        return Counter(self.width, self.epsilon, self.neighbors, deadlines, self.ones)

    def deadlines(self, updates: int) -> int:
        """How many deadlines there were after so many updates."""
        return updates // self.every + int(updates == self.horizon and updates % self.every > 0)

    def told_at(self, updates: int) -> int | None:
        """Return after how many updates the last of so many deadlines lay, None before the first; public."""
        if not self.deadlines(updates):
            return None
        return updates if updates == self.horizon else updates // self.every * self.every

    @of_the_exact_class
    def derivation(self) -> Derivation:
        """Derive the guarantee: the counter's, for an event lies in one of its updates.

        Raises:
            NotDerivable: the noise is too small for `epsilon`.
        """
        return self.counter.derivation()

    def public(self, updates: int, state: CoarseState) -> int:
        """Return the number of deadlines so far: the noise in an answer depends on nothing else."""
        return self.deadlines(updates)

    def band(self, public: int, confidence: float) -> int:
        """Return the half-width around the count at the last deadline; how much has come since is not bounded."""
        return self.counter.band(public, confidence) if public else 0

    def opening(self) -> tuple[int, int]:
        """Return (0, 0): no decision is taken by counts."""
        return 0, 0

    def init(self, noise: Noise) -> CoarseState:
        """Return the first state: nothing counted, zeros released."""
        zeros = np.zeros(self.width, dtype=np.int64)
        return CoarseState(0, zeros, zeros, self.counter.init(noise))

    def step(
        self, state: CoarseState, message: Message, noise: Noise
    ) -> tuple[CoarseState, IntArray | None]:
        """Take a row, which closes a sum at a deadline; or answer what was released last.

        Raises:
            RejectedMessage: a bad row, or an update beyond the horizon.
        """
        if isinstance(message, Query):
            return state, state.released.copy()
        require_left(state.updates, self.horizon)
        updates, pending = state.updates + 1, state.pending + checked(message.row, self.width)
        if self.deadlines(updates) == self.deadlines(state.updates):
            return replace(state, updates=updates, pending=pending), None
        return self._released(replace(state, updates=updates, pending=pending), noise), None

    def _released(self, state: CoarseState, noise: Noise) -> CoarseState:
        """The sum goes into the counter, whose answer is held until the next deadline."""
        counter: Any = self.counter
        inner, _ = counter.step(state.counter, Update(state.pending), noise)
        inner, released = counter.step(inner, Query(), noise)
        zeros = np.zeros(self.width, dtype=np.int64)
        return CoarseState(state.updates, released, zeros, inner)
