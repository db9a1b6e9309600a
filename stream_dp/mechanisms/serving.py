"""What a mechanism must have to serve a series: besides its law, a derivation, an error band and an audit's opening.

Rules: all three are in the mechanism's own file. A band is computed from what `public` returns and from nothing else,
so it cannot depend on private state. The check that a mechanism claims what is derived for it is here, outside of it.
"""

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from stream_dp.core.derivation import Derivation, require_exactly
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import Relation
from stream_dp.core.row_relations import event
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import require_exact_class

MOST_BYTES = 1 << 18  # of the bands that are remembered of a mechanism, with what they depend on
_ENTRY_BYTES = 150

S = TypeVar("S")


class Derivable(Protocol):
    """What claims a guarantee and can derive it."""

    @property
    def guarantee(self) -> Guarantee:
        """The claim."""
        ...

    def derivation(self) -> Derivation:
        """Derive the guarantee by the rules of the accounting.

        Raises:
            NotDerivable: no rule covers it.
        """
        ...


class Banded(Protocol):
    """What has a band, by public values alone."""

    def public(self, updates: int, state: Any) -> Hashable:
        """Return the public values that the band of the answer after `updates` updates depends on."""
        ...

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for one value, at what `public` returned."""
        ...


class ServingMechanism(Mechanism[S], Derivable, Banded, Protocol[S]):
    """A mechanism whose answers are published: one answer after each update, with a band."""

    def opening(self) -> tuple[int, int]:
        """Return how many other events an audit's adversary puts into columns 0 and 1 beside its one event.

        Where that event sets several entries, into each of those, and into each that it would set instead.
        Noise protects a decision least where it is nearly taken; (0, 0) where counts decide nothing.
        """
        ...


def ones_of(mechanism: object) -> int:
    """Return the most entries of its row that one event may set: the mechanism's `ones`, 1 where it has none."""
    ones: int = getattr(mechanism, "ones", 1)
    return ones


class Viewed(ServingMechanism[S], Protocol[S]):
    """A mechanism whose answers hold several views of the rows, one after the other, each with a band of its own."""

    def view_public(self, place: int, updates: int, state: S) -> Hashable:
        """Return the public values that the band of the view at `place` depends on."""
        ...

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        """Return the half-width for one value of that view, at what `view_public` returned."""
        ...


class _Remembered:
    """Half-widths by what they depend on, up to `MOST_BYTES`: beyond that all are forgotten."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._bytes = 0

    def __call__(self, key: Hashable, computed: Callable[[], int]) -> int:
        """Return that of `key`, which is computed where it is not remembered."""
        found = self._known.get(key)
        if found is None:
            found, size = computed(), _ENTRY_BYTES + _size(key)
            if self._bytes + size > MOST_BYTES:
                self._known.clear()
                self._bytes = 0
            self._known[key] = found
            self._bytes += size
        return found


def _size(key: Any) -> int:
    """About how many bytes a key has."""
    parts = key if isinstance(key, tuple | frozenset) else ()
    return sys.getsizeof(key) + sum(map(_size, parts))


class ViewBands:
    """The bands of one view of a mechanism, as `Bands` remembers them."""

    def __init__(self, mechanism: Viewed[Any], place: int, confidence: float) -> None:
        self._mechanism = mechanism
        self._place = place
        self._confidence = confidence
        self._known = _Remembered()

    def __call__(self, tick: int, state: Any) -> int:
        """Return the half-width; ticks count from 0, the mechanism's first update."""
        key = self._mechanism.view_public(self._place, tick + 1, state)
        return self._known(
            key, lambda: self._mechanism.view_band(self._place, key, self._confidence)
        )


def weight_of(mechanism: object) -> int:
    """Return the most that one event adds to an entry, its sign left out: the mechanism's `weight`, 1 without one."""
    weight: int = getattr(mechanism, "weight", 1)
    return weight


def event_rows(mechanism: Any, neighbors: Neighbors, events: int = 1) -> Relation:
    """Return the relation of one event on the mechanism's rows under these neighbours, which may be another's step.

    `events`: as many of one user, of a mechanism that has a relation of its own.
    """
    own = getattr(mechanism, "event_rows", None)
    if own is not None:
        found: Relation = own(neighbors, events)
        return found
    return event(neighbors, mechanism.width, ones_of(mechanism))


def changes_of(mechanism: Any, events: int) -> int:
    """Return the units by which so many events of one user change an entry of the rows, wherever they lie, at most.

    Of rows that count identifiers at their first tick each event changes `changes`; where they count the users
    themselves, all events of one together do.
    """
    changes: int = getattr(mechanism, "changes", 1)
    return changes if mechanism.guarantee.users is not None else changes * events


class Bands:
    """The bands of one mechanism, remembered: `bands(tick, state)` is that of the release of its tick `tick`."""

    def __init__(self, mechanism: Banded, confidence: float) -> None:
        self._mechanism = mechanism
        self._confidence = confidence
        self._known = _Remembered()

    def __call__(self, tick: int, state: Any) -> int:
        """Return the half-width; ticks count from 0, the mechanism's first update."""
        key = self._mechanism.public(tick + 1, state)
        return self._known(key, lambda: self._mechanism.band(key, self._confidence))


def clipped(answer: IntArray) -> IntArray:
    """Return an answer of counts as it is published: never below 0, where no true count is.

    Post-processing: it costs nothing, and brings what it changes nearer to the true count, so bands hold as before.
    Mechanisms answer as they are, unclipped: that is what the exact checks and `audit` look at.
    """
    return np.maximum(answer, 0)


def derived(mechanism: Derivable, subject: str) -> Derivation:
    """Return the mechanism's derivation, named `subject`, once it gives what the mechanism claims.

    Raises:
        NotDerivable: it has no derivation of its own class (`exact_class`), no rule covers it, or the two guarantees
            differ.
    """
    require_exact_class(mechanism)
    found, claimed = mechanism.derivation(), mechanism.guarantee
    require_exactly(found, Derivation, subject)
    require_exactly(claimed, Guarantee, subject)
    derivation = replace(found, subject=subject)
    if derivation.guarantee != claimed:
        raise NotDerivable(
            f"{subject}: the derived guarantee differs from what the mechanism claims"
        )
    return derivation
