"""What one event of a sum can change: the sensitivities of rows to which an event adds one integer amount.

An event adds one amount, from `lowest` to `highest`, to each of at most `ones` entries of its row, or nothing at all.
Rules: no fields and no state of its own; the mechanisms are dataclasses beside it. This file draws nothing.
"""

from stream_dp.core.messages import Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_relations import AMOUNTS, AmountRows
from stream_dp.errors import NotDerivable

MOST_UNITS = 10**9
"""The largest amount of one event, so that sums of some 10^9 events of it fit into 64 bits."""


class EventAmounts:
    """The l1 norm of a row's difference between neighbours, and the relation on rows that it stands for."""

    width: int
    neighbors: Neighbors
    lowest: int
    highest: int
    ones: int

    def _require_amounts(self) -> None:
        """Refuse amounts that are none (NotDerivable)."""
        if not self.lowest <= self.highest or not 1 <= self.weight <= MOST_UNITS:
            raise NotDerivable(
                f"a sum needs amounts from a lowest to a highest one, of at most {MOST_UNITS:,} units, not all 0"
            )

    @property
    def weight(self) -> int:
        """The largest amount of an event, its sign left out: what it changes an entry by at most, more or less."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def span(self) -> int:
        """What another content changes an entry by at most; it may as well add nothing."""
        return max(self.highest, 0) - min(self.lowest, 0)

    @property
    def l1(self) -> int:
        """What one event changes in a row in all, by the relation.

        Under `add_remove` its amount in each of its entries. Under `replace` the largest amount in the entries of the
        old and in those of the new content; or the two farthest amounts, which add up also where entries are the same.

        Raises:
            NotDerivable: the event may lie in two rows.
        """
        touched = self.neighbors.l0(self.width, self.ones)
        if self.neighbors is Neighbors.ADD_REMOVE:
            return touched * self.weight
        return max(touched * self.weight, min(self.ones, self.width) * self.span)

    def event_rows(self, neighbors: Neighbors, events: int = 1) -> AmountRows:
        """Return the relation on rows of `events` events: this mechanism's, or of a replacement in any tick."""
        moves = neighbors is Neighbors.REPLACE_ANY_TICK
        linf = self.weight if self.neighbors is Neighbors.ADD_REMOVE else self.span
        most = 2 * events if moves else events
        return AmountRows(self.l1, linf, most, AMOUNTS.of_width(self.width), moves)

    def takes(self, message: object) -> bool:
        """Whether the message is a query or a row of amounts."""
        if isinstance(message, Update):
            return AMOUNTS.of_width(self.width).holds(message.row)
        return isinstance(message, Query)
