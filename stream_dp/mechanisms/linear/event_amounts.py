"""Rows of sums: an event adds one amount, from `lowest` to `highest`, to each of at most `ones` entries, or
nothing.

Rules: the mixin has no state; the mechanisms are dataclasses in other files. This file draws nothing.
"""

from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import AmountLaw
from stream_dp.core.row_relations import AMOUNTS
from stream_dp.mechanisms.row_check import checked_amounts


class EventAmounts:
    """The law of rows of sums, and what follows from it."""

    width: int
    neighbors: Neighbors
    lowest: int
    highest: int
    ones: int

    @property
    def rows(self) -> AmountLaw:
        """What one event changes in its rows.

        Raises:
            NotDerivable: the amounts are invalid, or beyond `MOST_UNITS`.
        """
        return AmountLaw(self.width, self.neighbors, self.ones, self.lowest, self.highest)

    def _require_amounts(self) -> None:
        """Raise NotDerivable where the amounts are invalid."""
        _ = self.rows

    @property
    def weight(self) -> int:
        """The largest absolute amount of an event: the most that one event more or less changes an entry."""
        return self.rows.weight

    @property
    def l1(self) -> int:
        """What one event changes in a row under the relation: the l1 norm of the difference.

        Raises:
            NotDerivable: the event may lie in two rows.
        """
        return self.rows.l1

    def checked_row(self, row: IntArray) -> IntArray:
        """Return `row` if it is a row of amounts.

        Raises:
            RejectedMessage: it is not.
        """
        return checked_amounts(row, self.width)

    def takes(self, message: object) -> bool:
        """Whether the message is a query or a row of amounts."""
        if isinstance(message, Update):
            return AMOUNTS.of_width(self.width).holds(message.row)
        return isinstance(message, Query)
