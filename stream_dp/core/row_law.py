"""What one record changes in the rows of a mechanism: how many entries, by how much, and how often.

A mechanism states the law of its rows once. Sensitivities, the relation on rows that a claim is for, and the rows of an
audit's adversary follow from it. This file knows no mechanism and no noise.
"""

from dataclasses import dataclass

from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import AMOUNTS, AmountRows, EventRows, HalvedRows, RowSpace, user
from stream_dp.core.users import Users
from stream_dp.errors import NotDerivable

MOST_UNITS = 10**9
"""The largest amount of one event, so that sums of some 10^9 events of it fit into 64 bits."""


@dataclass(frozen=True)
class RowLaw:
    """Rows of shape (`width`,): an event adds one number from `lowest` to `highest` to at most `ones` entries.

    `changes`: by how many units one event changes an entry, over all ticks. Here rows are counts.
    """

    width: int
    neighbors: Neighbors
    ones: int = 1
    lowest: int = 0
    highest: int = 1
    changes: int = 1

    @property
    def l0(self) -> int:
        """How many entries one event changes between neighbours."""
        return self.neighbors.l0(self.width, self.ones)

    @property
    def weight(self) -> int:
        """The largest number that an event adds to an entry, its sign left out."""
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
        if self.neighbors is Neighbors.ADD_REMOVE:
            return self.l0 * self.weight
        return max(self.l0 * self.weight, min(self.ones, self.width) * self.span)

    @property
    def contents(self) -> tuple[int, int]:
        """The two numbers of an event, or nothing, that differ most; the second one is the larger without its sign."""
        other, one = min(self.lowest, 0), max(self.highest, 0)
        return (other, one) if one >= -other else (one, other)

    @property
    def halves(self) -> tuple["RowLaw", ...]:
        """The laws of the parts of a row."""
        return (self,)

    def relation(self, neighbors: Neighbors, events: int = 1) -> Relation:
        """Return the relation on rows of `events` events under these neighbours, which may be another's step."""
        return user(neighbors, events, width=self.width, ones=self.ones)

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        """Return the relation on rows, from tick `first`, of all events of one user."""
        return user(
            neighbors, users.cap, users.window, width=self.width, ones=self.ones, first=first
        )


class _Own(RowLaw):
    """Rows with a relation of their own: that of a user is that of as many events as count."""

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        """Return the relation on rows of so many events as a user may have."""
        return self.relation(neighbors, users.cap)


@dataclass(frozen=True)
class AmountLaw(_Own):
    """Rows of sums: an event adds one integer amount, which may be negative, or nothing at all.

    Raises:
        NotDerivable: no amounts, or some beyond `MOST_UNITS`.
    """

    def __post_init__(self) -> None:
        """Refuse amounts that are none."""
        if not self.lowest <= self.highest or not 1 <= self.weight <= MOST_UNITS:
            raise NotDerivable(
                f"a sum needs amounts from a lowest to a highest one, of at most {MOST_UNITS:,} units, not all 0"
            )

    def relation(self, neighbors: Neighbors, events: int = 1) -> AmountRows:
        """Return the relation on rows of `events` events: this law's, or of a replacement in any tick."""
        moves = neighbors is Neighbors.REPLACE_ANY_TICK
        linf = self.weight if self.neighbors is Neighbors.ADD_REMOVE else self.span
        most = 2 * events if moves else events
        return AmountRows(self.l1, linf, most, AMOUNTS.of_width(self.width), moves)


@dataclass(frozen=True)
class ArrivalLaw(_Own):
    """Rows of first ticks: one event changes up to `changes` units of them, wherever they lie.

    `moved`: as many of them a replacement in any tick is.
    """

    moved: int = 2

    def relation(self, neighbors: Neighbors, events: int = 1) -> EventRows:
        """Return the relation on rows of `events` events, or of all events of the users that it is for."""
        moves = self.moved if neighbors is Neighbors.REPLACE_ANY_TICK else 1
        most = moves * events * self.changes
        return EventRows(self.neighbors, most, space=RowSpace(self.width))


@dataclass(frozen=True)
class HalvedLaw(_Own):
    """Rows of two halves of one width, each a function of the same events: sums, and counts behind them."""

    halves: tuple[RowLaw, ...] = ()

    @classmethod
    def of(cls, sums: RowLaw, counts: RowLaw) -> "HalvedLaw":
        """Return the law of rows of both; an event's numbers are those of the sums."""
        numbers = sums.neighbors, sums.ones, sums.lowest, sums.highest
        return cls(2 * sums.width, *numbers, halves=(sums, counts))

    def relation(self, neighbors: Neighbors, events: int = 1) -> HalvedRows:
        """Return the relation on rows of `events` events: that of each half."""
        return HalvedRows(*(half.relation(neighbors, events) for half in self.halves))
