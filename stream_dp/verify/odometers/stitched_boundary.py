"""The stitched odometer ([WRRW] Thm 3.3): the rate of the iterated logarithm, from V = v0 on."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.directed import Interval
from stream_dp.accounting.filters.budgets import budget

FACTOR, SHARE, CONSTANT = Fraction(17, 10), Fraction(72, 100), Fraction(52, 10)


@dataclass(frozen=True, slots=True)
class StitchedBoundary:
    """1.7 sqrt(V (ln ln(2V/v0) + .72 ln(5.2/delta'))) for V >= v0; the 5.2 is printed as "5 . 2"."""

    delta: Fraction
    start: Fraction

    def __post_init__(self) -> None:
        """Refuse what is no boundary.

        Raises:
            InvalidCost: delta' is not between 0 and 1, or the start is not positive.
        """
        budget("the delta'", self.delta, below=Fraction(1), owner="an odometer")
        budget("the start", self.start, owner="an odometer")

    def above(self, variance: Fraction) -> Fraction | None:
        """The curve at V; infinite below v0."""
        if variance < self.start:
            return None
        iterated = Interval.of(2 * variance / self.start).ln().ln()
        bits = iterated + Interval.of(CONSTANT / self.delta).ln() * SHARE
        return ((bits * variance).sqrt() * FACTOR).upper
