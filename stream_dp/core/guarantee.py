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


@dataclass(frozen=True, slots=True)
class ProbabilisticDP:
    """The privacy loss exceeds `epsilon` in size with probability at most `delta` ([WRRW] Def 5, pDP).

    Stronger than (epsilon, delta)-DP; the converse costs (accounting/conversions.py).
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        """Refuse a negative epsilon and a delta outside [0, 1)."""
        ApproxDP(self.epsilon, self.delta)


@dataclass(frozen=True, slots=True)
class ZCDP:
    """rho-zero-concentrated DP: Renyi divergence at most rho * alpha at every order ([WRRW] Def 3, delta = 0)."""

    rho: Fraction

    def __post_init__(self) -> None:
        """Refuse a negative rho."""
        if self.rho < 0:
            raise ValueError(f"rho must not be negative, got {self.rho}")


@dataclass(frozen=True, slots=True)
class RenyiDP:
    """(alpha, epsilon)-Renyi DP at this one order alpha > 1 ([HSV] section 13)."""

    alpha: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Refuse an order of at most 1 and a negative epsilon."""
        if self.alpha <= 1:
            raise ValueError(f"the order alpha must be greater than 1, got {self.alpha}")
        if self.epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")


@dataclass(frozen=True, slots=True)
class GaussianDP:
    """mu-Gaussian DP: f-DP with the trade-off function of N(0, 1) against N(mu, 1) ([HSV] section 14)."""

    mu: Fraction

    def __post_init__(self) -> None:
        """Refuse a negative mu."""
        if self.mu < 0:
            raise ValueError(f"mu must not be negative, got {self.mu}")


Measure: TypeAlias = PureDP | ApproxDP
AnyMeasure: TypeAlias = Measure | ProbabilisticDP | ZCDP | RenyiDP | GaussianDP


@dataclass(frozen=True, slots=True)
class Guarantee:
    """`measure` holds for every pair of input streams that `neighbors` relates."""

    measure: Measure
    neighbors: Neighbors
