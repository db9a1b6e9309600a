"""What the mechanisms with keys have in common: one entry of the row for each declared key.

Rules: the keys are declared when it is created and public; what is none of them is refused, without repeating it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from stream_dp.errors import RejectedMessage, UsageError
from stream_dp.python.standalone.continual import Charged
from stream_dp.python.standalone.numbers import events_from
from stream_dp.python.standalone.told_counts import Counting

V = TypeVar("V")
MOST_KEYS = 10**6


class WithKeys:
    """A mechanism whose rows have an entry for each declared key."""

    __slots__ = ()

    _charged: Charged

    @property
    def keys(self) -> tuple[str, ...]:
        """The declared keys, in their order."""
        return self._charged.keys

    @property
    def most(self) -> int:
        """At how many of the keys one event counts at most."""
        return min(self._charged.mechanism.rows.ones, len(self.keys))

    def _listed(self, keys: Iterable[str]) -> list[int]:
        """The entries of one event's keys (RejectedMessage)."""
        if isinstance(keys, str):
            raise RejectedMessage("the keys of one event are a list of texts; nothing was added")
        found = list(dict.fromkeys(map(self._place, keys)))
        if len(found) > self.most:
            raise RejectedMessage(
                f"one event counts at {self.most} of the keys at most; nothing was added. Declare a larger `most`"
            )
        return found

    def _place(self, key: Any) -> int:
        place = self._charged.places.get(key) if isinstance(key, str) else None
        if place is None:
            raise RejectedMessage(
                "a key that was not declared; declare one for all others, such as 'other'. Nothing was added"
            )
        return place


class Keyed(WithKeys, Counting[V, Mapping[str, int]]):
    """A mechanism that counts events with declared keys."""

    __slots__ = ()

    def add(self, key: str, events: int = 1) -> None:
        """Add events with this key to the open tick.

        Parameters
        ----------
        key : str
            One of the declared keys.
        events : int
            How many, 0 or more. Each of them is protected on its own.

        Raises
        ------
        RejectedMessage
            Another key, no number of events, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add({self._place(key): events_from(events)})

    def add_list(self, keys: Iterable[str]) -> None:
        """Add one event that counts once at each of these keys to the open tick.

        Parameters
        ----------
        keys : iterable of str
            Declared keys, at most `most` of them; one that is named twice counts once. All of them are protected
            together, as one event.

        Raises
        ------
        RejectedMessage
            More keys, another key, or the horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._add(dict.fromkeys(self._listed(keys), 1))

    def _changes(self, events: Mapping[str, int]) -> dict[int, int]:
        if not isinstance(events, Mapping):
            raise RejectedMessage("the events of a tick are a mapping from keys to counts")
        return {self._place(key): events_from(count) for key, count in events.items()}


def declared(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys in their order.

    Raises
    ------
    UsageError
        No key, more than a million, one twice, or one that is no text.
    """
    if isinstance(keys, str):
        raise UsageError('keys: a list of texts is needed, such as ["DE", "FR", "other"]')
    found = tuple(keys)
    if not 1 <= len(found) <= MOST_KEYS:
        raise UsageError(f"keys: 1 to {MOST_KEYS} are needed, got {len(found)}")
    if not all(isinstance(key, str) for key in found):
        raise UsageError("keys: every key must be a text")
    if len(set(found)) < len(found):
        raise UsageError("keys: a key is listed twice")
    return found
