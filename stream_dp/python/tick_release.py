"""What leaves the series with short names: public values with their error bands, which never change.

Rules: everything here is public, cannot be changed and can be pickled, and is read from the bytes of a release.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from msgspec import UNSET

from stream_dp.journal.release import (
    Quantile,
    Rank,
    Released,
    Shape,
    WindowPart,
    read,
    read_exactly,
)

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
        release = read_exactly(body)
        parts = release["windows"].values() if "windows" in release else [release]
        answers: list[Any] = [TickWindow(cls._value(p), cls._exact(p["band"])) for p in parts]
        shown = ByWindow(windows, tuple(answers[: len(windows)]))
        first, confidence = answers[0], float(release["confidence"])
        name = release.get("name")
        return cls(release["tick"], first.value, first.band, confidence, shown, name)

    @classmethod
    def _value(cls, part: Mapping[str, Any]) -> Any:
        if "ranks" in part:
            return tuple(Ranked.of(rank) for rank in part["ranks"])
        if "fired" in part:
            return tuple(part["fired"])
        if "values" in part:
            values = map(cls._exact, part["values"].values())
            return cls._by_key(tuple(part["values"]), tuple(values))
        return cls._exact(part["value"])

    def __repr__(self) -> str:
        names = [*("tick", "value", "band", "confidence"), *(["windows"] if self.windows else [])]
        names += [] if self.name is None else ["name"]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({shown})"


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


@dataclass(frozen=True, slots=True)
class PublicWindow:
    """What a release says of one window.

    Parameters
    ----------
    value : int, float, Counts or None
        One value, or one for each key; of ranks one for each name; 0 where the release tells quantiles; None for a
        quotient that there is not.
    band : int, float or None
        The half-width that holds with the release's `confidence` for one value; of quantiles, in ranks. None for a
        quotient, which has `low` and `high`.
    quantiles : mapping of str to Quantile
        Quantiles of the window, by their share (`"0.5"`), each with `value`, `low` and `high`.
    ranks : tuple of Rank
        A top list, the greatest first: `name`, `value`, and `tied`, the names that are not told apart from it.
    low : int, float, Counts or None
        The lower end of a quotient's interval, or one for each key; None where it is open.
    high : int, float, Counts or None
        The upper end, as the lower one.
    """

    value: int | float | Counts | None
    band: int | float | None
    quantiles: Mapping[str, Quantile] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    low: int | float | Counts | None = None
    high: int | float | Counts | None = None

    @classmethod
    def of(cls, part: WindowPart) -> "PublicWindow":
        return cls(_number(part), _band(part), part.quantiles or {}, part.ranks or (), *_ends(part))


@dataclass(frozen=True, slots=True)
class PublicRelease:
    """A release of a pipeline that everyone may see.

    Parameters
    ----------
    sequence : int
        Its number among all releases of the pipeline, from 1 on.
    series : str
        The name of the series.
    tick : int
        The tick that it closes.
    end : str
        The end of that tick, ISO 8601 in UTC.
    value : int, float, Counts or tuple of str
        One value, one for each key (of a top list for each of its names), or the keys that fired; of a series with
        windows that of the single tick. None for a quotient that there is not.
    band : int, float or None
        The half-width that holds with `confidence` for one value; None for a quotient, which has `low` and `high`.
    confidence : float
        The probability with which the band holds, over the noise.
    body : bytes
        The exact bytes that were published: one JSON object.
    counts : Counts, optional
        The noisy count of each key that fired, where the series tells it.
    windows : mapping of str to PublicWindow
        Each window by its name, the single tick (`tick`) first; empty where the series has none.
    ranks : tuple of Rank
        A top list without windows, the greatest first, as in `PublicWindow`.
    low : int, float, Counts or None
        The lower end of a quotient's interval, or one for each key; None where it is open.
    high : int, float, Counts or None
        The upper end, as the lower one.
    name : str, optional
        Of a maximum: who has most; None while the value is 0, and of all other series.
    """

    sequence: int
    series: str
    tick: int
    end: str
    value: int | float | Counts | tuple[str, ...] | None
    band: int | float | None
    confidence: float
    body: bytes = field(repr=False)
    counts: Counts | None = None
    windows: Mapping[str, PublicWindow] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    low: int | float | Counts | None = None
    high: int | float | Counts | None = None
    name: str | None = None

    @classmethod
    def of(cls, body: bytes) -> "PublicRelease":
        """Return what a published body says.

        Parameters
        ----------
        body : bytes
            The bytes of one release.

        Raises
        ------
        FailClosed
            It is no release of a form that this version reads.
        """
        release = read(body)
        windows = {name: PublicWindow.of(part) for name, part in (release.windows or {}).items()}
        band, value, ends = _band(release), _value(release), _ends(release)
        if windows:
            first = next(iter(windows.values()))
            band, value, ends = first.band, first.value, (first.low, first.high)
        return cls(
            *(release.sequence, release.series, release.tick, release.end),
            *(value, band, release.confidence, body),
            _counts(release.counts) if release.counts else None,
            windows,
            release.ranks or (),
            *ends,
            None if release.name is UNSET else release.name,
        )


def _value(release: Released) -> int | float | Counts | tuple[str, ...] | None:
    return release.fired or () if release.shape is Shape.FLAGS else _number(release)


def _number(part: Released | WindowPart) -> int | float | Counts | None:
    """Return one value, or one for each key or name of a top list; 0 where there is neither."""
    if part.ranks is not UNSET:
        return _counts({rank.name: rank.value for rank in part.ranks})
    if part.values is not UNSET:
        return _counts(part.values)
    return 0 if part.value is UNSET else part.value


def _band(part: Released | WindowPart) -> int | float | None:
    return None if part.band is UNSET else part.band


def _ends(
    part: Released | WindowPart,
) -> tuple[int | float | Counts | None, int | float | Counts | None]:
    """Return the two ends of a quotient's interval, or those of each key; None where there are none."""
    if part.lows is UNSET or part.highs is UNSET:
        ends = (part.low, part.high)
        return None if ends[0] is UNSET else ends[0], None if ends[1] is UNSET else ends[1]
    keys = tuple(part.values or ())
    lows, highs = (zip(keys, ends, strict=True) for ends in (part.lows, part.highs))
    return _counts(dict(lows)), _counts(dict(highs))


def _counts(values: Mapping[str, Any]) -> Counts:
    return Counts(tuple(values), tuple(values.values()))
