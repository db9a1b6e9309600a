"""Counters and sparse vectors broken on purpose: each breaks one rule of the suite.

They are small on purpose, without privacy, and never leave the tests.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from stream_dp.core.guarantee import Guarantee, PureDP
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.serial import Codec
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage
from stream_dp.mechanisms.checks import checked


@wire("count", 1)
@dataclass(slots=True)
class Count:
    """Running counts."""

    total: IntArray


COUNT = Codec([Count])


@dataclass
class Right:
    """A counter with one fresh Laplace sample per update: passes, so that the twins fail for their own reason."""

    width: int = 3
    last: IntArray = field(default_factory=lambda: np.zeros(3, dtype=np.int64))

    @property
    def guarantee(self) -> Guarantee:
        """Claimed, not kept."""
        return Guarantee(PureDP(Fraction(1)), Neighbors.ADD_REMOVE)

    def init(self, noise: Noise) -> Count:
        """Noise on zeros."""
        return Count(noise.laplace(Fraction(1), self.width))

    def step(self, state: Count, message: Message, noise: Noise) -> tuple[Count, IntArray | None]:
        """Update or answer."""
        if isinstance(message, Query):
            return self.ask(state, noise)
        return self.update(state, message, noise), None

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Add the row and fresh noise."""
        row = checked(message.row, self.width)
        return Count(state.total + row + noise.laplace(Fraction(1), self.width))

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        """A copy of the totals."""
        return state, state.total.copy()


class MutatesTheState(Right):
    """Adds in place."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Writes into the state it was given."""
        checked(message.row, self.width)
        state.total += message.row
        return Count(state.total.copy())


class MutatesTheRow(Right):
    """Saves an array."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Writes into the row."""
        after = super().update(state, message, noise)
        np.add(message.row, 1, out=message.row)
        return after


class KeepsTheRow(Right):
    """The first update becomes the state."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Aliases the row."""
        row = checked(message.row, self.width)
        return Count(row) if not state.total.any() else Count(state.total + row)

    def init(self, noise: Noise) -> Count:
        """No noise."""
        return Count(np.zeros(self.width, dtype=np.int64))


class HandsOutItsState(Right):
    """Answers with the array of its state."""

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        """Aliases the state."""
        return state, state.total


class ForgetsOnRestore(Right):
    """Keeps a part of its state in itself."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """The last row waits outside the state."""
        after = Count(super().update(state, message, noise).total - message.row + self.last)
        self.last = message.row.copy()
        return after


class SwallowsBadRows(Right):
    """Takes what it cannot add for silence."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """No refusal."""
        try:
            return super().update(state, message, noise)
        except RejectedMessage:
            return state


class DrawsBeforeItRefuses(Right):
    """Noise first, checks later."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """A refused attempt has used noise."""
        fresh = noise.laplace(Fraction(1), self.width)
        return Count(state.total + checked(message.row, self.width) + fresh)


class TakesNegatives(Right):
    """Checks the shape only."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """No sign check."""
        if not isinstance(message.row, np.ndarray) or message.row.shape != (self.width,):
            raise RejectedMessage("shape")
        return Count(state.total + message.row.astype(np.int64))


class CountsSilence(Right):
    """Counts ticks."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """One more each time."""
        return Count(super().update(state, message, noise).total + 1)


class CapsBursts(Right):
    """Loses what exceeds 50 in a tick."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Not exact."""
        checked(message.row, self.width)
        return super().update(state, Update(np.minimum(message.row, 50)), noise)


class DrawsPerEvent(Right):
    """Asks for noise only where something happened."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """The consumption of noise tells the data."""
        row = checked(message.row, self.width)
        fresh = noise.laplace(Fraction(1), self.width if row.any() else 0)
        return Count(state.total + row + (fresh if fresh.size else 0))


class NoiseOnEachQuestion(Right):
    """PlannedSeries often enough, it averages its noise away."""

    def ask(self, state: Count, noise: Noise) -> tuple[Count, IntArray]:
        """Fresh noise."""
        return state, state.total + noise.laplace(Fraction(1), self.width)


class MixesColumns(Right):
    """The first column also counts the last one."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Right for width 1 only."""
        after = super().update(state, message, noise)
        if self.width > 1:
            after.total[0] += message.row[-1]
        return after


class EndsEarly(Right):
    """Refuses within its horizon."""

    def update(self, state: Count, message: Update, noise: Noise) -> Count:
        """Stops at 300 events."""
        if state.total.sum() > 300:
            raise RejectedMessage("full")
        return super().update(state, message, noise)
