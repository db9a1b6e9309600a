"""A mechanism that runs alone: ticks that are open, closed once, and released once.

Rules: `add` puts events into the open tick, `release` closes it: an update with the whole tick, then one query. The
release of a closed tick is an object that stays as it is. The state, the open tick and the last release change together
in one assignment, or not at all. Threads wait for one another; a forked process refuses.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from stream_dp.core.derivation import Derivation
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.how_many import how_many
from stream_dp.core.messages import IntArray, Query, Update
from stream_dp.core.row_relations import MOST_EVENTS
from stream_dp.errors import RejectedMessage
from stream_dp.python.standalone import blocks
from stream_dp.python.standalone.single import Single
from stream_dp.python.standalone.tick_release import Window

R = TypeVar("R")  # the release of a tick
T = TypeVar("T")  # the events of one tick, as `over` takes them


@dataclass(frozen=True, slots=True)
class Charged:
    """A mechanism that a budget has paid for; only a budget makes one.

    `horizon` is the number of ticks (None: no limit), `keys` name the entries of its rows, `windows` the views of its
    answers (none: there is one, all ticks so far); bands hold with `confidence`.
    """

    name: str
    alone: blocks.Alone
    derivation: Derivation
    confidence: float
    horizon: int | None
    keys: tuple[str, ...]
    windows: tuple[Window, ...] = ()
    places: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find keys fast."""
        places = {key: place for place, key in enumerate(self.keys)}
        object.__setattr__(self, "places", places)

    @property
    def mechanism(self) -> blocks.Mechanism:
        """The mechanism itself."""
        return self.alone.mechanism


@dataclass(frozen=True, slots=True, repr=False)
class _Now(Generic[R]):
    """Everything that changes: the mechanism's state and the open tick's row, both private, and what is public."""

    state: Any
    row: IntArray
    tick: int
    last: R | None


class Continual(Single, Generic[R, T]):
    """What all mechanisms that run alone have in common; created by a `Budget`, which has been charged.

    Its first noise is drawn here, after the charge.
    """

    __slots__ = ("_charged", "_lock", "_now")

    _most: ClassVar[int] = MOST_EVENTS
    _too_much: ClassVar[str] = "a tick holds at most 2^40 events of a kind; nothing was added"

    def __init__(self, charged: Charged) -> None:
        super().__init__()
        self._charged = charged
        self._lock = Lock()
        state = charged.mechanism.init(blocks.new_noise())
        self._now: _Now[R] = _Now(state, self._nothing(), 0, None)

    @property
    def name(self) -> str:
        """The name of its entry in the ledger."""
        return self._charged.name

    @property
    def derivation(self) -> Derivation:
        """Why it guarantees what it does: a tree of theorems; `print` shows it."""
        return self._charged.derivation

    @property
    def guarantee(self) -> Guarantee:
        """What it guarantees alone, for all its releases together."""
        return self._charged.derivation.guarantee

    @property
    def horizon(self) -> int | None:
        """The number of ticks it was made for; None where there is no limit."""
        return self._charged.horizon

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of each release, in ticks, the single tick first; none where it counts all ticks so far."""
        return self._charged.windows

    @property
    def ticks(self) -> int:
        """How many ticks have been closed, each with one release; public."""
        return self._now.tick

    @property
    def last(self) -> R | None:
        """The release of the tick closed last, the same object however often it is asked for; None before."""
        return self._now.last

    def release(self) -> R:
        """Close the open tick, also one without events, and release it.

        Each call closes a tick. When it is called must not depend on the events: call it by a clock.

        Returns
        -------
        TickRelease or SumRelease
            Value, band, confidence and tick, and of each window value and band. It never changes, and is kept in `last`
            until the next.

        Raises
        ------
        RejectedMessage
            The horizon is reached; nothing has changed.
        FailClosed
            In a forked process.
        """
        self._require_own_process()
        with self._lock:
            return self._close()

    @overload
    def over(self, ticks: Iterable[T]) -> Iterator[R]: ...
    @overload
    def over(self, ticks: AsyncIterable[T]) -> AsyncIterator[R]: ...
    def over(self, ticks: Iterable[T] | AsyncIterable[T]) -> Iterator[R] | AsyncIterator[R]:
        """Release once for each item of an iterator, plain or asynchronous; each item is what one tick adds.

        The number of items is public, as it is the number of releases.

        Parameters
        ----------
        ticks : iterable or asynchronous iterable
            One for each tick: a count (`ContinualCounter`), or a mapping from keys to counts; of sums a list of
            numbers, or a mapping from keys to lists of numbers.

        Returns
        -------
        iterator or asynchronous iterator of TickRelease or SumRelease
            Lazy: an item is taken when its release is asked for.

        Raises
        ------
        RejectedMessage
            An item is refused, or lies beyond the horizon: it changed nothing, and its tick is still open.
        """
        return self._over_later(ticks) if isinstance(ticks, AsyncIterable) else self._over(ticks)

    def _over(self, ticks: Iterable[T]) -> Iterator[R]:
        for events in ticks:
            yield self._tick(events)

    async def _over_later(self, ticks: AsyncIterable[T]) -> AsyncIterator[R]:
        async for events in ticks:
            yield self._tick(events)

    def _tick(self, events: T) -> R:
        self._require_own_process()
        changes = self._changes(events)
        with self._lock:
            self._put(changes)
            return self._close()

    def _add(self, changes: dict[int, int]) -> None:
        """Add so much to these entries of the open tick, all of it or, where something is refused, nothing."""
        self._require_own_process()
        with self._lock:
            self._put(changes)

    def _put(self, changes: dict[int, int]) -> None:
        self._require_open()
        row = self._now.row
        if any(abs(int(row[place]) + more) > self._most for place, more in changes.items()):
            raise RejectedMessage(self._too_much)
        for place, more in changes.items():
            row[place] += more

    def _close(self) -> R:
        self._require_open()
        charged, now, noise = self._charged, self._now, blocks.new_noise()
        state, _ = charged.mechanism.step(now.state, Update(now.row), noise)
        state, answer = charged.mechanism.step(state, Query(), noise)
        if answer is None:
            raise TypeError(f"the mechanism of {charged.name} did not answer a query")
        release = self._released(now.tick, answer, state)
        self._now = _Now(state, self._nothing(), now.tick + 1, release)
        return release

    def _require_open(self) -> None:
        horizon = self._charged.horizon
        if horizon is not None and self._now.tick >= horizon:
            raise RejectedMessage(
                f"{self._charged.name} was made for {how_many(horizon, 'tick')} and has released all; create another "
                "one with a longer horizon, or without one"
            )

    def _nothing(self) -> IntArray:
        return np.zeros(self._charged.mechanism.width, dtype=np.int64)

    def _changes(self, events: T) -> dict[int, int]:
        """The entries of the row that a tick's events change, and by how much (RejectedMessage)."""
        raise NotImplementedError

    def _views(self, tick: int, answer: IntArray, state: Any) -> list[tuple[IntArray, int]]:
        """Each view of an answer, with its half-width."""
        bands = self._charged.alone.bands
        parts = np.split(answer, len(bands))
        return [(part, band(tick, state)) for part, band in zip(parts, bands, strict=True)]

    def _released(self, tick: int, answer: IntArray, state: Any) -> R:
        """The release of a tick, from the answer; `state` only as far as its bands say it is public."""
        raise NotImplementedError

    def _named(self, state: Any) -> str | None:
        """Whose value it is, from the public part of the state; None where it is nobody's."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {how_many(self.ticks, 'tick')} released>"
