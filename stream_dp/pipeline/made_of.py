"""What series without mechanisms are made of: released series, with bands that hold together.

Rules: a band here is a public function of the tick alone, so that who knows the pipeline file and the releases can make
the same. Of n inputs each has the band that fails with an n-th of the chance that the made series may fail with, so
they hold together by the union bound, whatever their noises have to do with each other. This file knows no statistic.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream_dp.errors import UsageError
from stream_dp.mechanisms.coarse_counter import CoarseCounter
from stream_dp.mechanisms.column_counter import UpdatesAlone
from stream_dp.mechanisms.noisy_forest import NoisyForest
from stream_dp.mechanisms.serving import Bands, ViewBands
from stream_dp.mechanisms.windows_and_ever import WithEver
from stream_dp.runtime.made_series import MadeSeries

_BY_TICK = (UpdatesAlone, CoarseCounter, NoisyForest, WithEver)


@dataclass(frozen=True, slots=True)
class Input:
    """A series of the file that another is made of: its keys and windows, and what 1 in its answers is as a number.

    `confidence` is that of the pipeline.
    """

    name: str
    keys: tuple[str, ...]
    windows: tuple[str, ...]
    mechanism: Any
    unit: Fraction
    confidence: Fraction
    _known: dict[tuple[str, int], Bands | ViewBands] = field(default_factory=dict)

    def require_by_tick(self, maker: str) -> None:
        """Do nothing where the band at a tick follows from the file.

        Raises:
            UsageError: it depends on what the mechanism has decided.
        """
        if not isinstance(self.mechanism, _BY_TICK):
            raise UsageError(
                f"series {maker}: the band of {self.name} depends on what its mechanism "
                f"({type(self.mechanism).__name__}) has decided so far, and not on the tick alone: give {self.name} "
                "another method, such as tree, or windows"
            )

    def band(self, tick: int, window: str, among: int) -> Fraction:
        """Return the half-width, as a number, with which `among` inputs hold together with the pipeline's confidence.

        `window`: its name; "" where the series has none.
        """
        key = (window, among)
        if key not in self._known:
            confidence = float(1 - (1 - self.confidence) / among)
            self._known[key] = (
                ViewBands(self.mechanism, self.windows.index(window), confidence)
                if window
                else Bands(self.mechanism, confidence)
            )
        return self._known[key](tick, None) * self.unit


@dataclass(frozen=True, slots=True)
class MadeOf:
    """A series made of others' releases: what the engine makes them by, of what they tell, and why they are free."""

    series: MadeSeries
    why: str
