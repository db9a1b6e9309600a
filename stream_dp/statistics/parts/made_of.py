"""What series without mechanisms are made of: released series, and the laws of their noises.

Rules: a band and a law here are public functions of the tick alone, so that who knows the pipeline file and the
releases can make the same. Two series have two mechanisms, and each draws noise of its own: whatever the records are,
their noises are independent. This file knows no statistic.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from stream_dp.engine.made_series import MadeSeries
from stream_dp.errors import UsageError
from stream_dp.mechanisms.serving import Answer, Bands


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
    _known: dict[str, Bands] = field(default_factory=dict)

    def require_by_tick(self, maker: str) -> None:
        """Do nothing where the band at a tick follows from the file.

        Raises:
            UsageError: it depends on what the mechanism has decided.
        """
        answer = self.answer(self.windows[0] if self.windows else "")
        if self.mechanism.noise(answer.public(1), answer.place) is None:
            raise UsageError(
                f"series {maker}: the band of {self.name} depends on what its mechanism "
                f"({type(self.mechanism).__name__}) has decided so far, and not on the tick alone: give {self.name} "
                "another method, such as tree, or windows"
            )

    def answer(self, window: str) -> Answer:
        """Return what its mechanism answers of the window of this name ("" where the series has none), in units."""
        return Answer(self.mechanism, self.windows.index(window) if window else None)

    def band(self, tick: int, window: str) -> Fraction:
        """Return the half-width, as a number, that holds with the pipeline's confidence."""
        if window not in self._known:
            self._known[window] = Bands(self.answer(window), float(self.confidence))
        return self._known[window](tick, None) * self.unit


@dataclass(frozen=True, slots=True)
class MadeOf:
    """A series made of others' releases: what the engine makes them by, of what they tell, and why they are free."""

    series: MadeSeries
    why: str
