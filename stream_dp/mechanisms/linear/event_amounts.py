"""Rows of sums: an event adds one amount, from `lowest` to `highest`, to each of at most `ones` entries, or nothing.

Rules: no fields and no state of its own; the mechanisms are dataclasses beside it. This file draws nothing.
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
            NotDerivable: no amounts, or some beyond `MOST_UNITS`.
        """
        return AmountLaw(self.width, self.neighbors, self.ones, self.lowest, self.highest)

    def _require_amounts(self) -> None:
        """Refuse amounts that are none (NotDerivable)."""
        _ = self.rows

    @property
    def weight(self) -> int:
        """The largest amount of an event, its sign left out: what it changes an entry by at most, more or less."""
        return self.rows.weight

    @property
    def l1(self) -> int:
        """What one event changes in a row in all, by the relation.

        Raises:
            NotDerivable: the event may lie in two rows.
        """
        return self.rows.l1

    def checked_row(self, row: IntArray) -> IntArray:
        """Return a row of amounts.

        Raises:
            RejectedMessage: a bad row.
        """
        return checked_amounts(row, self.width)

    def takes(self, message: object) -> bool:
        """Whether the message is a query or a row of amounts."""
        if isinstance(message, Update):
            return AMOUNTS.of_width(self.width).holds(message.row)
        return isinstance(message, Query)
