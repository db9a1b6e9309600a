"""User-level protection: the protected unit is a user, with a cap that is enforced in front of every mechanism.

Rules: a stream has all events of a user or none. The user's own events alone decide which of them count, at most
`cap` in each public window or for ever, so two streams differ in at most `cap` events, all in one window. Public
windows count from tick 0. This file knows no field, no guard and no mechanism.
"""

from dataclasses import dataclass

from stream_dp.core.wire import wire
from stream_dp.errors import InvalidCost


@wire("users", 1)
@dataclass(frozen=True, slots=True)
class Users:
    """All events of one user together: at most `cap` in one public window of `window` ticks (None: for ever).

    With a window the protected unit is (user, window): a user with events in many windows loses as much in each.

    Raises:
        InvalidCost: the cap or the window is not an integer of at least 1.
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
