"""What a release says, as metrics: each number by pipeline, series, key and window, with its band or its ends.

Rules: every value stands in the bytes of a release, or counts what stands there. A number that is not there (an open
end, a share of nothing) has no line. Where a release has no keys, or no windows, the label is empty, which is as good
as none.
"""

from collections.abc import Iterable, Mapping
from itertools import repeat

from msgspec import UNSET, UnsetType

from stream_dp.journal.release import Released, Shape, WindowPart
from stream_dp.server.metrics.gauges import Described, Gauges

_SERIES = ("pipeline", "series")
_KEY = (*_SERIES, "key")
_WINDOW = (*_SERIES, "window")
_EACH = (*_KEY, "window")

RELEASED = {
    "stream_dp_release_value": Described("The newest released value, with its noise.", _EACH),
    "stream_dp_release_band": Described(
        "Half the width around the value that holds with the confidence of the series.", _EACH
    ),
    "stream_dp_release_low": Described(
        "The lower end of a quotient's interval, or of the bucket that a quantile lies in.", _EACH
    ),
    "stream_dp_release_high": Described(
        "The upper end of a quotient's interval, or of the bucket that a quantile lies in.", _EACH
    ),
    "stream_dp_release_rank_band": Described(
        "By how many events the buckets of quantiles may miss the ranks that were asked.", _WINDOW
    ),
    "stream_dp_release_rank": Described(
        "The place of a key in a top list by the released values; 1 is the greatest.", _EACH
    ),
    "stream_dp_release_tied": Described(
        "How many other keys are not told apart from this one of a top list.", _EACH
    ),
    "stream_dp_release_name_info": Described("Whose the maximum is.", (*_SERIES, "name")),
    "stream_dp_release_fired": Described(
        "Whether the key, or the watch, fired at the newest tick: 1 or 0.", _KEY
    ),
    "stream_dp_release_fired_ticks_total": Described(
        "At how many ticks it fired, of those published since this server was first scraped.", _KEY
    ),
    "stream_dp_release_threshold_band": Described(
        "By how many events the threshold of alerts or watches may be missed.", _SERIES
    ),
    "stream_dp_release_confidence": Described(
        "The probability with which a band holds for one value at one tick.", _SERIES
    ),
    "stream_dp_release_tick": Described("The number of the newest released tick.", _SERIES),
    "stream_dp_release_end_timestamp_seconds": Described(
        "When the newest released tick ended, in seconds since 1970.", _SERIES
    ),
    "stream_dp_release_not_private": Described(
        "1 where the test kit made the noise: no guarantee holds.", _SERIES
    ),
}
"""Every family of releases."""

_Number = int | float | None | UnsetType


class ReleaseGauges:
    """Fills the families of releases, of one pipeline."""

    def __init__(self, gauges: Gauges, pipeline: str) -> None:
        self._gauges = gauges
        self._pipeline = pipeline

    def add(self, release: Released, domain: Iterable[str], fired: Mapping[str, int]) -> None:
        """Add what a release says.

        Where keys of a `domain` fire, or watches, `fired` are the ticks at which each of them did.
        """
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
        if release.windows is UNSET:
            self._add_part(series, "", release)
            return
        for window, part in release.windows.items():
            self._add_part(series, window, part)

    def _add_part(self, series: str, window: str, part: WindowPart | Released) -> None:
        """Add the numbers of a window, or of a release that has none."""
        if part.value is not UNSET:
            self._add_number((series, "", window), part.value, part.band, part.low, part.high)
        if part.values:
            ends = zip(part.lows or repeat(None), part.highs or repeat(None), strict=False)
            for (key, value), (low, high) in zip(part.values.items(), ends, strict=False):
                self._add_number((series, key, window), value, part.band, low, high)
        for place, rank in enumerate(part.ranks or (), start=1):
            labels = (series, rank.name, window)
            self._add_number(labels, rank.value, part.band)
            self._tell("rank", place, *labels)
            self._tell("tied", len(rank.tied) + rank.more, *labels)
        if isinstance(part, WindowPart) and part.quantiles is not UNSET:
            self._tell("rank_band", part.band, series, window)
            for key, found in part.quantiles.items():
                self._add_number((series, key, window), found.value, None, found.low, found.high)

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
        """Add a value where there is one."""
        if value is not None and value is not UNSET:
            self._gauges.set(f"stream_dp_release_{family}", value, self._pipeline, series, *labels)
