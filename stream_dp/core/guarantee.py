"""What is promised: a privacy measure with exact parameters, against a neighbour relation.

Rules: parameters are exact (`Fraction`), never floats. The measure is a closed, growing family: the meaning
of an existing class never changes, a new measure is a new class. This file knows no mechanism and no rule.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from stream_dp.core.neighbors import Neighbors


@dataclass(frozen=True, slots=True)
class PureDP:
    """epsilon-differential privacy against adaptive adversaries ([HSV] Def 3.8 with delta = 0)."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        """Refuse a negative epsilon."""
        if self.epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")

    @property
    def delta(self) -> Fraction:
        """Always 0."""
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy against adaptive adversaries ([HSV] Def 3.8)."""

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        """Refuse a negative epsilon and a delta outside [0, 1)."""
        if self.epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta}")


Measure: TypeAlias = PureDP | ApproxDP


@dataclass(frozen=True, slots=True)
class Guarantee:
    """`measure` holds for every pair of input streams that `neighbors` relates."""

    measure: Measure
    neighbors: Neighbors
