"""The filter odometer: a line that touches the curve of advanced composition at a target epsilon ([WRRW] Thm 3.1)."""

import math
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.conversions import bits_float
from stream_dp.accounting.directed import ln_inverse
from stream_dp.accounting.filters.budgets import budget


@dataclass(frozen=True, slots=True)
class FilterBoundary:
    """sqrt(2 y L)/2 + sqrt(2 L)/(2 sqrt(y)) V, L = ln(1/delta'): valid for every touching point y > 0."""

    delta: Fraction
    touching: Fraction

    def __post_init__(self) -> None:
        """Refuse what is no boundary.

        Raises:
            InvalidCost: delta' is not between 0 and 1, or the touching point is not positive.
        """
        budget("the delta'", self.delta, below=Fraction(1), owner="an odometer")
        budget("the touching point", self.touching, owner="an odometer")

    @classmethod
    def tuned(cls, epsilon: Fraction, delta: Fraction) -> "FilterBoundary":
        """Touches at epsilon: y = (sqrt(2L + 2 epsilon) - sqrt(2L))^2.

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
        """The line at V."""
        twice = ln_inverse(self.delta) * 2
        line = (twice * self.touching).sqrt() / 2 + (twice / self.touching).sqrt() * (variance / 2)
        return line.upper
