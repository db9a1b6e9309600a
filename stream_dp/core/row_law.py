"""What one record changes in the rows of a mechanism: how many entries, by how much, and how often.

A mechanism states the law of its rows once. Sensitivities, the relation on rows for which a claim holds, and the
rows of an audit's adversary follow from it. This file knows no mechanism and no noise.
"""

from dataclasses import dataclass

from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import (
    AMOUNTS,
    AmountRows,
    EventRows,
    HalvedRows,
    RowSpace,
    ShapedRows,
    WholeWindows,
    user,
)
from stream_dp.errors import NotDerivable

MOST_UNITS = 10**9
"""The largest amount of one event: sums of about 10^9 such amounts fit into 64 bits."""


@dataclass(frozen=True)
class RowLaw:
    """Rows of shape (`width`,): an event adds one number from `lowest` to `highest` to at most `ones` entries.

    `changes`: by how many units one event changes an entry, over all ticks. Rows of this base class are counts.
    """

    width: int
    neighbors: Neighbors
    ones: int = 1
    lowest: int = 0
    highest: int = 1
    changes: int = 1

    @property
    def l0(self) -> int:
        """Number of entries that one event changes between neighbours."""
        return self.neighbors.l0(self.width, self.ones)

    @property
    def weight(self) -> int:
        """The largest absolute number that an event adds to an entry."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def span(self) -> int:
        """The most that a different content changes an entry; a content may also add nothing."""
        return max(self.highest, 0) - min(self.lowest, 0)

    @property
    def l1(self) -> int:
        """What one event changes in a row under the relation: the l1 norm of the difference.

        Under `add_remove` it is the largest amount in each of the event's entries. Under `replace` it is the larger
        of two numbers: the largest amount in all entries of the old and the new content; or the difference of the
        two extreme amounts in each entry, where both contents have the same entries.
        """
        if self.neighbors is Neighbors.ADD_REMOVE:
            return self.l0 * self.weight
        return max(self.l0 * self.weight, min(self.ones, self.width) * self.span)

    @property
    def contents(self) -> tuple[int, int]:
        """The two numbers of an event (or 0 for nothing) that differ most; the second has the larger absolute value."""
        low, high = min(self.lowest, 0), max(self.highest, 0)
        return (low, high) if high >= -low else (high, low)

    @property
    def wanders(self) -> bool:
        """Whether rows of neighbours may differ in other ticks than that of the event."""
        return self.changes > 1

    @property
    def halves(self) -> tuple["RowLaw", ...]:
        """The laws of the halves of a row; this law alone where rows have no halves."""
        return (self,)

    def relation(self, neighbors: Neighbors, events: int = 1) -> Relation:
        """Return the relation on rows for `events` events; `neighbors` may be two steps of this law's relation."""
        return user(neighbors, events, width=self.width, ones=self.ones)

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        return user(
            neighbors, users.cap, users.window, width=self.width, ones=self.ones, first=first
        )


class _Own(RowLaw):
    """Law with its own relation; the relation for a user is that for as many events as count."""

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        return self.relation(neighbors, users.cap)


@dataclass(frozen=True)
class AmountLaw(_Own):
    """Rows of sums: an event adds one integer amount, which may be negative, or nothing (at most `MOST_UNITS`)."""

    def __post_init__(self) -> None:
        if not self.lowest <= self.highest or not 1 <= self.weight <= MOST_UNITS:
            raise NotDerivable(
                f"a sum needs a lowest and a highest amount, of at most {MOST_UNITS:,} units, that "
                "are not both 0"
            )

    def relation(self, neighbors: Neighbors, events: int = 1) -> AmountRows:
        """Return the relation for `events` events: replaced in any tick, or neighbours of this law."""
        moves = neighbors is Neighbors.REPLACE_ANY_TICK
        linf = self.weight if self.neighbors is Neighbors.ADD_REMOVE else self.span
        most = 2 * events if moves else events
        return AmountRows(self.l1, linf, most, AMOUNTS.of_width(self.width), moves)


@dataclass(frozen=True)
class ArrivalLaw(_Own):
    """Rows of first ticks: one event changes up to `changes` units of them, in any ticks.

    `moved`: a replacement in any tick counts as `moved` such events. `ended`: it changes so many units of the totals of
    whole windows of `ended` ticks, and within a window what it likes.
    """

    moved: int = 2
    ended: int | None = None

    @property
    def wanders(self) -> bool:
        return self.changes > 1 or self.ended not in (None, 1)

    def relation(self, neighbors: Neighbors, events: int = 1) -> EventRows | WholeWindows:
        """Return the relation for `events` events, or for all events of the users that the law is for."""
        moves = self.moved if neighbors is Neighbors.REPLACE_ANY_TICK else 1
        most = moves * events * self.changes
        if self.ended is not None:
            return WholeWindows(most, self.ended, RowSpace(self.width))
        return EventRows(self.neighbors, most, space=RowSpace(self.width))


@dataclass(frozen=True)
class TotalLaw(_Own):
    """Rows of amounts, in units: all records of a user together add up to `changes` units, to any entries and ticks."""

    def relation(self, neighbors: Neighbors, events: int = 1) -> AmountRows:
        """Return the relation for so many users; one of their units is an event of one unit."""
        return AmountRows(1, 1, events * self.changes, AMOUNTS.of_width(self.width))

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        return self.relation(neighbors)


@dataclass(frozen=True)
class ShapedLaw(RowLaw):
    """Rows of counts of which all events of one user lie as `shape` says."""

    shape: UserShape | None = None

    def relation(self, neighbors: Neighbors, events: int = 1) -> Relation:
        """Return the relation for one user, wherever the window of the cap begins."""
        if self.shape is None:
            return super().relation(neighbors, events)
        return ShapedRows.of(self.shape, self.width, self.ones)

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> Relation:
        if self.shape is None:
            return super().of_users(neighbors, users, first)
        return self.relation(neighbors)


@dataclass(frozen=True)
class HalvedLaw(_Own):
    """Rows of two halves of equal width, both functions of the same events: sums, followed by counts."""

    halves: tuple[RowLaw, ...] = ()

    @classmethod
    def of(cls, sums: RowLaw, counts: RowLaw) -> "HalvedLaw":
        """Return the law of rows of `sums` and `counts`; an event's numbers are those of the sums."""
        numbers = sums.neighbors, sums.ones, sums.lowest, sums.highest
        return cls(2 * sums.width, *numbers, halves=(sums, counts))

    def relation(self, neighbors: Neighbors, events: int = 1) -> HalvedRows:
        return HalvedRows(*(half.relation(neighbors, events) for half in self.halves))

    def of_users(self, neighbors: Neighbors, users: Users, first: int) -> HalvedRows:
        return HalvedRows(*(half.of_users(neighbors, users, first) for half in self.halves))
