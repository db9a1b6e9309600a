"""Which fire-once watches have fired, from releases: these watches have ended.

Rules: the state is computed from public releases alone, each taken once and in order, so it is the same after a
restart. A key of a watch fires once in the life of the watch. A name of a watch may have several lives.
"""

from collections.abc import Mapping
from itertools import chain
from typing import TypeAlias

from stream_dp.engine.registry import Registry
from stream_dp.journal.commit import Release
from stream_dp.journal.release import read
from stream_dp.statistics.parts.watch_roster import Placed, WatchRoster

_Life: TypeAlias = tuple[str, int | None]
_FEW = 100


class FiredWatches:
    """Ends of fired watches: for each key of a watch, the first tick after its firing."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[_Life, dict[str, int]]] = {}

    def take(self, release: Release, registry: Registry) -> None:
        """Take the firings of a release if its series has watches that fire once."""
        live = registry.named(release.series)
        roster = None if live is None else live.series.asking
        if not isinstance(roster, WatchRoster) or not roster.once:
            return
        for key in read(release.body).fired or ():
            for one in roster.lives(key):
                if one.saw(release.tick):
                    if release.series not in self._ends:
                        self._forget_halted(registry)
                    self._lives(release.series, roster).setdefault(_life(one), {})[key] = (
                        release.tick + 1
                    )

    @staticmethod
    def since(registry: Registry) -> int | None:
        """Return the first tick that any fire-once watch sees; None if there is no such watch."""
        return min(
            (
                live.start if one.start is None else one.start
                for live in registry.live
                if isinstance(live.series.asking, WatchRoster)
                for one in chain.from_iterable(live.series.asking.once.values())
            ),
            default=None,
        )

    def ends(self, series: str, one: Placed) -> Mapping[str, int]:
        """Return the end tick of each key of a watch that has fired, in a release or in an answer to a query."""
        return {**self._ends.get(series, {}).get(_life(one), {}), **one.asked}

    def _forget_halted(self, registry: Registry) -> None:
        for name in [name for name in self._ends if registry.named(name) is None]:
            del self._ends[name]

    def _lives(self, series: str, roster: WatchRoster) -> dict[_Life, dict[str, int]]:
        """Return the lives of a series' watches; once most are no longer on the roster, forget those."""
        lives = self._ends.setdefault(series, {})
        if len(lives) > 2 * len(roster.once) + _FEW:
            there = {_life(one) for those in roster.once.values() for one in those}
            for life in lives.keys() - there:
                del lives[life]
        return lives


def _life(one: Placed) -> _Life:
    return one.watch.name, one.start
