"""What a mechanism must have to serve a series: besides its law, a derivation, an error band and an audit's opening.

Rules: all of it is in the mechanism's own file. A band, and the law of the noise, is computed from what `public`
returns and from nothing else, so it cannot depend on private state. The check that a mechanism claims what is derived
for it is here, outside of it.
"""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.derivation import Derivation, require_exactly
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.messages import IntArray
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.exact_class import require_exact_class
from stream_dp.mechanisms.noise_contrasts import contrast_widths
from stream_dp.mechanisms.noise_law import NoiseLaw
from stream_dp.mechanisms.quotients import Widths
from stream_dp.mechanisms.row_check import checked

MOST_BYTES = 1 << 18  # of the bands that are remembered of a mechanism, with what they depend on
_ENTRY_BYTES = 150
_ONES = (Fraction(1), Fraction(1))
WIDTHS_KEPT = 256  # of a quotient, some 3 kB each

S = TypeVar("S")
WidthsAt: TypeAlias = Callable[[int], Widths]
"""The widths at a tick."""


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
        """Return the public values that the band of the answer after `updates` updates depends on.

        Without a state (None) what the number of updates alone says; None where that is not enough.
        """
        ...

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for one value, at what `public` returned."""
        ...


class ServingMechanism(Mechanism[S], Derivable, Banded, Protocol[S]):
    """A mechanism whose answers are published: one answer after each update, with a band."""

    @property
    def rows(self) -> RowLaw:
        """What one event changes in its rows."""
        ...

    def noise(self, public: Any, view: int | None = None) -> NoiseLaw | None:
        """Return the law of the noise in each value of an answer, or of its view at this place, at these public values.

        None: it depends on what the mechanism has decided, or values have no noise of one law.
        """
        ...

    def opening(self) -> tuple[int, int]:
        """Return how many other events an audit's adversary puts into columns 0 and 1 beside its one event.

        Where that event sets several entries, into each of those, and into each that it would set instead.
        Noise protects a decision least where it is nearly taken; (0, 0) where counts decide nothing.
        """
        ...


class Viewed(ServingMechanism[S], Protocol[S]):
    """A mechanism whose answers hold several views of the rows, one after the other, each with a band of its own."""

    def view_public(self, place: int, updates: int, state: S) -> Hashable:
        """Return the public values that the band of the view at `place` depends on."""
        ...

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        """Return the half-width for one value of that view, at what `view_public` returned."""
        ...


class CountRows:
    """Rows of counts. No fields: those of a mechanism are its own; without `ones`, rows are one-hot."""

    width: int
    neighbors: Neighbors
    ones: int = 1

    @property
    def rows(self) -> RowLaw:
        """What one event changes in its rows."""
        return RowLaw(self.width, self.neighbors, self.ones)

    @property
    def l1(self) -> int:
        """What one event changes in a row in all."""
        return self.rows.l1

    def checked_row(self, row: IntArray) -> IntArray:
        """Return a row of counts.

        Raises:
            RejectedMessage: a bad row.
        """
        return checked(row, self.width)


class Additive:
    """Noise of a known law is added to what is counted: the law says the band, and counts decide nothing."""

    def noise(self, public: Any, view: int | None = None) -> NoiseLaw:
        """Return the law of the noise."""
        raise NotImplementedError

    def band(self, public: Any, confidence: float) -> int:
        """Return the quantile of the noise at what `public` returned."""
        return self.noise(public).band(confidence)

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        """Return the quantile of the noise in the view at `place`."""
        return self.noise(public, place).band(confidence)

    def opening(self) -> tuple[int, int]:
        """Return (0, 0): no decision is taken by counts."""
        return 0, 0


class Deciding:
    """What is released depends on what was decided by counts."""

    def noise(self, public: Any, view: int | None = None) -> None:
        """Return nothing: the law depends on what was decided."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mechanism answers; of one with windows, the window at `place`."""

    mechanism: Any
    place: int | None = None

    def public(self, updates: int, state: Any = None) -> Any:
        """Return the public values that its noise after so many updates depends on."""
        if self.place is None:
            return self.mechanism.public(updates, state)
        return self.mechanism.view_public(self.place, updates, state)

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for one value."""
        if self.place is None:
            half: int = self.mechanism.band(public, confidence)
        else:
            half = self.mechanism.view_band(self.place, public, confidence)
        return half

    def law(self, public: Any) -> NoiseLaw:
        """Return the law of the noise at what `public` returned.

        Raises:
            NotDerivable: there is none.
        """
        law: NoiseLaw | None = self.mechanism.noise(public, self.place)
        if law is None:
            kind = type(self.mechanism).__name__
            raise NotDerivable(f"the noise of {kind} depends on what it has decided")
        return law


class Differences(Answer):
    """From which difference of two released counts on their order is told: a band of all differences at once.

    With the stated confidence every order that is told is right, among all pairs of entries, whatever the data are: an
    order is told wrongly only where the errors of its two entries differ by more than the band, and the failure is
    shared out over the pairs. Where noise is added the law of the difference of two is known; it is narrower than two
    bands. An HSS lags behind: an entry may be too high by its noise alone (`excess`), and too low by its whole band.
    What is published clipped at 0 differs by less and tells no other order.
    """

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for all differences at once; 0 where there are none."""
        width, failure = self.mechanism.width, 1 - confidence
        if width < 2:
            return 0
        law: NoiseLaw | None = self.mechanism.noise(public, self.place)
        if law is not None:
            return law.difference(failure / (width * (width - 1) // 2))
        half = failure / 2 / width  # too low and too high, each for all entries
        return int(self.mechanism.band(public, 1 - half) + self.mechanism.excess(public, half))


def all_at_once(confidence: float, number: int) -> float:
    """Return the confidence of each of `number` statements that hold all at once with `confidence` (Bonferroni).

    >>> round(all_at_once(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - confidence) / max(1, number)


class Bands:
    """The bands of what has some, remembered up to `MOST_BYTES` with what they depend on: beyond, all are forgotten."""

    def __init__(self, mechanism: Banded, confidence: float) -> None:
        self._mechanism = mechanism
        self._confidence = confidence
        self._known: dict[Hashable, int] = {}
        self._bytes = 0

    def __call__(self, tick: int, state: Any) -> int:
        """Return the half-width of the release of tick `tick`; ticks count from 0, the first update."""
        key = self._mechanism.public(tick + 1, state)
        half = self._known.get(key)
        if half is None:
            half, size = self._mechanism.band(key, self._confidence), _ENTRY_BYTES + _size(key)
            if self._bytes + size > MOST_BYTES:
                self._known.clear()
                self._bytes = 0
            self._known[key] = half
            self._bytes += size
        return half


def _size(key: Any) -> int:
    """About how many bytes a key has."""
    parts = key if isinstance(key, tuple | frozenset) else ()
    return sys.getsizeof(key) + sum(map(_size, parts))


class Contrasts:
    """The widths of the quotient of two answers with independent noise, remembered: `contrasts(tick)`.

    `farthest`: what the true quotient does not exceed in absolute value, in units of answers. `units`: what 1 in either
    answer is as a number.
    """

    def __init__(
        self,
        of: Answer,
        over: Answer,
        confidence: float,
        farthest: Fraction | None = None,
        units: tuple[Fraction, Fraction] = _ONES,
    ) -> None:
        self._answers = of, over
        self._units = units
        self._failure = 1 - confidence
        self._farthest = farthest
        self._known: dict[Hashable, Widths] = {}

    def __call__(self, tick: int) -> Widths:
        """Return the widths, as numbers; ticks count from 0, the mechanisms' first update."""
        of, over = self._answers
        key = of.public(tick + 1), over.public(tick + 1)
        if key not in self._known:
            if len(self._known) >= WIDTHS_KEPT:
                self._known.clear()
            laws = of.law(key[0]), over.law(key[1])
            widths = contrast_widths(*laws, self._failure, self._farthest)
            self._known[key] = widths if self._units == _ONES else widths.scaled(*self._units)
        return self._known[key]


def changes_of(mechanism: Any, events: int) -> int:
    """Return the units by which so many events of one user change an entry of the rows, wherever they lie, at most.

    Of rows that count identifiers at their first tick each event changes `changes`; where they count the users
    themselves, all events of one together do.
    """
    changes: int = mechanism.rows.changes
    return changes if mechanism.guarantee.users is not None else changes * events


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
