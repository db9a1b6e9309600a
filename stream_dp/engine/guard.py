"""The guard in front of the engine: the verifier V[f] of [HSV] Def 3.5 as production needs it.

In a game the verifier stands between the adversary and the mechanism (`verify.games.verifier`). In production there
is no pair: the guard is the same f on the diagonal, that is, a row passes where the pair of it with itself is
accepted. Both sides of every accepted pair pass it. This file knows no mechanism.
"""

from dataclasses import dataclass

import numpy as np

from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import event
from stream_dp.errors import FailClosed


@dataclass(frozen=True, slots=True)
class Guard:
    """The one-sided guard of the event and user relations on rows of shape (width,).

    For these relations the row alone decides whether it is admissible, not the relation, the cap or earlier rows.
    So the guard has no state to lose in a crash. In the columns of `amounts` (sums of units, of either sign) any
    integer is admissible: a limit would be a decision about exact sums, before any noise.
    """

    width: int
    amounts: tuple[slice, ...] = ()

    def admit(self, row: IntArray) -> IntArray:
        """Return the row unchanged.

        Raises:
            FailClosed: it is not a row of counts and amounts of this width, so no guarantee covers it.
        """
        counts = self._counts(row)
        if event(Neighbors.REPLACE, self.width).accept(counts, counts) is None:
            raise FailClosed(
                "a row that no stream of events can produce reached the guard; stop and report this"
            )
        return row

    def _counts(self, row: IntArray) -> IntArray:
        """Return the row with zeros in the columns of amounts."""
        if not self.amounts or not isinstance(row, np.ndarray):
            return row
        counts = row.copy()
        for columns in self.amounts:
            counts[columns] = 0
        return counts
