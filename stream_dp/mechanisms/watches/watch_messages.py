"""Inputs of a block of watches besides rows: its watches, and queries that compare, arm and disarm them.

Rules: all of these are public. A watch takes one place of the block's rows, or one for each of its keys, side by
side.
"""

from dataclasses import dataclass, field

import numpy as np

from stream_dp.core.messages import IntArray, Query
from stream_dp.core.wire import wire
from stream_dp.errors import UsageError

LARGEST_THRESHOLD = 10**15


@wire("watch", 1)
@dataclass(frozen=True, slots=True)
class WatchTerms:
    """Has the count in a place reached `threshold`? With `below`: does the count lie under it?

    The count is of the events since the watch began or last crossed, or of those in the last `window` rows, or of
    those in one `tick`. A `below` watch over a window is compared once the window is whole. A watch without `rearm`
    ends with its first crossing. The terms hold for each of `places` places separately.

    Raises:
        UsageError: no place, a threshold outside 1 to 10^15, or of `below` outside -10^15 to 10^15; a window of
            single ticks or of less than one row, or `below` without `tick` or window: every count begins below.
    """

    threshold: int
    places: int = 1
    tick: bool = False
    below: bool = False
    rearm: bool = True
    window: int = 0

    def __post_init__(self) -> None:
        if self.places < 1:
            raise UsageError(f"a watch takes at least one place, got {self.places}")
        if not is_threshold(self.threshold, negative=self.below):
            raise UsageError(
                f"the threshold of a watch is an integer {thresholds(negative=self.below)}"
            )
        if self.window < 0 or (self.window and self.tick):
            raise UsageError("a watch over a window takes at least one row, and not single ticks")
        if self.below and not (self.tick or self.window):
            raise UsageError(
                "a count since the last crossing begins below every threshold: watch single ticks or a window"
            )


def is_threshold(value: object, *, negative: bool = False) -> bool:
    """Say whether a watch can be compared with `value`; `negative` allows thresholds below 1 too."""
    lowest = -LARGEST_THRESHOLD if negative else 1
    return type(value) is int and lowest <= value <= LARGEST_THRESHOLD


def thresholds(*, negative: bool) -> str:
    """Return the range of valid thresholds in words: `from 1 to 10^15`."""
    return f"from {'-10^15' if negative else '1'} to 10^15"


@dataclass(frozen=True, slots=True, eq=False)
class LevelsQuery(Query):
    """Compare every place with its own level; `levels` has shape (width,)."""

    levels: IntArray = field(kw_only=True)

    def __eq__(self, other: object) -> bool:
        # the inherited comparison looks at the threshold alone
        return isinstance(other, LevelsQuery) and np.array_equal(self.levels, other.levels)

    def __hash__(self) -> int:
        return hash(self.levels.tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdQuery(Query):
    """Compare the armed watch in `place` with `threshold` once, now; a crossing counts as at the end of a tick."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmQuery(Query):
    """Begin `watch` in the free places from `place` on."""

    place: int
    watch: WatchTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class DisarmQuery(Query):
    """End the watches in the `places` places from `place` on."""

    place: int
    places: int = 1
