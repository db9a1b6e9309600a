"""How often each key fired since this server was first scraped: what lies between two scrapes would else be missed.

Rules: it counts ticks of published releases, each once, and never goes down. What one scrape reads is bounded; the
rest waits for the next one. A scrape looks at what is new, however much is kept.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Self

from stream_dp.journal.commit import Release
from stream_dp.journal.release import Shape, read
from stream_dp.server.view import ReleaseLog

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

    def behind(self, latest: Mapping[str, Release]) -> bool:
        """Say whether there is something to count on with, where these are the newest releases of each series."""
        return any(map(self._is_new, latest.values()))

    def unread(self, log: ReleaseLog) -> list[Release]:
        """Return the releases to count on with, oldest first: those of series that fire, and the newest of new ones."""
        found: list[Release] = []
        for name, newest in log.latest().items():
            if name in self._upto and self._is_new(newest):
                found += log.at(
                    name, log.places_between(name, self._upto[name] + 1, _LAST)[:MOST_READ]
                )
            elif self._is_new(newest):
                found.append(newest)
        return found

    def counting(self, releases: Sequence[Release], kept: Container[str]) -> Self:
        """Return the counts with these releases, of series that are `kept`.

        The first release of a series says only whether it fires.
        """
        upto = {name: tick for name, tick in self._upto.items() if name in kept}
        counts = {name: of for name, of in self._counts.items() if name in kept}
        for name in {each.series for each in releases} & counts.keys():
            counts[name] = Counter(counts[name])
        for release in releases:
            body, name = read(release.body), release.series
            if name in upto:
                counts[name].update(body.fired or ())
            elif body.shape is Shape.FLAGS:
                counts[name] = Counter()
            upto[name] = release.tick
        return type(self)(upto, counts)

    def _is_new(self, newest: Release) -> bool:
        """Whether a series whose newest release this is has something to count on with."""
        name = newest.series
        return name not in self._upto or (name in self._counts and self._upto[name] < newest.tick)
