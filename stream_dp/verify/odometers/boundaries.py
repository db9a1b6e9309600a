"""The boundaries of an odometer ([WRRW] Thm 3): bounds on the loss martingale at intrinsic time V.

Filter (3.1): a line that touches the curve of advanced composition at a target epsilon. Mixture (3.2, after
Robbins): good over a wide range around V = gamma. Stitched (3.3): the rate of the iterated logarithm, from V = v0
on.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.conversions import bits_float
from stream_dp.accounting.directed import Interval, ln_inverse
from stream_dp.accounting.filters.budgets import budget

FACTOR, SHARE, CONSTANT = Fraction(17, 10), Fraction(72, 100), Fraction(52, 10)


@dataclass(frozen=True, slots=True)
class FilterBoundary:
    """sqrt(2 y L)/2 + sqrt(2 L)/(2 sqrt(y)) V, L = ln(1/delta'): valid for every touching point y > 0."""

    delta: Fraction
    touching: Fraction

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            InvalidCost: delta' is not between 0 and 1, or the touching point is not positive.
        """
        budget("the delta'", self.delta, below=Fraction(1), owner="an odometer")
        budget("the touching point", self.touching, owner="an odometer")

    @classmethod
    def tuned(cls, epsilon: Fraction, delta: Fraction) -> "FilterBoundary":
        """Return the boundary that touches at epsilon: y = (sqrt(2L + 2 epsilon) - sqrt(2L))^2.

        [WRRW] print epsilon in place of 2 epsilon, which touches at epsilon/2: valid, but about a quarter of the
        budget is lost. As any y is valid, a float may choose it.

        Raises:
            InvalidCost: epsilon is not an exact positive number, or delta' not between 0 and 1.
        """
        budget("the epsilon", epsilon, owner="an odometer")
        budget("the delta'", delta, below=Fraction(1), owner="an odometer")
        twice = 2 * bits_float(delta)
        root = 2 * float(epsilon) / (math.sqrt(twice + 2 * float(epsilon)) + math.sqrt(twice))
        return cls(delta, Fraction(root * root))

    def above(self, variance: Fraction) -> Fraction | None:
        """Return the line at V."""
        twice = ln_inverse(self.delta) * 2
        line = (twice * self.touching).sqrt() / 2 + (twice / self.touching).sqrt() * (variance / 2)
        return line.upper


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The parameters of a mixture; they determine where its curve is tight.

    Raises:
        InvalidCost: delta' is not between 0 and 1/2, or the gamma is not positive.
    """

    delta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        budget("the delta'", self.delta, below=Fraction(1, 2), owner="an odometer")
        budget("the gamma", self.gamma, owner="an odometer")


@dataclass(frozen=True, slots=True)
class MixtureBoundary(_Mixture):
    """sqrt(2 (V+g) ln(sqrt((V+g)/g) / delta')): the normal mixture, which bounds both directions.

    Tight inputs are bounded above only: a mechanism may lose less than its rho. For these the boundary holds
    because it lies above the half-normal mixture's curve, which is the case where delta' <= sqrt((V+g)/g) / 2:
    hence delta' is below 1/2.
    """

    def above(self, variance: Fraction) -> Fraction | None:
        """Return the curve at V."""
        total = variance + self.gamma
        bits = Interval.of(total / self.gamma).ln() / 2 + ln_inverse(self.delta)
        return (bits * (2 * total)).sqrt().upper


@dataclass(frozen=True, slots=True)
class OneSidedMixtureBoundary(_Mixture):
    """sqrt(2 (V+g) ln(1 + sqrt((V+g)/g) / (2 delta'))): the half-normal mixture, which bounds above only; tighter.

    The mixture of exp(l M - l^2 V/2) over half-normal l > 0 is 2 sqrt(g/(V+g)) Phi(x) exp(x^2/2), x = M/sqrt(V+g), and
    2 Phi(x) exp(x^2/2) >= 2 exp(x^2/2) - 1; Ville's inequality bounds it by 1/delta'.
    """

    def above(self, variance: Fraction) -> Fraction | None:
        """Return the curve at V."""
        total = variance + self.gamma
        bits = (Interval.of(total / self.gamma).sqrt() / (2 * self.delta) + 1).ln()
        return (bits * (2 * total)).sqrt().upper


@dataclass(frozen=True, slots=True)
class StitchedBoundary:
    """1.7 sqrt(V (ln ln(2V/v0) + .72 ln(5.2/delta'))) for V >= v0; the 5.2 is printed as "5 . 2"."""

    delta: Fraction
    start: Fraction

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            InvalidCost: delta' is not between 0 and 1, or the start is not positive.
        """
        budget("the delta'", self.delta, below=Fraction(1), owner="an odometer")
        budget("the start", self.start, owner="an odometer")

    def above(self, variance: Fraction) -> Fraction | None:
        """Return the curve at V; None (infinite) below v0."""
        if variance < self.start:
            return None
        iterated = Interval.of(2 * variance / self.start).ln().ln()
        bits = iterated + Interval.of(CONSTANT / self.delta).ln() * SHARE
        return ((bits * variance).sqrt() * FACTOR).upper
