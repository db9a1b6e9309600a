"""A release as a program sees it: what its bytes say, by name.

Rules: made from published bytes alone; what is not in them is not here. This file opens nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from stream_dp.app.standalone.tick_release import Counts
from stream_dp.runtime.release import Quantile, Rank, Released, Shape, WindowPart, read


@dataclass(frozen=True, slots=True)
class PublicWindow:
    """What a release says of one window.

    Parameters
    ----------
    value : int, float or Counts
        One value, or one for each key; of ranks one for each name; 0 where the release tells quantiles.
    band : int or float
        The half-width that holds with the release's `confidence` for one value; of quantiles, in ranks.
    quantiles : mapping of str to Quantile
        Quantiles of the window, by their share (`"0.5"`), each with `value`, `low` and `high`.
    ranks : tuple of Rank
        A top list, the greatest first: `name`, `value`, and `tied`, the names that are not told apart from it.
    """

    value: int | float | Counts
    band: int | float
    quantiles: Mapping[str, Quantile] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()

    @classmethod
    def of(cls, part: WindowPart) -> "PublicWindow":
        """Return what a part of a release says."""
        if part.ranks is not UNSET:
            return cls(_ranked(part.ranks), part.band, ranks=part.ranks)
        if part.values is UNSET:
            return cls(part.value or 0, part.band, part.quantiles or {})
        return cls(_counts(part.values), part.band)


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
        windows that of the single tick.
    band : int or float
        The half-width that holds with `confidence` for one value.
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
    """

    sequence: int
    series: str
    tick: int
    end: str
    value: int | float | Counts | tuple[str, ...]
    band: int | float
    confidence: float
    body: bytes = field(repr=False)
    counts: Counts | None = None
    windows: Mapping[str, PublicWindow] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()

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
        said = read(body)
        windows = {name: PublicWindow.of(part) for name, part in (said.windows or {}).items()}
        band, value = said.band or 0, _value(said)
        if windows:
            first = next(iter(windows.values()))
            band, value = first.band, first.value
        return cls(
            said.sequence,
            said.series,
            said.tick,
            said.end,
            value,
            band,
            said.confidence,
            body,
            _counts(said.counts) if said.counts else None,
            windows,
            said.ranks or (),
        )


def _value(said: Released) -> int | float | Counts | tuple[str, ...]:
    """What a release without windows shows."""
    if said.shape is Shape.HISTOGRAM:
        return _counts(said.values or {})
    if said.ranks is not UNSET:
        return _ranked(said.ranks)
    return said.fired or () if said.shape is Shape.FLAGS else said.value or 0


def _ranked(ranks: tuple[Rank, ...]) -> Counts:
    """The value of each name that has a rank, the greatest first."""
    return _counts({rank.name: rank.value for rank in ranks})


def _counts(found: Mapping[str, Any]) -> Counts:
    return Counts(tuple(found), tuple(found.values()))
