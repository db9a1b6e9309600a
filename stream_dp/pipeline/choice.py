"""What a statistic chooses its mechanism from, and what it chose.

Rules: a choice depends on the specification alone, before any data is touched. This file knows no statistic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.core.neighbors import Neighbors
from stream_dp.mechanisms.counter import Counter
from stream_dp.mechanisms.hybrid_counter import HybridCounter
from stream_dp.mechanisms.serving import Bands, ServingMechanism

ENDLESS = 10_000  # ticks: how far errors are predicted where there is no horizon


@dataclass(frozen=True, slots=True)
class Setting:
    """What the pipeline gives a series: rows of `width` entries, at most `horizon` ticks (None: endless)."""

    width: int
    neighbors: Neighbors
    horizon: int | None
    confidence: float

    @property
    def last(self) -> int:
        """The last tick, or the farthest for which an error is predicted."""
        return (self.horizon or ENDLESS) - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A mechanism, why this one, and the half-width to expect at a tick."""

    mechanism: ServingMechanism[Any]
    why: str
    expected: Callable[[int], int]


def steady(mechanism: ServingMechanism[Any], why: str, setting: Setting) -> Choice:
    """Choose a mechanism whose band depends on the tick alone: that band is the error to expect."""
    bands = Bands(mechanism, setting.confidence)
    return Choice(mechanism, why, lambda tick: bands(tick, None))


def tree_counter(setting: Setting, epsilon: Fraction) -> Counter | HybridCounter:
    """Return the counter for this setting: made for its horizon, or for any number of ticks.

    Without a horizon another one (`HandOverCounter`) is better up to some hundred ticks, and far worse in the end;
    it would be taken if it were the better one at every tick.
    """
    if setting.horizon is None:
        return HybridCounter(setting.width, epsilon, setting.neighbors)
    return Counter(setting.width, epsilon, setting.neighbors, setting.horizon)
