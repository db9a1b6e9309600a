"""A release as a program sees it: what its bytes say, by name.

Rules: made from published bytes alone; what is not in them is not here. This file opens nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from stream_dp.journal.release import Quantile, Rank, Released, Shape, WindowPart, read
from stream_dp.python.tick_release import Counts


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
        """Return what a part of a release says."""
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
        said = read(body)
        windows = {name: PublicWindow.of(part) for name, part in (said.windows or {}).items()}
        band, value, ends = _band(said), _value(said), _ends(said)
        if windows:
            first = next(iter(windows.values()))
            band, value, ends = first.band, first.value, (first.low, first.high)
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
            *ends,
            None if said.name is UNSET else said.name,
        )


def _value(said: Released) -> int | float | Counts | tuple[str, ...] | None:
    """What a release without windows shows."""
    return said.fired or () if said.shape is Shape.FLAGS else _number(said)


def _number(part: Released | WindowPart) -> int | float | Counts | None:
    """One value, or one for each key or name; 0 where there is neither."""
    if part.ranks is not UNSET:
        return _ranked(part.ranks)
    if part.values is not UNSET:
        return _counts(part.values)
    return 0 if part.value is UNSET else part.value


def _band(part: Released | WindowPart) -> int | float | None:
    """The half-width; None where there are ends."""
    return None if part.band is UNSET else part.band


def _ends(
    part: Released | WindowPart,
) -> tuple[int | float | Counts | None, int | float | Counts | None]:
    """The two ends of a quotient's interval, or those of each key; None where there are none."""
    if part.lows is UNSET or part.highs is UNSET:
        ends = (part.low, part.high)
        return None if ends[0] is UNSET else ends[0], None if ends[1] is UNSET else ends[1]
    keys = tuple(part.values or ())
    lows, highs = (zip(keys, each, strict=True) for each in (part.lows, part.highs))
    return _counts(dict(lows)), _counts(dict(highs))


def _ranked(ranks: tuple[Rank, ...]) -> Counts:
    """The value of each name that has a rank, the greatest first."""
    return _counts({rank.name: rank.value for rank in ranks})


def _counts(found: Mapping[str, Any]) -> Counts:
    return Counts(tuple(found), tuple(found.values()))
