"""Metrics for a monitoring system in `prometheus_client`'s formats, from the public view alone.

Rules: nothing here knows an event, a count, an offset or a process. No registry is read, because a process's memory,
files and time are private. A scrape shows the public view of that moment and nothing about the scraper, the number
of scrapes, or their duration. Every value of a release is in its bytes, or counts something in them.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from msgspec import UNSET, UnsetType
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as plain_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as open_text

from stream_dp import __version__
from stream_dp.journal.commit import Release
from stream_dp.journal.release import Released, Shape, WindowPart, by_key, named, read, read_head
from stream_dp.server.broadcast import pause_after
from stream_dp.server.view import PublicView, ReleaseLog

OPEN = "application/openmetrics-text"
FORMS = (OPEN, "text/plain")
"""The content types of the text, without version."""
_Written = GaugeMetricFamily | CounterMetricFamily | InfoMetricFamily


class Described(NamedTuple):
    help: str
    labels: tuple[str, ...] = ()


class Gauges:
    """Values by family, written in the order of their descriptions; a family without a value is not written.

    A name that ends in `_total` is a counter, in `_info` a fact that is always 1, any other a gauge.

    >>> made = Gauges({"clicks": Described("How many.", ("page",))})
    >>> made.set("clicks", 3, "home")
    >>> print(made.written(accepted=OPEN).decode().strip())
    # HELP clicks How many.
    # TYPE clicks gauge
    clicks{page="home"} 3.0
    # EOF
    """

    def __init__(self, described: Mapping[str, Described]) -> None:
        self._families = {name: _family(name, family) for name, family in described.items()}

    def set(self, family: str, value: float, *labels: str) -> None:
        """Add a value to a family, with its labels in their order."""
        metric = self._families[family]
        if isinstance(metric, InfoMetricFamily):
            metric.add_metric(labels, {})
        else:
            metric.add_metric(labels, value)

    def collect(self) -> Iterator[_Written]:
        return (family for family in self._families.values() if family.samples)

    def written(self, accepted: str) -> bytes:
        """Return the text in a format that this `Accept` header allows."""
        if OPEN in accepted:
            text: bytes = open_text(self)  # type: ignore[no-untyped-call]  # the library's own types stop here
            return text
        return plain_text(self)


def content_type(accepted: str) -> str:
    """Return the content type of `written`; repeats nothing of this `Accept` header."""
    return CONTENT_TYPE_LATEST if OPEN in accepted else CONTENT_TYPE_PLAIN_0_0_4


def _family(name: str, described: Described) -> _Written:
    if name.endswith("_total"):
        return CounterMetricFamily(name, described.help, labels=described.labels)
    if name.endswith("_info"):
        return InfoMetricFamily(name.removesuffix("_info"), described.help, labels=described.labels)
    return GaugeMetricFamily(name, described.help, labels=described.labels)


MOST_READ = 1000
"""The most releases of a series read in one scrape; the next one continues."""
_LAST = 2**63 - 1
_Number = int | float | None | UnsetType


def _families(
    prefix: str, by_labels: Mapping[tuple[str, ...], Mapping[str, str]]
) -> dict[str, Described]:
    """Return the families, each with a help text, described as having these labels beside `pipeline`."""
    return {
        f"{prefix}{name}": Described(text, ("pipeline", *labels))
        for labels, texts in by_labels.items()
        for name, text in texts.items()
    }


_RELEASED = {
    ("series", "key", "window"): {
        "value": "The newest released value, with its noise.",
        "band": "Half the width around the value that holds with the confidence of the series.",
        "low": "The lower end of a value's interval, or of the bucket that a quantile lies in.",
        "high": "The upper end of a value's interval, or of the bucket that a quantile lies in.",
        "rank": "The place of a key in a top list by the released values; 1 is the greatest.",
        "tied": "How many other keys of a top list cannot be distinguished from this key.",
    },
    ("series", "window"): {
        "rank_band": "How many events the buckets of quantiles may be away from the requested ranks."
    },
    ("series", "name"): {"name_info": "The key that has the maximum."},
    ("series", "key"): {
        "fired": "1 if the key, or the watch, fired at the newest tick, else 0.",
        "fired_ticks_total": "Number of ticks at which it fired, among those published since this server was first "
        "scraped.",
    },
    ("series",): {
        "threshold_band": "How many events the count may be away from the threshold of alerts or watches.",
        "confidence": "The probability with which a band holds for one value at one tick.",
        "tick": "The number of the newest released tick.",
        "end_timestamp_seconds": "When the newest released tick ended, in seconds since 1970.",
        "not_private": "1 if the test kit made the noise, so that no guarantee holds.",
    },
}
_CONFIGURED = {
    ("fingerprint", "version"): {
        "pipeline_info": "The running pipeline: a digest of everything that affects data or guarantee, and the "
        "version of stream_dp.",
    },
    ("series", "statistic", "about", "title", "unit"): {
        "series_info": "A running series, described in words.",
    },
    (): {
        "tick_seconds": "The length of a tick in seconds.",
        "tick_delay_seconds": "How long after its end a tick is published, on a wall clock.",
        "catching_up": "1 while the engine has lost its brokers and tries again: releases come late.",
        "release_sequence": "The number of the newest release over all series.",
        "budget_odometer_epsilon": "An epsilon that bounds the privacy loss so far.",
    },
    ("kind",): {
        "budget_epsilon": "Epsilons: the total, the largest that one more series may cost (left), and, where the "
        "filter adds up epsilons, what is spent.",
        "budget_delta": "Deltas: the total, spent, left.",
    },
    ("kind", "unit"): {
        "budget_filter": "What the filter adds up, in its unit: its capacity, what is spent, the most that ever was "
        "(peak).",
    },
    ("kind", "analyst"): {
        "budget_analyst_epsilon": "Epsilons of an analyst's ledger: total, spent, left.",
    },
    ("series",): {"budget_series_epsilon": "The price of a running series."},
}
RELEASED = _families("stream_dp_release_", _RELEASED)
CONFIGURED = _families("stream_dp_", _CONFIGURED)
"""Decimals are floating-point numbers here: for display, not for calculation."""
_FAMILIES = {**RELEASED, **CONFIGURED}


_NONE: Mapping[str, Any] = MappingProxyType({})


class FiredSoFar:
    """The number of ticks at which each key of each series fired since the first scrape; immutable.

    Firings are counted because a firing between two scrapes would be missed otherwise. A new version of a series is
    counted anew. `upto` has, by series, the newest tick that was looked at, and the version of its release.
    """

    def __init__(
        self, upto: Mapping[str, tuple[int, int]] = _NONE, counts: Mapping[str, Counter[str]] = _NONE
    ) -> None:  # fmt: skip
        self._upto, self._counts = upto, counts

    def of(self, series: str) -> Mapping[str, int]:
        return self._counts.get(series, {})

    def behind(self, latest: Mapping[str, Release]) -> bool:
        """Return whether there are releases to count, given the newest release of each series."""
        return any(map(self._is_new, latest.values()))

    def unread(self, log: ReleaseLog) -> list[Release]:
        """Return the releases to count, oldest first: those of series that fire, and the newest of all others."""
        releases: list[Release] = []
        for name, newest in log.latest().items():
            if self._is_new(newest) and name in self._counts:
                places = log.places_between(name, self._upto[name][0] + 1, _LAST)
                releases += log.at(name, places[:MOST_READ])
            elif self._is_new(newest):
                releases.append(newest)
        return releases

    def counting(self, releases: Sequence[Release], kept: Container[str]) -> Self:
        """Return the counts with these releases added; forget series that are not in `kept`.

        The first release of a series that is looked at only shows whether the series fires.
        """
        upto = {name: seen for name, seen in self._upto.items() if name in kept}
        counts = {name: of for name, of in self._counts.items() if name in kept}
        for name in {release.series for release in releases} & counts.keys():
            counts[name] = Counter(counts[name])
        for release in releases:
            name, version = release.series, read_head(release.body).version
            known = upto.get(name)
            if known is None or known[1] != version:
                counts.pop(name, None)
                body = read(release.body)
                if body.shape is Shape.FLAGS:
                    counts[name] = Counter(() if known is None else body.fired or ())
            elif name in counts:
                counts[name].update(read(release.body).fired or ())
            upto[name] = release.tick, version
        return type(self)(upto, counts)

    def _is_new(self, newest: Release) -> bool:
        return newest.series not in self._upto or self._upto[newest.series][0] < newest.tick


class Shown(NamedTuple):
    """All inputs of the text, except releases and counted firings."""

    sequence: int
    pipeline: Mapping[str, Any]
    budget: Mapping[str, Any]
    catching_up: bool

    @classmethod
    def of(cls, view: PublicView) -> Self:
        return cls(view.log.last_sequence, view.pipeline(), view.budget(), view.catching_up())


class Exposition:
    """The answer of `/metrics` for one view: the same bytes until something public changes.

    One scrape at a time makes the text, on a thread, with pauses as after any other work of the server: the engine
    keeps its share of the process whatever the number of scrapers.
    """

    def __init__(self, view: PublicView) -> None:
        self._view = view
        self._fired = FiredSoFar()
        self._shown: Shown | None = None
        self._texts: dict[str, bytes] = {}
        self._making = asyncio.Lock()
        self._rested = 0.0

    async def text(self, accepted: str) -> tuple[bytes, str]:
        """Return text and content type for this `Accept` header; FailClosed if a release has an unknown form."""
        form = content_type(accepted)
        async with self._making:
            if self._shown != Shown.of(self._view) or self._fired.behind(self._view.log.latest()):
                self._texts.clear()
            if form not in self._texts:
                clock = asyncio.get_running_loop().time
                await asyncio.sleep(self._rested - clock())
                began = clock()
                await self._make(form)
                self._rested = clock() + pause_after(clock() - began)
            return self._texts[form], form

    async def _make(self, form: str) -> None:
        shown, latest = Shown.of(self._view), self._view.log.latest()
        unread = self._fired.unread(self._view.log)
        if shown != self._shown or unread:
            self._texts.clear()
        self._fired = await asyncio.to_thread(self._fired.counting, unread, latest)
        self._texts[form] = await asyncio.to_thread(_text, shown, latest, self._fired, form)
        self._shown = shown


def _text(shown: Shown, latest: Mapping[str, Release], fired: FiredSoFar, form: str) -> bytes:
    name = shown.pipeline["name"]
    gauges = Gauges(_FAMILIES)
    add_configured(gauges, shown)
    add_budget(gauges, name, shown.budget)
    releases = ReleaseGauges(gauges, name)
    for series in shown.pipeline["series"]:
        if (newest := latest.get(series["name"])) is not None:
            domain = series.get("domain", ())
            released = read(newest.body)
            if released.version == series.get("version", 1):  # not of a series that had its name
                releases.add(named(released, domain), domain, fired.of(released.series))
    return gauges.written(form)


def add_configured(gauges: Gauges, shown: Shown) -> None:
    pipeline, name, clock = shown.pipeline, shown.pipeline["name"], shown.pipeline["clock"]
    gauges.set("stream_dp_pipeline_info", 1, name, pipeline["fingerprint"], __version__)
    gauges.set("stream_dp_tick_seconds", clock["step"], name)
    if clock.get("delay") is not None:
        gauges.set("stream_dp_tick_delay_seconds", clock["delay"], name)
    gauges.set("stream_dp_catching_up", shown.catching_up, name)
    if shown.sequence > 0:
        gauges.set("stream_dp_release_sequence", shown.sequence, name)
    for series in pipeline["series"]:
        words = [str(series.get(key, "")) for key in ("statistic", "about", "title", "unit")]
        gauges.set("stream_dp_series_info", 1, name, series["name"], *words)


def add_budget(gauges: Gauges, name: str, budget: Mapping[str, Any]) -> None:
    """Add spent and remaining amounts from the content of `/api/budget`."""

    def add(family: str, amount: str, *labels: str) -> None:
        gauges.set(f"stream_dp_budget_{family}", float(amount), name, *labels)

    unit, epsilon = budget["unit"], budget["epsilon"]
    for kind, amount in epsilon.items():
        if kind != "spent" or unit == "epsilon":
            add("epsilon", amount, kind)
    for kind, amount in budget["delta"].items():
        add("delta", amount, kind)
    for kind in ("capacity", "spent", "peak"):
        add("filter", epsilon["spent"] if kind == "spent" else budget[kind], kind, unit)
    bound = budget.get("odometer", {}).get("bound")
    if bound is not None:
        add("odometer_epsilon", bound)
    for analyst in budget["analysts"]:
        for kind, amount in analyst["epsilon"].items():
            add("analyst_epsilon", amount, kind, analyst["name"])
    for series in budget["series"]:
        add("series_epsilon", series["epsilon"], series["name"])


class ReleaseGauges:
    """Fills the metric families of one pipeline's releases; a halted series has no lines.

    A missing number (an open end, a share of nothing) has no line. If a release has no keys or no windows, the label
    is empty, which equals no label.
    """

    def __init__(self, gauges: Gauges, pipeline: str) -> None:
        self._gauges = gauges
        self._pipeline = pipeline

    def add(self, release: Released, domain: Iterable[str], fired: Mapping[str, int]) -> None:
        """Add the numbers of a release; `fired` is the number of ticks at which each key or watch fired."""
        series = release.series
        self._tell("tick", release.tick, series)
        self._tell("end_timestamp_seconds", release.end_ms / 1000, series)
        self._tell("confidence", release.confidence, series)
        if release.not_private:
            self._tell("not_private", 1, series)
        if release.name is not UNSET:
            self._tell("name_info", 1, series, release.name)
        if release.shape is Shape.FLAGS:
            self._add_flags(release, domain, fired)
            return
        parts = {"": release} if release.windows is UNSET else release.windows
        for window, part in parts.items():
            self._add_part(series, window, part)

    def _add_part(self, series: str, window: str, part: WindowPart | Released) -> None:
        if part.value is not UNSET:
            self._add_number((series, "", window), part.value, part.band, part.low, part.high)
        if part.values:
            ends = zip(part.lows or repeat(None), part.highs or repeat(None), strict=False)
            for (key, value), (low, high) in zip(by_key(part).items(), ends, strict=False):
                self._add_number((series, key, window), value, part.band, low, high)
        for place, rank in enumerate(part.ranks or (), start=1):
            labels = (series, rank.name, window)
            self._add_number(labels, rank.value, part.band)
            self._tell("rank", place, *labels)
            self._tell("tied", len(rank.tied) + rank.more, *labels)
        if isinstance(part, WindowPart) and part.quantiles is not UNSET:
            self._tell("rank_band", part.band, series, window)
            for key, at in part.quantiles.items():
                self._add_number((series, key, window), at.value, None, at.low, at.high)

    def _add_number(
        self,
        labels: tuple[str, ...],
        value: _Number,
        band: _Number,
        low: _Number = None,
        high: _Number = None,
    ) -> None:
        self._tell("value", value, *labels)
        self._tell("band", band, *labels)
        self._tell("low", low, *labels)
        self._tell("high", high, *labels)

    def _add_flags(
        self, release: Released, domain: Iterable[str], fired: Mapping[str, int]
    ) -> None:
        series, now = release.series, dict.fromkeys(release.fired or ())
        self._tell("threshold_band", release.band, series)
        for key in dict.fromkeys((*domain, *fired, *now)):
            self._tell("fired", key in now, series, key)
            self._tell("fired_ticks_total", fired.get(key, 0), series, key)
        for key, count in (release.counts or {}).items():
            self._add_number((series, key, ""), count, release.counts_band)

    def _tell(self, family: str, value: _Number, series: str, *labels: str) -> None:
        if value is not None and value is not UNSET:
            self._gauges.set(f"stream_dp_release_{family}", value, self._pipeline, series, *labels)
