"""What a mechanism needs to serve a series: a derivation, an error band and an audit's opening.

Rules: a mechanism's own file has all of these. A band, and the law of the noise, is computed only from what
`public` returns, so it cannot depend on private state. This file checks, from outside, that a mechanism claims
exactly what is derived for it.
"""

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from stream_dp.core.derivation import Derivation, require_exactly
from stream_dp.core.guarantee import Guarantee
from stream_dp.core.mechanism import IntArray, Mechanism
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.row_law import RowLaw
from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.checks import checked, require_exact_class
from stream_dp.mechanisms.noise_law import NoiseLaw, contrast_widths
from stream_dp.mechanisms.quotients import Widths

MOST_BYTES = 1 << 18  # bytes of cached bands of a mechanism, with their keys
_ENTRY_BYTES = 150
_NESTED = (tuple, frozenset)
_ONES = (Fraction(1), Fraction(1))
WIDTHS_KEPT = 256  # cached widths of a quotient; each takes about 3 kB

S = TypeVar("S")
Word: TypeAlias = Literal["proven", "calibrated"]
"""Why a bound holds: by a proof for all data that does not depend on the noise, or by a search for the worst data."""
Sides: TypeAlias = tuple[IntArray, IntArray]
"""How far the true values may lie below the entries of an answer at most, and how far above; of its shape."""
WidthsAt: TypeAlias = Callable[[int], Widths]
"""Function from a tick to the widths at that tick."""


class Derivable(Protocol):
    """An object that claims a guarantee and can derive it."""

    @property
    def guarantee(self) -> Guarantee: ...

    def derivation(self) -> Derivation:
        """Derive the guarantee by the rules of the accounting.

        Raises:
            NotDerivable: no rule covers it, or the noise of a part is too small.
        """
        ...


class Banded(Protocol):
    """An object whose error band follows from public values alone."""

    def public(self, updates: int, state: Any) -> Hashable:
        """Return the public values that the band of the answer after `updates` updates depends on.

        Without a state (None): from the number of updates alone, or None where that is not enough.
        """
        ...

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for one value, at the values that `public` returned."""
        ...


class ServingMechanism(Mechanism[S], Derivable, Banded, Protocol[S]):
    """A mechanism whose answers are published: one answer after each update, with a band.

    Where an answer holds several views of the rows, `view_public(place, updates, state)` and `view_band(place, public,
    confidence)` are `public` and `band` of the view at index `place`.
    """

    @property
    def rows(self) -> RowLaw:
        """What one event changes in its rows."""
        ...

    def noise(self, public: Any, view: int | None = None) -> NoiseLaw | None:
        """Return the law of the noise in a value of an answer, or of its view `view`, at these public values.

        None: the law depends on decisions of the mechanism, or the values of an answer have different laws.
        """
        ...

    def opening(self) -> tuple[int, int]:
        """Return how many other events an audit's adversary puts into columns 0 and 1 beside its one event.

        Where that event sets several entries, the first number is for each of these and the second for each entry that
        the other content sets. Noise protects a decision least when the counts are just short of it.
        """
        ...


class CountRows:
    """Mixin for rows of counts, without fields of its own; a mechanism without a field `ones` has one-hot rows."""

    width: int
    neighbors: Neighbors
    ones: int = 1

    @property
    def rows(self) -> RowLaw:
        return RowLaw(self.width, self.neighbors, self.ones)

    @property
    def l1(self) -> int:
        return self.rows.l1

    def checked_row(self, row: IntArray) -> IntArray:
        return checked(row, self.width)


class Additive:
    """Mixin for mechanisms that add noise of a known law: the law gives the band, and counts decide nothing.

    Here the law follows from the number of updates, and an answer is its one view.
    """

    def public(self, updates: int, state: Any) -> Any:
        return updates

    def view_public(self, place: int, updates: int, state: Any) -> Any:
        return self.public(updates, state)

    def noise(self, public: Any, view: int | None = None) -> NoiseLaw:
        raise NotImplementedError

    def band(self, public: Any, confidence: float) -> int:
        return self.noise(public).band(confidence)

    def view_band(self, place: int, public: Any, confidence: float) -> int:
        return self.noise(public, place).band(confidence)

    def opening(self) -> tuple[int, int]:
        return 0, 0


class Deciding:
    """Mixin for mechanisms whose releases depend on decisions that counts made."""

    def noise(self, public: Any, view: int | None = None) -> None:
        """Return None: the law of the noise depends on these decisions."""


class Lags(Deciding):
    """Mixin for mechanisms that lag behind: true values may lie further above an answer than below it."""

    @property
    def words(self) -> tuple[Word, Word | None]:
        """Return why the band holds, and why the two sides do (None: it has none)."""
        raise NotImplementedError

    def sides(self, state: Any, confidence: float) -> Sides:
        """Return the sides that hold with `confidence` for one entry, from public values alone."""
        raise NotImplementedError

    def at_once(self, query: int, intervals: int) -> int:
        """Return a bound that no error of the first `query` answers, after so many closed intervals, exceeds.

        It holds with probability 1 - FAILURE for all of them together, even for data chosen by somebody who sees them.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a mechanism, or one view of it: the window at index `place`."""

    mechanism: Any
    place: int | None = None

    def public(self, updates: int, state: Any = None) -> Any:
        if self.place is None:
            return self.mechanism.public(updates, state)
        return self.mechanism.view_public(self.place, updates, state)

    def band(self, public: Any, confidence: float) -> int:
        if self.place is None:
            return int(self.mechanism.band(public, confidence))
        return int(self.mechanism.view_band(self.place, public, confidence))

    def law(self, public: Any) -> NoiseLaw:
        """Return the law of the noise at the values that `public` returned (NotDerivable: there is none)."""
        law: NoiseLaw | None = self.mechanism.noise(public, self.place)
        if law is None:
            kind = type(self.mechanism).__name__
            raise NotDerivable(f"the noise of {kind} depends on the mechanism's own decisions")
        return law


class Differences(Answer):
    """The least difference of two released counts that shows their order: a band for all differences at once.

    An order is wrong only where the errors of its two entries differ by more than the band, and the failure probability
    is divided among the pairs. Where noise is added, the law of the difference of two noises is known, and its band is
    narrower than two bands. An HSS lags behind: an entry is too high by its noise alone (`excess`), but too low by up
    to its whole band. Clipping at 0 makes differences smaller and reports no other order.
    """

    def band(self, public: Any, confidence: float) -> int:
        """Return the half-width that holds with `confidence` for all differences at once; 0 for a single entry."""
        width, failure = self.mechanism.width, 1 - confidence
        if width < 2:
            return 0
        law: NoiseLaw | None = self.mechanism.noise(public, self.place)
        if law is not None:
            return law.difference(failure / (width * (width - 1) // 2))
        half = failure / 2 / width  # too high and too low, each for all entries
        return int(self.mechanism.band(public, 1 - half) + self.mechanism.excess(public, half))


def all_at_once(confidence: float, number: int) -> float:
    """Return the confidence for each of `number` statements so that all hold with `confidence` (Bonferroni)."""
    return 1 - (1 - confidence) / max(1, number)


class Bands:
    """Error bands of a mechanism, cached up to `MOST_BYTES` by the public values that determine them."""

    _alive: ClassVar["WeakValueDictionary[tuple[Banded, float], Bands]"] = WeakValueDictionary()

    @classmethod
    def of(cls, mechanism: Banded, confidence: float) -> "Bands":
        """Return the bands of a mechanism; series with equal mechanisms share them."""
        bands = cls._alive.get((mechanism, confidence))
        if bands is None:
            bands = cls._alive[mechanism, confidence] = cls(mechanism, confidence)
        return bands

    def __init__(self, mechanism: Banded, confidence: float) -> None:
        self._mechanism = mechanism
        self._confidence = confidence
        self._known: dict[Hashable, int] = {}
        self._bytes = 0

    def __call__(self, tick: int, state: Any) -> int:
        """Return the half-width of the release of tick `tick`; ticks count from 0, which is the first update."""
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
    size = sys.getsizeof(key)
    return size + sum(map(_size, key)) if isinstance(key, _NESTED) else size


class Contrasts:
    """Widths of the quotient of two answers with independent noise, cached: `contrasts(tick)`.

    `farthest`: a bound on the absolute value of the true quotient, in units of answers. `units`: the number that 1 in
    either answer stands for.
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
        """Return the widths in numbers, not units; ticks count from 0, the first update of the mechanisms."""
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
    """Return the most units by which `events` events of one user change an entry of the rows, over all ticks.

    Where rows count the users themselves, all events of a user together change `changes` units.
    """
    changes: int = mechanism.rows.changes
    return changes if mechanism.guarantee.users is not None else changes * events


def clipped(answer: IntArray) -> IntArray:
    """Return an answer of counts as it is published: never below 0, because no true count is negative.

    Clipping is post-processing and moves a value only nearer to the true count, so bands still hold. Mechanisms answer
    unclipped values: the exact checks and `audit` look at these.
    """
    return np.maximum(answer, 0)


def derived(mechanism: Derivable, subject: str) -> Derivation:
    """Return the mechanism's derivation, named `subject`, after checking that it gives the claimed guarantee.

    Raises:
        NotDerivable: the mechanism's class has no derivation of its own (`checks`), no rule covers it, or the
            derived and the claimed guarantee differ.
    """
    require_exact_class(mechanism)
    derivation, claimed = mechanism.derivation(), mechanism.guarantee
    require_exactly(derivation, Derivation, subject)
    require_exactly(claimed, Guarantee, subject)
    if derivation.guarantee != claimed:
        raise NotDerivable(
            f"{subject}: the derived guarantee differs from what the mechanism claims"
        )
    return replace(derivation, subject=subject)
