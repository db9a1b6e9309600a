"""The verifier V[f] of [HSV] Def 3.5, in its two uses.

In a game it stands between the adversary and the mechanism and halts at the first message that is no f-valid pair. In
production there is no pair: the guard in front of the engine is the same f on the diagonal, that is, a row passes where
the pair of it with itself is accepted. Both sides of every accepted pair pass it. This file knows no mechanism.
"""

from dataclasses import dataclass
from typing import Any

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import event
from stream_dp.errors import FailClosed


@dataclass(frozen=True, slots=True)
class Verifier:
    """V[f]: pairs pass while they are f-valid; afterwards nothing passes. `function` is None once it has halted."""

    function: Relation | None

    @property
    def halted(self) -> bool:
        """Whether a message has been refused."""
        return self.function is None

    def verify(self, message: Any) -> "Verifier":
        """The verifier after this message; halted for ever where it is no f-valid pair (left, right)."""
        if self.function is None:
            return self
        pair = isinstance(message, tuple) and len(message) == 2
        return Verifier(self.function.accept(*message) if pair else None)


@dataclass(frozen=True, slots=True)
class Guard:
    """The one-sided guard of the event and user relations on rows of shape (width,).

    Whether a row is admissible depends for these on the row alone, and not on the relation, the cap or the rows before:
    the guard has no state to lose in a crash.
    """

    width: int

    def admit(self, row: IntArray) -> IntArray:
        """Return the row as it is.

        Raises:
            FailClosed: it is not a row of counts of this width, so no guarantee covers it.
        """
        if event(Neighbors.REPLACE, self.width).accept(row, row) is None:
            raise FailClosed(
                "a row that no stream of events can produce reached the guard; stop and report this"
            )
        return row
