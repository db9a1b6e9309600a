"""How often each key fired since this server was first scraped: what lies between two scrapes would else be missed.

Rules: it counts ticks of published releases, each once, and never goes down. What one scrape reads is bounded; the
rest waits for the next one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from stream_dp.runtime.commit import Release
from stream_dp.runtime.release import Shape, read
from stream_dp.serve.view import ReleaseLog

MOST_READ = 1000
"""Releases of a series, at a scrape."""
_LAST = 2**63 - 1


class FiredSoFar:
    """The ticks at which each key of each series fired. It never changes: counting on makes another one."""

    def __init__(
        self,
        upto: Mapping[str, int] | None = None,
        counts: Mapping[str, Counter[str]] | None = None,
    ) -> None:
        """Begin: nothing has fired."""
        self._upto = upto or {}
        self._counts = counts or {}

    def of(self, series: str) -> Mapping[str, int]:
        """Return at how many ticks each key of a series fired."""
        return self._counts.get(series, {})

    def unread(self, log: ReleaseLog) -> list[Release]:
        """Return the releases to count on with, oldest first: those of series that fire, and the newest of new ones."""
        found: list[Release] = []
        for name, newest in log.latest().items():
            if name not in self._upto:
                found.append(newest)
            elif name in self._counts:
                found += log.series_between(name, self._upto[name] + 1, _LAST)[:MOST_READ]
        return found

    def counting(self, releases: Iterable[Release]) -> Self:
        """Return the counts with these releases; the first of a series says only whether it fires."""
        upto, counts = dict(self._upto), {name: Counter(of) for name, of in self._counts.items()}
        for release in releases:
            body = read(release.body)
            if release.series in upto:
                counts[release.series].update(body.fired or ())
            elif body.shape is Shape.FLAGS:
                counts[release.series] = Counter()
            upto[release.series] = release.tick
        return type(self)(upto, counts)
