"""Releases as Python programs see them: public values with their error bands, which never change.

Rules: everything here is public, cannot be changed and can be pickled, and is read from the bytes of a release.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import UNSET

from stream_dp.journal.release import (
    Quantile,
    Released,
    Shape,
    WindowPart,
    by_key,
    read_by_key,
)

V_co = TypeVar("V_co", covariant=True)
K = TypeVar("K")


class Frozen(Mapping[K, V_co]):
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


class Counts(Frozen[str, int]):
    """A count for each key, in the order of the declared keys.

    >>> counts = Counts(("DE", "FR"), (3, 1))
    >>> counts["DE"], dict(counts)
    (3, {'DE': 3, 'FR': 1})
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in a top list: its name, the value, the names that are not told apart from it, and how many more are not.

    >>> Rank("DE", 12, ("FR",))
    Rank(name='DE', value=12, tied=('FR',), more=0)
    """

    name: str
    value: int | float
    tied: tuple[str, ...] = ()
    more: int = 0

    @classmethod
    def all_of(cls, part: Released | WindowPart) -> "tuple[Rank, ...]":
        return tuple(cls(rank.name, rank.value, rank.tied, rank.more) for rank in part.ranks or ())


@dataclass(frozen=True, slots=True)
class PublicWindow:
    """What a release says of one window.

    `value`: one value, or one for each key; of ranks one for each name; 0 where the release tells quantiles. `band` is
    the half-width that holds with the release's `confidence` for one value; of quantiles, in ranks. `quantiles` stand
    by their share (`"0.5"`), each with `value`, `low` and `high`; `ranks` are a top list, the greatest first, each with
    `name`, `value`, and `tied`, the names that are not told apart from it. A quotient has `low` and `high` in place of
    a band, the ends of its interval, or of one for each key; None where an end is open, or where there is no value.
    """

    value: int | float | Counts | None
    band: int | float | None
    quantiles: Mapping[str, Quantile] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    low: int | float | Counts | None = None
    high: int | float | Counts | None = None

    @classmethod
    def of(cls, part: Released | WindowPart) -> "PublicWindow":
        quantiles = part.quantiles or {} if isinstance(part, WindowPart) else {}
        return cls(_number(part), _known(part.band), quantiles, Rank.all_of(part), *_ends(part))


@dataclass(frozen=True, slots=True)
class PublicRelease:
    """A release of a pipeline that everyone may see.

    `sequence` is its number among all releases of the pipeline, from 1 on; `series` the name of the series; `tick` the
    tick that it closes, and `end` the end of that tick, ISO 8601 in UTC. `value`, `band`, `ranks`, `low`, `high` and
    `quantiles` are as in `PublicWindow`, or `value` has the keys that fired; of a series with windows they are those of
    the first one, the single tick where there is one (but `ranks`, which is empty then). Bands hold with probability
    `confidence`, over the noise. `body` are the exact bytes that were published: one JSON object. `counts` has the
    noisy count of each key that fired, where the series tells it. `windows` has each window by its name, the single
    tick (`tick`) first. `name` is, of a maximum, who has most; None while the value is 0, and of all other series.
    `version` counts the series that had this name: from 2 on, a changed pipeline file gave the name another definition,
    and the line begins anew.
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
    quantiles: Mapping[str, Quantile] = field(default_factory=dict)
    version: int = 1

    @classmethod
    def of(cls, body: bytes, read: Callable[[bytes], Released] = read_by_key) -> "PublicRelease":
        """Return what a published body says; raise FailClosed where it is no release of a form that is read here."""
        release = read(body)
        windows = {name: PublicWindow.of(part) for name, part in (release.windows or {}).items()}
        first = next(iter(windows.values()), None) or PublicWindow.of(release)
        return cls(
            *(release.sequence, release.series, release.tick, release.end),
            release.fired or () if release.shape is Shape.FLAGS else first.value,
            *(first.band, release.confidence, body),
            _counts(release.counts) if release.counts else None,
            windows,
            Rank.all_of(release),
            *(first.low, first.high),
            _known(release.name),
            first.quantiles,
            release.version,
        )


def _number(part: Released | WindowPart) -> int | float | Counts | None:
    """Return one value, or one for each key or name of a top list; 0 where there is neither."""
    if part.ranks is not UNSET:
        return _counts({rank.name: rank.value for rank in part.ranks})
    if part.values is not UNSET:
        return _counts(by_key(part))
    return 0 if part.value is UNSET else part.value


def _ends(part: Released | WindowPart) -> tuple[Any, Any]:
    """Return the two ends of a quotient's interval, or those of each key; None where there are none."""
    if part.lows is UNSET or part.highs is UNSET:
        return _known(part.low), _known(part.high)
    keys = tuple(by_key(part))
    return Counts(keys, part.lows), Counts(keys, part.highs)  # type: ignore[arg-type]


def _known(field: Any) -> Any:
    return None if field is UNSET else field


def _counts(values: Mapping[str, Any]) -> Counts:
    return Counts(tuple(values), tuple(values.values()))
