"""The law of the noise in a mechanism's answers, where it follows from the number of updates alone.

Rules: a law is a function of public values; the mechanisms here are those whose noises are added to what is counted.
This file knows no statistic.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from stream_dp.errors import NotDerivable
from stream_dp.mechanisms.linear.arrival_counter import ArrivalCounter
from stream_dp.mechanisms.linear.coarse_counter import CoarseCounter
from stream_dp.mechanisms.linear.column_counter import ColumnCounter
from stream_dp.mechanisms.linear.cut_off_counter import CutOffCounter
from stream_dp.mechanisms.linear.gaussian_counter import GaussianCounter
from stream_dp.mechanisms.linear.sum_counter import SumCounter
from stream_dp.mechanisms.noise_contrasts import NOTHING, NoiseLaw, contrast_widths
from stream_dp.mechanisms.quotients import Widths
from stream_dp.mechanisms.windows.gaussian_forest import GaussianForest
from stream_dp.mechanisms.windows.laplace_forest import LaplaceForest
from stream_dp.mechanisms.windows.windows_and_ever import WithEver

KNOWN = 256  # widths kept per quotient, of some 3 kB each

WidthsAt: TypeAlias = Callable[[int], Widths]
"""The widths at a tick."""


@dataclass(frozen=True, slots=True)
class NoisyAnswer:
    """What a mechanism answers; of one with windows, the window at `place`."""

    mechanism: Any
    place: int | None = None

    def public(self, updates: int) -> Hashable:
        """Return the public values that the noise after so many updates depends on."""
        found: Hashable = (
            self.mechanism.public(updates, None)
            if self.place is None
            else self.mechanism.view_public(self.place, updates, None)
        )
        return found

    def law(self, public: Any) -> NoiseLaw:
        """Return the law of the noise at what `public` returned.

        Raises:
            NotDerivable: it depends on what the mechanism has decided.
        """
        return _law(self.mechanism, self.place, public)


class Contrasts:
    """The widths of the quotient of two answers with independent noise, remembered: `contrasts(tick)`.

    `farthest`: what the true quotient does not exceed in absolute value, in units of answers. `units`: what 1 in either
    answer is as a number.
    """

    def __init__(
        self,
        of: NoisyAnswer,
        over: NoisyAnswer,
        confidence: float,
        farthest: Fraction | None = None,
        units: tuple[Fraction, Fraction] = (Fraction(1), Fraction(1)),
    ) -> None:
        self._answers = of, over
        self._units = units
        self._failure = 1 - confidence
        self._farthest = farthest
        self._known: dict[Hashable, Widths] = {}

    def __call__(self, tick: int) -> Widths:
        """Return the widths, as numbers; ticks count from 0, the mechanisms' first update."""
        of, over = self._answers
        key = of.public(tick + 1), over.public(tick + 1)
        if key not in self._known:
            if len(self._known) >= KNOWN:
                self._known.clear()
            laws = of.law(key[0]), over.law(key[1])
            widths = contrast_widths(*laws, self._failure, self._farthest)
            self._known[key] = widths if self._units == (1, 1) else widths.scaled(*self._units)
        return self._known[key]


def _law(mechanism: Any, place: int | None, public: Any) -> NoiseLaw:
    """Of what is made of others, the law of the one that answers."""
    if isinstance(mechanism, WithEver):
        return _with_ever(mechanism, place, public)
    if isinstance(mechanism, ArrivalCounter | CutOffCounter):
        return _law(mechanism.inner, None, public)
    if isinstance(mechanism, CoarseCounter):
        return _law(mechanism.counter, None, public)
    if isinstance(mechanism, LaplaceForest):
        return NoiseLaw(tuple(mechanism.noise_terms(place or 0, public)))
    if isinstance(mechanism, GaussianForest):
        return NoiseLaw(variance=mechanism.view_variance(place or 0, public))
    return _so_far(mechanism, public) if public else NOTHING


def _with_ever(both: WithEver, place: int | None, updates: int) -> NoiseLaw:
    if place is not None and place < len(both.forest.windows):
        return _law(both.forest, place, updates)
    if updates <= both.covered:
        return _law(both.forest, both.longest, updates)
    return _law(both.ever, None, updates)


def _so_far(mechanism: Any, updates: int) -> NoiseLaw:
    if isinstance(mechanism, ColumnCounter | SumCounter):
        return NoiseLaw(tuple(mechanism.noise_terms(updates)))
    if isinstance(mechanism, GaussianCounter):
        lattice = mechanism.lattice
        return NoiseLaw((), lattice.deviation(updates) ** 2, 0.5 + lattice.drift(updates))
    raise NotDerivable(f"the noise of {type(mechanism).__name__} depends on what it has decided")
