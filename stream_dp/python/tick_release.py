"""What leaves the series with short names: public values with their error bands, which never change.

Rules: everything here is public, cannot be changed and can be pickled, and is read from the bytes of a release.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from stream_dp.client.public_release import Counts, Frozen
from stream_dp.journal.release import read_exactly

V_co = TypeVar("V_co", covariant=True)
N_co = TypeVar("N_co", covariant=True)

Window: TypeAlias = int | Literal["ever"]
"""So many ticks, the last of which is the one that is released; or `ever`, all ticks so far."""


class Sums(Frozen[str, Decimal]):
    """A sum for each key, in the order of the declared keys."""

    __slots__ = ()


class ByWindow(Frozen[Window, V_co]):
    """What is released of each window, the single tick (1) first."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A place in a top list: the key that has it by the noisy counts, and its noisy count.

    `tied` are the keys that are not told apart from it, the greatest first; `more` others are not listed.
    """

    name: str
    value: int
    tied: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class TickWindow(Generic[V_co, N_co]):
    """What a release says of one window: the noisy answer over it; before so many ticks were closed, over all of them.

    `band` is the half-width that holds with the release's confidence for one value; of a top list for all at once.
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
            return tuple(Ranked(**{**rank, "tied": tuple(rank["tied"])}) for rank in part["ranks"])
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
    """The release that closes `tick`, the first of which is 0.

    `value` is the noisy answer over all ticks up to this one: a count (never below 0), one for each key, the keys that
    fired, or a top list. Where windows were asked it is the answer for this tick alone, and `windows` has that of each,
    by its number of ticks or "ever", the single tick (1) first. `band` is the half-width that holds with probability
    `confidence`, over the mechanism's noise, for one value; of a top list for all at once. `name` is, of a maximum, the
    key that has most; None while the value is 0, and elsewhere.
    """

    __slots__ = ()


class SumRelease(_Released[V_co, Decimal], Generic[V_co]):
    """The release of one tick of a sum, as a `TickRelease` is, in exact decimals on the declared grid.

    `value` is a `Decimal` or `Sums`, below 0 only where the clamp is.
    """

    __slots__ = ()

    _by_key = Sums
    _exact = Decimal
