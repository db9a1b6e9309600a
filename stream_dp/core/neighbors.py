"""Neighbour relations of events: who is protected, and what one event can change.

Rules: sensitivities are computed here from the relation and the row's shape; nobody types one in. `row_relations`
has the verification functions of these relations. This file knows no mechanism, guard, noise or time.
"""

from dataclasses import dataclass
from enum import StrEnum

from stream_dp.core.wire import wire
from stream_dp.errors import InvalidCost, NotDerivable


@wire("users", 1)
@dataclass(frozen=True, slots=True)
class Users:
    """All events of one user together: at most `cap` in one public window of `window` ticks (None: for ever).

    A stream has all events of a user or none. The user's own events alone decide which of them count; a guard in front
    of every mechanism enforces the cap. So two streams differ in at most `cap` events, all in one window. Public
    windows count from tick 0. With a window the protected unit is (user, window): a user with events in many windows
    loses as much in each. Both numbers are integers of at least 1 (else InvalidCost).
    """

    cap: int
    window: int | None = None

    def __post_init__(self) -> None:
        for name, number in (("cap", self.cap), ("window", self.window)):
            if number is not None and (type(number) is not int or number < 1):
                raise InvalidCost(f"the {name} of a user must be a whole number of at least 1")

    def __str__(self) -> str:
        """Return the unit in words: `users of at most 20 events in a window of 24 ticks`."""
        events = f"users of at most {self.cap} event{'' if self.cap == 1 else 's'}"
        if self.window is None:
            return f"{events} for ever"
        return f"{events} in a window of {self.window} tick{'' if self.window == 1 else 's'}"

    def rounded(self, first: int, last: int | None) -> tuple[int, int | None]:
        """Return the range of ticks from `first` to `last` (None: for ever), rounded outward to whole windows.

        >>> Users(2, 24).rounded(25, 48), Users(2).rounded(25, 48)
        ((24, 71), (0, None))
        """
        if self.window is None:
            return 0, None
        end = None if last is None else last - last % self.window + self.window - 1
        return first - first % self.window, end


@wire("user-shape", 1)
@dataclass(frozen=True, slots=True)
class UserShape:
    """How the events of one user that count may lie in rows: at most `per_tick` of them in one tick, and `per_entry` in
    one entry over all ticks. A guard in front of every mechanism enforces it, as it does the cap of `users`.

    All numbers are integers from 1 to that cap (else InvalidCost).
    """

    users: Users
    per_tick: int
    per_entry: int

    def __post_init__(self) -> None:
        for name, number in (("tick", self.per_tick), ("entry", self.per_entry)):
            if type(number) is not int or not 1 <= number <= self.users.cap:
                why = f"a whole number from 1 to the {self.users.cap} events that count"
                raise InvalidCost(f"the events of a user that count in one {name} must be {why}")

    def __str__(self) -> str:
        """Return the shape in words: `users of at most 20 events for ever, 1 in a tick and 20 in an entry`."""
        return f"{self.users}, {self.per_tick} in a tick and {self.per_entry} in an entry"

    def squares(self, ticks: int, entries: int = 1) -> int:
        """Return the most that a user's events add to the sum of squares of disjoint nodes of so many ticks each, where
        one event sets so many `entries` of its row: the fullest nodes, and one with the rest.

        >>> shape = UserShape(Users(5), per_tick=2, per_entry=3)
        >>> shape.squares(1), shape.squares(2), UserShape(Users(5), 2, 5).squares(2)
        (9, 13, 17)
        """
        most = min(self.per_tick * ticks, self.per_entry)
        full, rest = divmod(self.users.cap * entries, most)
        return full * most**2 + rest**2


@wire("neighbors", 1)
class Neighbors(StrEnum):
    """Event-level neighbours: the two streams differ in one event.

    `add_remove`: the event is present in one stream only. `replace`: the event's content differs, in one tick; the
    zero row (junk or filtered-out content) is an allowed content. `replace_any_tick`: the content differs, and the
    tick may differ too, for example where an event's own time is part of its content; this is one event removed and
    one added. No mechanism is made for it; the accounting derives its guarantee from `add_remove` (`groups.moved`).
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"
    REPLACE_ANY_TICK = "replace_any_tick"

    @property
    def step(self) -> "Neighbors":
        """The relation that mechanisms are made for: this relation, or the relation whose two steps give this one."""
        return Neighbors.ADD_REMOVE if self is Neighbors.REPLACE_ANY_TICK else self

    def monotone(self, width: int) -> bool:
        """Say whether all entries of the two streams' difference have one sign; sparse vectors then need less noise."""
        return self is Neighbors.ADD_REMOVE or self.l0(width) == 1

    def l0(self, width: int, ones: int = 1) -> int:
        """Return how many entries of a row of shape (width,) one event changes, if it sets at most `ones` entries.

        Under `add_remove` these are the entries it sets; under `replace` the entries of the old and of the new
        content: with `ones` = width every entry ([HSV] ~_H). `ones` = 1: one-hot rows. NotDerivable is raised where the
        event may lie in two rows.
        """
        if ones < 1:
            raise NotDerivable(
                f"an event must set at least one entry of its row, got ones = {ones}"
            )
        if self is Neighbors.REPLACE_ANY_TICK:
            raise NotDerivable(
                "a replacement that may move to another tick changes two rows. Create the mechanism "
                "for add_remove at half the epsilon, and derive the guarantee with "
                "accounting.rules.groups"
            )
        return min(width, ones if self is Neighbors.ADD_REMOVE else 2 * ones)
