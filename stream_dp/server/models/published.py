"""Published releases in their five shapes, and the answers that hold them.

Rules: a release was written once, before it was published; the API hands on those bytes. These models say what is
in them and never write one: the answers around them are encoded by `server.api` with the bytes as they are.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictFloat, StrictInt

from stream_dp.server.models.answer import Absent, Answer, Confidence, HalfWidth, Tick, Time

_Number = StrictInt | StrictFloat


class _Release(Answer):
    v: Literal[1]
    """The version of the form of a release."""
    sequence: Annotated[int, Field(ge=0)]
    """Its number among all releases of the pipeline, over all series; grows."""
    series: str
    tick: Tick
    """The tick at whose end the value holds."""
    end: Time
    """When that tick ended, UTC."""
    version: Annotated[int | Absent, Field(ge=2)] = None
    """Which series of this name it is, if a changed file gave the name another definition; missing: the first."""


class _Confident(_Release):
    confidence: Confidence
    """The probability with which the band holds for one value at one tick."""
    not_private: Literal[True] | Absent = None
    """Present, and true, only if the test kit made the noise: then no guarantee holds."""


class _Banded(_Confident):
    band: HalfWidth
    """The half-width around each value that holds with `confidence`."""


class _Lagging(_Banded):
    ends: Literal["proven", "calibrated"] | Absent = None
    """Of values that lag behind: why their ends hold, by a proof for all data or by a search for the worst data."""


class ScalarRelease(_Lagging):
    """One number: a count, a maximum."""

    name: str | Absent = None
    """For a maximum: the key that has it, the first one of equals; missing while the value is 0, and otherwise."""
    value: _Number
    """The noisy value: a count, or a decimal on the grid of a sum; below 0 only if true values can be."""
    low: int | Absent = None
    """With `ends`: the least that the true value may be with `confidence`, nearer than the band."""
    high: int | Absent = None
    """With `ends`: the most that it may be."""


class _InOrder(Answer):
    keys: tuple[str, ...] | Absent = None
    """The keys of values in arrays, in the first release of the series alone: the `domain` in `/api/pipeline`."""


class HistogramRelease(_InOrder, _Lagging):
    """One number for each key of the series' domain."""

    values: dict[str, _Number] | tuple[_Number, ...]
    """The noisy value of each key, like the value of a scalar release; in arrays in the order of the keys."""
    lows: tuple[int, ...] | Absent = None
    """With `ends`: the least that each true value may be with `confidence`, in the order of `values`."""
    highs: tuple[int, ...] | Absent = None
    """With `ends`: the most that each may be."""


class _Quotient(Answer):
    value: _Number | None
    """The quotient of two series' values, a decimal; null if the denominator counts nothing."""
    low: _Number | None
    """The lower end; null if it is open."""
    high: _Number | None
    """The upper end; null if it is open, because the denominator may be 0."""


class _Quotients(Answer):
    values: dict[str, _Number | None] | tuple[_Number | None, ...]
    """The quotient of each key, or in the order of the keys; null if the denominator counts nothing."""
    lows: tuple[_Number | None, ...]
    """The lower ends, in the order of `values`."""
    highs: tuple[_Number | None, ...]
    """The upper ends, in the order of `values`."""


class RatioRelease(_Quotient, _Confident):
    """One quotient, with the ends of its interval in place of a half-width."""


class RatiosRelease(_InOrder, _Quotients, _Confident):
    """One quotient for each key."""


class FlagsRelease(_Banded):
    """The keys whose alert fired at this tick, or the names of the watches that did."""

    fired: tuple[str, ...]
    """Keys of the series' domain, in its order, or names of watches; empty at most ticks."""
    counts: dict[str, _Number] | Absent = None
    """The noisy count (never below 0) or sum of each that fired; missing if the series releases none."""
    counts_band: HalfWidth | Absent = None
    """The half-width around each of these counts; missing if there are none."""


class FoundRank(Answer):
    """A place in a top list, by the released values."""

    name: str
    """The key at this place; of keys with equal values, the first one in the domain comes first."""
    value: _Number
    """Its noisy value, like the value of a scalar release."""
    tied: tuple[str, ...]
    """The keys that the noise does not separate from it, the greatest first: the true order may be the reverse."""
    more: Annotated[int, Field(ge=1)] | Absent = None
    """How many more keys it is not separated from; missing if `tied` lists all."""


class RanksRelease(_Banded):
    """The greatest keys, and which of them the noise does not separate; the band holds for all values at once."""

    ranks: tuple[FoundRank, ...]
    """The greatest first."""


class WindowValue(Answer):
    """One number over a window."""

    value: _Number
    """The noisy value, never below 0."""
    band: HalfWidth
    """The half-width around it that holds with the release's `confidence`."""


class WindowValues(Answer):
    """One number for each key over a window."""

    values: dict[str, _Number] | tuple[_Number, ...]
    """The noisy value by key, or in the order of the keys; never below 0."""
    band: HalfWidth
    """The half-width around each of them that holds with the release's `confidence`."""


class WindowRatio(_Quotient):
    """One quotient over a window."""


class WindowRatios(_Quotients):
    """One quotient for each key over a window."""


class FoundQuantile(Answer):
    """A quantile of a sliding window, or of all events so far, on a public grid."""

    value: float
    """The quantile; if it lies beyond the grid, the end of the grid."""
    low: float
    """The least value that it can have, with the release's `confidence`. Former versions wrote a `bucket` so too."""
    high: float
    """The largest value that it can have."""


class ChosenBucket(Answer):
    """The bucket of a public grid that was chosen for a quantile of a window that ended."""

    value: float
    """Its middle, or the end of the grid beyond which it lies."""
    bucket: tuple[float, float]
    """Its two ends: they show how fine the grid is and nothing about the noise. The quantile may lie elsewhere."""


class WindowQuantiles(Answer):
    """Quantiles of a window: of the sliding one, of all so far, or of the one that ended last."""

    quantiles: dict[str, FoundQuantile | ChosenBucket]
    """By quantile, such as `0.5`; none before the first window has ended."""
    band: HalfWidth
    """By how many events noise may move a rank, for all quantiles at once: no bucket misses its rank by more."""


class WindowRanks(Answer):
    """The greatest keys over a window."""

    ranks: tuple[FoundRank, ...]
    """The greatest first."""
    band: HalfWidth
    """The half-width that holds for all values at once with the release's `confidence`."""


class WindowsRelease(_InOrder, _Confident):
    """What was counted in the last tick, and in each window that ends with it."""

    windows: dict[
        str, WindowValue | WindowValues | WindowRatio | WindowRatios | WindowQuantiles | WindowRanks
    ]
    """By window, in the order of the series: `tick` first, then as declared, `ever` (so far) last."""


Release: TypeAlias = (
    ScalarRelease
    | HistogramRelease
    | RatioRelease
    | RatiosRelease
    | FlagsRelease
    | RanksRelease
    | WindowsRelease
)


def _example(sequence: int, series: str, content: dict[str, object]) -> dict[str, object]:
    head = {
        "v": 1,
        "sequence": sequence,
        "series": series,
        "tick": 412,
        "end": "2013-01-18T06:00:00Z",
    }
    band = {} if {"windows", "low", "lows"} & content.keys() else {"band": 37}
    return {**head, **content, **band, "confidence": 0.95}


EXAMPLES = {
    "scalar": _example(1236, "departures", {"value": 1203}),
    "histogram": _example(1237, "by_destination", {"values": {"ATL": 641, "other": -4}}),
    "ratio": _example(1240, "share_late", {"value": 0.0817, "low": 0.0723, "high": 0.0914}),
    "ratios": _example(
        1241,
        "share_late_by_airline",
        {"values": {"AA": 0.0502, "other": None}, "lows": [0.031, 0], "highs": [0.0721, None]},
    ),
    "flags": _example(1238, "late_departures", {"fired": ["UA"]}),
    "ranks": _example(
        1240,
        "leaders",
        {
            "ranks": [
                {"name": "ATL", "value": 641, "tied": []},
                {"name": "ORD", "value": 512, "tied": ["LAX"]},
            ]
        },
    ),
    "windows": _example(
        1239,
        "departures_rate",
        {"windows": {"tick": {"value": 41, "band": 14}, "24h": {"value": 870, "band": 68}}},
    ),
}
"""A release of each shape."""


class NewestRelease(Answer):
    """A series and its newest release."""

    name: str
    latest: Release | None
    """Its newest release as published; null before the first one."""


class SeriesList(Answer):
    """The newest release of every series."""

    sequence: Annotated[int, Field(ge=-1)]
    """The newest sequence of all; -1 before the first release. `/api/stream?after=` goes on from here."""
    series: tuple[NewestRelease, ...]
    """By name."""


class SeriesReleases(Answer):
    """The releases of one series in a range of ticks."""

    series: str
    releases: tuple[Release, ...]
    """As published, by tick."""


class StreamHead(Answer):
    """The data of a stream's first event."""

    sequence: Annotated[int, Field(ge=-1)]
    """The newest sequence when the stream was opened; -1 before the first release."""
    fingerprint: str | None
    """The fingerprint of `/api/pipeline`; if it has changed, load everything again."""


class StreamGap(Answer):
    """The data of an event which says that releases after the asked position are no longer kept."""


class StreamEvent(Answer):
    """One server-sent event, its data parsed. While nothing happens, comments (`: still here`) come between events."""

    event: Literal["head", "gap", "message"]
    """`head` opens each stream, `gap` may follow it, `message` (not written on the wire) is a release."""
    id: Annotated[int, Field(ge=0)] | Absent = None
    """The release's sequence, to resume from by `Last-Event-ID`; releases only."""
    retry: Annotated[int, Field(ge=0)] | Absent = None
    """Milliseconds after which to connect again; with `head` only."""
    data: StreamHead | StreamGap | Release
    """One line of JSON: of a release the exact published bytes."""
