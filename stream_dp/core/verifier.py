"""The verifier V[f] of [HSV] 3.5, in its two uses.

In a game it stands between the adversary and the mechanism and halts at the first pair of messages that the
verification function refuses. In production there is no pair: the guard in front of the engine passes on just
those rows that can stand on one side of an accepted pair, and is the identity on them. This file knows no mechanism.
"""

from dataclasses import dataclass

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors, OneHotPair
from stream_dp.errors import FailClosed

MOST_EVENTS = 1 << 40  # of one tick; more is no stream of events


@dataclass(frozen=True, slots=True)
class Verifier:
    """Pairs of rows pass while they are neighbours so far; afterwards nothing passes."""

    check: OneHotPair | None

    @classmethod
    def of(cls, neighbors: Neighbors) -> "Verifier":
        """The verifier before the first pair."""
        return cls(OneHotPair(neighbors))

    @property
    def halted(self) -> bool:
        """Whether a pair has been refused."""
        return self.check is None

    def verify(self, left: IntArray, right: IntArray) -> "Verifier":
        """The verifier after this pair; halted for ever where the pair is not f-valid."""
        return self if self.check is None else Verifier(self.check.accept(left, right))


@dataclass(frozen=True, slots=True)
class Guard:
    """The one-sided guard of event-level relations: every row of event counts is admissible."""

    width: int

    def admit(self, row: IntArray) -> IntArray:
        """Return the row as it is.

        Raises:
            FailClosed: it is not a row of counts of this width, so no guarantee covers it.
        """
        whole = row.shape == (self.width,) and row.dtype == np.int64
        if not whole or (self.width and (row.min() < 0 or row.max() > MOST_EVENTS)):
            raise FailClosed(
                "a row that no stream of events can produce reached the guard; stop and report this"
            )
        return row
