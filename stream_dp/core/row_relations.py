"""Neighbour relations on streams of tick rows, and the messages that carry rows.

Rules: a row is an int64 array of shape (width,). A pair of rows shows the least number of events that explains the
difference; it shows neither who made the events nor that a cap was enforced. So these relations accept every pair
of streams of raw neighbours, and more, and a guarantee for them covers the raw neighbours. This file knows no
mechanism.
"""

from dataclasses import dataclass, replace
from operator import add
from typing import Any, ClassVar, Self

import numpy as np

from stream_dp.core.mechanism import IntArray, Query, Update
from stream_dp.core.neighbors import Neighbors, Users, UserShape
from stream_dp.core.relation import Relation, same
from stream_dp.core.wire import wire
from stream_dp.core.wording import how_many
from stream_dp.errors import InvalidCost, NotDerivable, UsageError


@wire("arrivals", 1)
@dataclass(frozen=True, slots=True)
class Arrivals:
    """First ticks of identifiers in windows of `window` ticks (None: one window for ever), and how they may differ.

    `users`: the protected users, where each user is one identifier. None: identifiers may be anything, and neighbours
    differ in one event, which keeps its tick. `values`: identifiers are anything, and the events of a user that count
    have at most so many different ones in a window of their cap.

    One more event may move its identifier's first tick: one unit comes at one tick and one goes at a later tick. Where
    the identifier is the protected user, all events of that user come or go together: if all of them in the window may
    differ, one unit comes; if both streams have some of them, one unit comes and one may go. Windows count from tick
    0, as those of a user's cap do. Where a user has `values`, others may have the same ones, so each of them, in each
    window in which the user has it, may come at one tick and go at another.

    `ended`: only the number of a whole window is seen, once it has ended. An identifier is in that number or not, so
    whatever comes and goes within a window, its number differs by one unit at most.

    >>> Arrivals().changes, Arrivals(1).changes, Arrivals(None, Users(20)).changes, Arrivals(24, Users(20, 24)).changes
    (2, 1, 1, 1)
    >>> Arrivals(24, ended=True).changes, Arrivals(24, Users(20, 12), ended=True).changes
    (1, 1)
    >>> Arrivals(24, Users(20, 24), values=3).changes, Arrivals(24, Users(20, 24), ended=True, values=3).changes
    (6, 3)

    Rows may have an entry for each value of something: an identifier then counts once in each. `entries`: in how many
    of them what differs of one identifier lies at most, of a user that is all events of one window of the cap.

    >>> Arrivals(24, Users(20, 24), entries=3).changes, Arrivals(None, Users(20, 24), entries=3).changes
    (3, 6)
    """

    window: int | None = None
    users: Users | None = None
    ended: bool = False
    values: int | None = None
    entries: int = 1

    def __post_init__(self) -> None:
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise InvalidCost("a window must be a whole number of at least 1")
        if self.ended and self.window is None:
            raise InvalidCost("a window that never ends releases no value at its end")
        if self.values is not None and (
            self.users is None or type(self.values) is not int or self.values < 1
        ):
            raise InvalidCost(
                "the number of values of a user's events must be a whole number of at least 1, and "
                "users must be protected"
            )
        if type(self.entries) is not int or self.entries < 1:
            raise InvalidCost(
                "the number of entries that differ must be a whole number of at least 1"
            )

    @property
    def changes(self) -> int:
        """The most units by which the rows of neighbours differ over all ticks, or the numbers of whole windows."""
        one_way = self.ended or self.window == 1 or self._all_at_once
        pairs = self.entries
        if self.users is not None:
            pairs = self._pairs(self.users, (self.values or 1) * self.entries)
        return pairs if one_way else 2 * pairs

    def require_steps(self, width: int, neighbors: Neighbors) -> None:
        """Raise NotDerivable where one step of `neighbors` may change several entries of rows of shape (width,)."""
        if width > 1 and neighbors is not Neighbors.ADD_REMOVE:
            raise NotDerivable(
                "`neighbors: replace` changes the first ticks of two users at once. With several "
                "entries, the guarantee is proven only for one event that is added or removed: "
                "declare `neighbors: add_remove`"
            )

    @property
    def _all_at_once(self) -> bool:
        """Whether identifiers are the users, of whom all events of a counted window come or go together."""
        if self.users is None or self.values is not None:
            return False
        theirs = self.users.window
        return theirs is None or (self.window is not None and theirs % self.window == 0)

    def _pairs(self, users: Users, values: int) -> int:
        """Return how many units a user's events of one window of the cap make at most: of each pair of identifier and
        entry, of which they have up to `values`, one in each counted window.
        """
        if self.window is None:
            return min(users.cap, values)
        if users.window is None:
            return users.cap  # at most one pair for each event, in any windows
        if self.window % users.window == 0:
            return min(users.cap, values)
        whole = users.window % self.window == 0
        windows = users.window // self.window if whole else (users.window - 2) // self.window + 2
        return min(users.cap, values * windows)

    def __str__(self) -> str:
        """Return the description in words: `first ticks of identifiers in windows of 24 ticks`."""
        what = "identifiers" if self.users is None else "users"
        if self.values is not None:
            what = f"identifiers, at most {self.values} of a user"
        if self.entries > 1:
            what = f"{what}, in up to {self.entries} entries"
        if self.ended:
            return f"numbers of {what} in whole windows of {how_many(self.window or 0, 'tick')}"
        if self.window is None:
            return f"first ticks of {what}"
        return f"first ticks of {what} in windows of {how_many(self.window, 'tick')}"


MOST_EVENTS = 1 << 40  # events in one tick; no real stream has more


def counts_up_to(row: IntArray, highest: int) -> bool:
    """Say whether the entries of an int64 row are from 0 to `highest`."""
    counts = row.view(np.uint64)  # negative entries become larger than any count
    # argmax takes a third of the time of max
    return not counts.size or counts.item(counts.argmax()) <= highest


@dataclass(frozen=True, slots=True)
class RowSpace:
    """Space of int64 rows with entries from `lowest` to `highest`; any width where `width` is None."""

    width: int | None = None
    lowest: int = 0
    highest: int = MOST_EVENTS

    def holds(self, row: object) -> bool:
        if not isinstance(row, np.ndarray) or row.dtype != np.int64 or row.ndim != 1:
            return False
        if self.width not in (None, row.size):
            return False
        if not self.lowest:
            return counts_up_to(row, self.highest)
        return not row.size or bool(row.min() >= self.lowest and row.max() <= self.highest)

    def gap(self, left: Any, right: Any) -> IntArray | None:
        """Return the nonzero entries of left - right; None unless both are rows of this space and of one width."""
        if not self.holds(left):
            return None
        if left is right:
            return np.zeros(0, dtype=np.int64)
        if not self.holds(right) or left.shape != right.shape:
            return None
        difference = left - right
        gap: IntArray = difference[difference != 0]
        return gap

    def of_width(self, width: int) -> "RowSpace":
        return replace(self, width=width)


COUNTS = RowSpace()
AMOUNTS = RowSpace(None, -(1 << 60), 1 << 60)
"""Rows of sums: an event adds an integer amount, which may be negative."""


def fewest(counts: int, largest: int, ones: int) -> int:
    """Return the least number of events whose entries in a row sum to `counts`, with `largest` in one entry.

    An event sets at most `ones` different entries to 1. That many events are needed, and that many can be arranged.
    """
    return max(largest, -(-counts // ones))


class _Rows:
    """A relation that decides by the entries in which two rows of its space differ; equal rows change nothing."""

    __slots__ = ()
    first_pair_consistent: ClassVar[bool] = False  # later rows may differ
    space: RowSpace

    def accept(self, left: Any, right: Any) -> Self | None:
        gap = self.space.gap(left, right)
        if gap is None or not gap.size:
            return None if gap is None else self
        return self._differing(gap)

    def _differing(self, gap: IntArray) -> Self | None:
        """Return the relation after a pair of rows that differ in `gap`; None where it is not accepted."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class EventRows(_Rows):
    """At most `most` events differ, all within one tick-aligned window of `window` ticks (None: overall).

    An event sets at most `ones` entries of its tick's row to 1 (1: one-hot rows). `fewest` gives two numbers of
    events: for the entries that are larger on the left, and for those that are larger on the right. Under
    `add_remove` a pair of rows differs by the sum of the two; under `replace`, where an event's content changes
    within its tick and the zero row is a content, by the larger. Both bounds are attained. `most` = 1 is the event
    relation; `most` = k is k events of one user. A cap k per window protects (user, window): the default `windows`
    = 1 lets one window differ. A whole user under such a cap may differ in every window (`windows` None), and no
    number of events bounds that.

    `tick`, `open` (the last window that differs), `spent` (events in it) and `begun` (windows that differ) are
    state.
    """

    neighbors: Neighbors
    most: int = 1
    window: int | None = None
    windows: int | None = 1
    space: RowSpace = COUNTS
    ones: int = 1
    tick: int = 0
    open: int = -1
    spent: int = 0
    begun: int = 0

    def accept(self, left: Any, right: Any) -> Self | None:
        after = _Rows.accept(self, left, right)
        return after if after is None or self.window is None else replace(after, tick=self.tick + 1)

    def _events(self, gap: IntArray) -> int:
        more, less = _events(gap, self.ones)
        return more + less if self.neighbors is Neighbors.ADD_REMOVE else max(more, less)

    def _differing(self, gap: IntArray) -> Self | None:
        events, window = self._events(gap), 0 if self.window is None else self.tick // self.window
        begun, spent = self.begun, self.spent
        if window != self.open:
            begun, spent = begun + 1, 0
        if spent + events > self.most or (self.windows is not None and begun > self.windows):
            return None
        return replace(self, open=window, spent=spent + events, begun=begun)


@dataclass(frozen=True, slots=True)
class WholeWindows:
    """Rows whose totals of whole windows of `window` ticks differ by at most `most` units, over windows and entries.

    Within a window units may come and go, and a window that is open counts what differs so far. `tick`, `spent` (units
    of windows that have ended) and `here` (by what the entries of the open one differ) are state.
    """

    first_pair_consistent: ClassVar[bool] = False
    most: int
    window: int
    space: RowSpace = COUNTS
    tick: int = 0
    spent: int = 0
    here: tuple[int, ...] = ()

    def accept(self, left: Any, right: Any) -> "WholeWindows | None":
        if self.space.gap(left, right) is None:
            return None
        spent, here = self.spent, self.here
        if self.tick % self.window == 0:
            spent, here = spent + sum(map(abs, here)), (0,) * left.size
        here = tuple(map(add, here, (left - right).tolist()))
        if spent + sum(map(abs, here)) > self.most:
            return None
        return replace(self, tick=self.tick + 1, spent=spent, here=here)


@dataclass(frozen=True, slots=True)
class MovedRows(_Rows):
    """At most `most` events are replaced, and a replacement may lie in another tick than the original.

    The left stream has `left` events that the right one lacks, and the right one `right` events that the left one
    lacks, in any ticks. The larger number explains both: each event is replaced by another or by the zero row; no
    fewer events do. An event sets at most `ones` entries of its row.
    """

    most: int = 1
    space: RowSpace = COUNTS
    ones: int = 1
    left: int = 0
    right: int = 0

    def _differing(self, gap: IntArray) -> Self | None:
        more, less = _events(gap, self.ones)
        left, right = self.left + more, self.right + less
        return replace(self, left=left, right=right) if max(left, right) <= self.most else None


@dataclass(frozen=True, slots=True)
class AmountRows(_Rows):
    """At most `most` events differ; each changes its tick's row by at most `l1` in l1 norm and `linf` in an entry.

    A pair of rows counts as the least number of events that explains the difference. That many are needed, and they
    are enough: the units can be dealt out to the events in turn, entry by entry, so that no event gets more than its
    part. `moves`: two events are a replacement that may lie in another tick; otherwise several events belong to one
    user. `spent` is state: the events so far.
    """

    l1: int
    linf: int
    most: int = 1
    space: RowSpace = AMOUNTS
    moves: bool = False
    spent: int = 0

    def _differing(self, gap: IntArray) -> Self | None:
        sizes = [abs(units) for units in gap.tolist()]
        events = max(-(-sum(sizes) // self.l1), -(-max(sizes) // self.linf))
        spent = self.spent + events
        return replace(self, spent=spent) if spent <= self.most else None


@dataclass(frozen=True, slots=True)
class HalvedRows:
    """Rows of two halves of equal width; each half differs as its own relation allows.

    All pairs of rows that differ in one event are accepted, and more: each half alone may be a half of neighbours.
    """

    first_pair_consistent: ClassVar[bool] = False
    first: Relation
    second: Relation

    def accept(self, left: Any, right: Any) -> "HalvedRows | None":
        if AMOUNTS.gap(left, right) is None or left.size % 2:
            return None
        half = left.size // 2
        first = self.first.accept(left[:half], right[:half])
        second = self.second.accept(left[half:], right[half:])
        return None if first is None or second is None else HalvedRows(first, second)


def _events(gap: IntArray, ones: int) -> tuple[int, int]:
    """Return the least numbers of events that only left and only right has, from entries of left - right."""
    more = gap[gap > 0]
    counts = int(more.sum())
    if ones == 1:
        return counts, counts - int(gap.sum())
    less = -gap[gap < 0]
    highest, lowest = (int(part.max(initial=0)) for part in (more, less))
    return fewest(counts, highest, ones), fewest(int(less.sum()), lowest, ones)


def event(neighbors: Neighbors, width: int | None = None, ones: int = 1) -> EventRows | MovedRows:
    """Return the relation of this package's guarantees: one event of at most `ones` entries differs."""
    return user(neighbors, 1, width=width, ones=ones)


def user(
    neighbors: Neighbors,
    k: int,
    window: int | None = None,
    *,
    windows: int | None = 1,
    width: int | None = None,
    ones: int = 1,
    first: int = 0,
) -> EventRows | MovedRows:
    """Return the relation in which at most k events of one user differ, overall or in a window (`EventRows`).

    A public window has `window` ticks and windows count from tick 0; the first row is that of tick `first`. An event
    sets at most `ones` entries of its row.

    Raises:
        UsageError: k, `window` or `windows` is not a positive integer; or a window is given for replacements that
            may move to any tick, and so out of it.
    """
    if neighbors is Neighbors.REPLACE_ANY_TICK:
        if window is not None or k < 1:
            raise UsageError(
                "a replacement that may move to any tick may leave its window: give a cap of at "
                "least 1 and no window"
            )
        return MovedRows(k, RowSpace(width), ones)
    if k < 1 or (window is not None and window < 1) or (windows is not None and windows < 1):
        raise UsageError("a user's cap, its window and the number of windows must be at least 1")
    return EventRows(neighbors, k, window, windows, RowSpace(width), ones, first)


@dataclass(frozen=True, slots=True)
class ShapedRows:
    """All events of one user differ, at most `per_tick` of them in one row and `per_entry` in one entry over all rows.

    `entries` is state: what differs in each entry so far.
    """

    first_pair_consistent: ClassVar[bool] = False
    events: EventRows
    per_tick: int
    per_entry: int
    entries: tuple[int, ...] = ()

    @classmethod
    def of(cls, shape: UserShape, width: int, ones: int) -> "ShapedRows":
        cap = shape.users.cap
        events = EventRows(Neighbors.ADD_REMOVE, cap, space=RowSpace(width), ones=ones)
        return cls(events, shape.per_tick, shape.per_entry, (0,) * width)

    def accept(self, left: Any, right: Any) -> "ShapedRows | None":
        after = self.events.accept(left, right)
        if after is None or after is self.events:
            return None if after is None else self
        differing = np.abs(left - right).tolist()
        entries = tuple(map(sum, zip(self.entries, differing, strict=True)))
        if after.spent - self.events.spent > self.per_tick or max(entries) > self.per_entry:
            return None
        return replace(self, events=after, entries=entries)


@dataclass(frozen=True, slots=True)
class Stream:
    """The messages of a continual mechanism: updates whose rows `rows` accepts, and identical queries.

    A query includes its public threshold, so thresholds are identical at every step.
    """

    first_pair_consistent: ClassVar[bool] = False  # a query may come before the rows that differ
    rows: Relation

    def accept(self, left: Any, right: Any) -> "Stream | None":
        match left, right:
            case Update(), Update():
                after = self.rows.accept(left.row, right.row)
                if after is None or after is self.rows:
                    return None if after is None else self
                return Stream(after)
            case Query(), Query() if same(left, right):
                return self
            case _:
                return None
