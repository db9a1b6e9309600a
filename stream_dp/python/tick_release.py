"""What leaves the series with short names: public values with their error bands, which never change.

Rules: everything here is public, cannot be changed and can be pickled, and is read from the bytes of a release.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from stream_dp.journal.release import read_exactly

V_co = TypeVar("V_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)
K = TypeVar("K")

Window: TypeAlias = int | Literal["ever"]
"""So many ticks, the last of which is the one that is released; or `ever`, all ticks so far."""


class _Frozen(Mapping[K, V_co]):
    """A mapping in a given order that cannot be changed."""

    __slots__ = ("_values",)

    def __init__(self, keys: tuple[K, ...], values: tuple[V_co, ...]) -> None:
        self._values = dict(zip(keys, values, strict=True))

    def __getitem__(self, key: K) -> V_co:
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"


class Counts(_Frozen[str, int]):
    """A count for each key, in the order of the declared keys.

    >>> counts = Counts(("DE", "FR"), (3, 1))
    >>> counts["DE"], dict(counts)
    (3, {'DE': 3, 'FR': 1})
    """

    __slots__ = ()


class Sums(_Frozen[str, Decimal]):
    """A sum for each key, in the order of the declared keys."""

    __slots__ = ()


class ByWindow(_Frozen[Window, V_co]):
    """What is released of each window, the single tick (1) first."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in a top list.

    Parameters
    ----------
    name : str
        The key that has it, by the noisy counts.
    value : int
        Its noisy count.
    tied : tuple of str
        The keys that are not told apart from it, the greatest first.
    more : int
        How many more there are of them that are not listed.
    """

    name: str
    value: int
    tied: tuple[str, ...] = ()
    more: int = 0

    @classmethod
    def of(cls, rank: Mapping[str, Any]) -> "Ranked":
        """Return a rank as the bytes of a release have it."""
        return cls(rank["name"], rank["value"], tuple(rank["tied"]), rank.get("more", 0))


@dataclass(frozen=True, slots=True)
class TickWindow(Generic[V_co, N_co]):
    """What a release says of one window.

    Parameters
    ----------
    value : int, Decimal, Counts, Sums or tuple of Ranked
        The noisy answer over the window; before so many ticks were closed, over all of them.
    band : int or Decimal
        The half-width that holds with the release's confidence for one value; of a top list for all at once.
    """

    value: V_co
    band: N_co


@dataclass(frozen=True, slots=True, repr=False)
class _Released(Generic[V_co, N_co]):
    _by_key: ClassVar[type[Any]] = Counts
    _exact: ClassVar[type[Any]] = int

    tick: int
    value: V_co
    band: N_co
    confidence: float
    windows: Mapping[Window, TickWindow[V_co, N_co]] = field(
        default_factory=lambda: ByWindow((), ()), hash=False
    )
    name: str | None = None

    @classmethod
    def of(cls, body: bytes, windows: tuple[Window, ...] = ()) -> Self:
        """Return what the bytes of a release say; `windows` names those of its windows that are shown, in order."""
        said = read_exactly(body)
        parts = list(said["windows"].values()) if "windows" in said else [said]
        told: list[Any] = [TickWindow(cls._value(part), cls._exact(part["band"])) for part in parts]
        shown = ByWindow(windows, tuple(told[: len(windows)]))
        first, sure = told[0], float(said["confidence"])
        return cls(said["tick"], first.value, first.band, sure, shown, said.get("name"))

    @classmethod
    def _value(cls, part: Mapping[str, Any]) -> Any:
        """What a part of a release shows."""
        if "ranks" in part:
            return tuple(Ranked.of(rank) for rank in part["ranks"])
        if "fired" in part:
            return tuple(part["fired"])
        if "values" in part:
            values = map(cls._exact, part["values"].values())
            return cls._by_key(tuple(part["values"]), tuple(values))
        return cls._exact(part["value"])

    def __repr__(self) -> str:
        shown: list[tuple[str, Any]] = [
            ("tick", self.tick),
            ("value", self.value),
            ("band", self.band),
            ("confidence", self.confidence),
            *([("windows", self.windows)] if self.windows else []),
            *([("name", self.name)] if self.name is not None else []),
        ]
        return f"{type(self).__name__}({', '.join(f'{name}={each!r}' for name, each in shown)})"


class TickRelease(_Released[V_co, int], Generic[V_co]):
    """The release of one tick.

    Parameters
    ----------
    tick : int
        Which tick it closes; the first is 0.
    value : int, Counts, tuple of str or tuple of Ranked
        The noisy answer over all ticks up to this one: a count (never below 0), one for each key, the keys that fired,
        or a top list. Where windows were asked, the answer for this tick alone.
    band : int
        The half-width that holds with `confidence` for one value of this release; of a top list for all at once.
    confidence : float
        The probability with which the band holds, over the mechanism's noise.
    windows : mapping of int or "ever" to TickWindow
        Each window by its number of ticks, the single tick (1) first; empty where none was asked.
    name : str, optional
        Of a maximum: the key that has most; None while the value is 0, and elsewhere.
    """

    __slots__ = ()


class SumRelease(_Released[V_co, Decimal], Generic[V_co]):
    """The release of one tick of a sum, as a `TickRelease` is, in exact decimals on the declared grid.

    `value` is a `Decimal` or `Sums`, below 0 only where the clamp is.
    """

    __slots__ = ()

    _by_key = Sums
    _exact = Decimal
