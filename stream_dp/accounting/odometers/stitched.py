"""The stitched odometer ([WRRW] Thm 3.3): the rate of the iterated logarithm, from V = v0 on."""

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting.directed import Interval

FACTOR, SHARE, CONSTANT = Fraction(17, 10), Fraction(72, 100), Fraction(52, 10)


@dataclass(frozen=True, slots=True)
class StitchedBoundary:
    """1.7 sqrt(V (ln ln(2V/v0) + .72 ln(5.2/delta'))) for V >= v0; the 5.2 is printed as "5 . 2"."""

    delta: Fraction
    start: Fraction

    def above(self, variance: Fraction) -> Fraction | None:
        """The curve at V; infinite below v0."""
        if variance < self.start:
            return None
        iterated = Interval.of(2 * variance / self.start).ln().ln()
        bits = iterated + Interval.of(CONSTANT / self.delta).ln() * SHARE
        return ((bits * variance).sqrt() * FACTOR).upper
