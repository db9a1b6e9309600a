"""The mixture odometer ([WRRW] Thm 3.2, after Robbins): good over a wide range around V = gamma."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.directed import Interval, ln_inverse
from stream_dp.accounting.filters.budgets import budget


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The parameters of a mixture, which fix where its curve is good.

    Raises:
        InvalidCost: delta' is not between 0 and 1/2, or the gamma is not positive.
    """

    delta: Fraction
    gamma: Fraction

    def __post_init__(self) -> None:
        """Refuse what is no boundary."""
        budget("the delta'", self.delta, below=Fraction(1, 2), owner="an odometer")
        budget("the gamma", self.gamma, owner="an odometer")


@dataclass(frozen=True, slots=True)
class MixtureBoundary(_Mixture):
    """sqrt(2 (V+g) ln(sqrt((V+g)/g) / delta')): the normal mixture, which bounds both directions.

    Tight inputs are bounded above only: a mechanism may lose less than its rho. There it holds because it lies above
    the half-normal mixture's curve, which is so where delta' <= sqrt((V+g)/g) / 2: hence delta' below 1/2.
    """

    def above(self, variance: Fraction) -> Fraction | None:
        """The curve at V."""
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
        """The curve at V."""
        total = variance + self.gamma
        bits = (Interval.of(total / self.gamma).sqrt() / (2 * self.delta) + 1).ln()
        return (bits * (2 * total)).sqrt().upper
