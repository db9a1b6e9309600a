"""Rows that count identifiers, each at its first tick in a public window: how much of them a neighbour changes.

One more event may move its identifier's first tick: one unit comes at one tick, and one goes at a later tick. Where
the identifier is the protected user, all of that user's events come or go together. If all events of the user in
the window may differ, one unit comes. If the window also holds events of the user that both streams have, one unit
comes and one may go. Windows count from tick 0, as the windows of a user's cap do. Rules: these numbers follow from
windows and caps and are never typed in. This file knows no field, no hash and no mechanism.
"""

from dataclasses import dataclass

from stream_dp.core.how_many import how_many
from stream_dp.core.users import Users
from stream_dp.core.wire import wire
from stream_dp.errors import InvalidCost


@wire("arrivals", 1)
@dataclass(frozen=True, slots=True)
class Arrivals:
    """First ticks in windows of `window` ticks; None means one window for ever.

    `users`: the protected users, where each user is one identifier. None: identifiers may be anything, and
    neighbours differ in one event, which keeps its tick.

    >>> Arrivals().changes, Arrivals(1).changes, Arrivals(None, Users(20)).changes, Arrivals(24, Users(20, 24)).changes
    (2, 1, 1, 1)

    Raises:
        InvalidCost: the window is not an integer of at least 1.
    """

    window: int | None = None
    users: Users | None = None

    def __post_init__(self) -> None:
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise InvalidCost("a window must be a whole number of at least 1")

    @property
    def changes(self) -> int:
        """The most units by which the rows of neighbours differ, over all ticks."""
        if self.users is None:
            return 1 if self.window == 1 else 2
        cap, theirs, counted = self.users.cap, self.users.window, self.window
        if theirs is None:
            return 1 if counted is None else cap
        if counted is None or (counted > theirs and counted % theirs == 0):
            return 2
        if theirs % counted == 0:
            return min(cap, theirs // counted)
        return 2 * min(cap, (theirs - 2) // counted + 2)

    def __str__(self) -> str:
        """Return the description in words: `first ticks of identifiers in windows of 24 ticks`."""
        what = "identifiers" if self.users is None else "users"
        if self.window is None:
            return f"first ticks of {what}"
        return f"first ticks of {what} in windows of {how_many(self.window, 'tick')}"
