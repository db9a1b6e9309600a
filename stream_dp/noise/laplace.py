"""The discrete Laplace, P[X = x] proportional to exp(-|x| / scale), and the one-sided geometric, x = 0, 1, 2, ... only.

Theory: with b the scale, a sign s with P[s = 1] = r = exp(-1/b) / (1 + exp(-1/b)) and g geometric with scale b,
independent, x = g if s = 0 and x = -1 - g if s = 1 is discrete Laplace: zero comes from s = 0 only.
The top digit h of g (`digits`) has P[h <= i] = 1 - a^(i+1), a = exp(-step). It joins the sign in one table, t = h or
t = -1 - h: P[t <= -1 - h] = r * a^h and P[t <= h] = 1 - (1 - r) * a^(h+1).

Rules: this file holds these CDFs and the caches of samplers by scale; the digits, the tail and the drawing are in
`digits`. Reference for the distribution: Ghosh, Roughgarden, Sundararajan, STOC 2009 (there the "geometric mechanism").
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from stream_dp.noise.digits import Sampler, Split
from stream_dp.noise.exact import (
    Interval,
    complement,
    divide,
    exp_neg,
    multiply,
    one_plus,
    powers,
)
from stream_dp.noise.tables import Table


@dataclass(frozen=True, slots=True)
class GeometricCuts:
    """P[h <= i] for i = 0..reach-1; the last cell is the tail, h >= reach."""

    step: Fraction
    reach: int

    @property
    def size(self) -> int:
        """Number of cuts."""
        return self.reach

    def cut(self, index: int, width: int) -> Interval:
        """Return an interval around P[h <= index]."""
        return complement(exp_neg((index + 1) * self.step, width), width)

    def all_cuts(self, width: int) -> list[Interval]:
        """Return intervals around P[h <= i] for i = 0..reach-1."""
        found = powers(exp_neg(self.step, width), self.reach, width)
        return [complement(power, width) for power in found[1:]]


@lru_cache(maxsize=256)
def geometric_sampler(numerator: int, denominator: int) -> Sampler:
    """Return the sampler of scale numerator / denominator, in (0, MAX_SCALE]."""
    split = Split.of(Fraction(numerator, denominator))
    return Sampler(split, Table(GeometricCuts(split.top_step, split.reach)), origin=0)


@dataclass(frozen=True, slots=True)
class LaplaceCuts:
    """P[t <= i - reach - 1] for i = 0..2*reach; the first and the last cell are the tails."""

    unit: Fraction  # 1 / b, the exponent of the sign
    step: Fraction  # 2^m / b, the exponent of the top digit
    reach: int

    @property
    def size(self) -> int:
        """Number of cuts."""
        return 2 * self.reach + 1

    def cut(self, index: int, width: int) -> Interval:
        """Return an interval around cut number `index`."""
        power = exp_neg(abs(index - self.reach) * self.step, width)
        return self._cut(index, power, exp_neg(self.unit, width), width)

    def all_cuts(self, width: int) -> list[Interval]:
        """Return intervals around all cuts, in order."""
        found = powers(exp_neg(self.step, width), self.reach, width)
        sign = exp_neg(self.unit, width)
        return [self._cut(i, found[abs(i - self.reach)], sign, width) for i in range(self.size)]

    def _cut(self, index: int, power: Interval, sign: Interval, width: int) -> Interval:
        """Return r * power up to the middle, 1 - (1 - r) * power after it."""
        share = divide(power, one_plus(sign, width), width)
        if index <= self.reach:
            return multiply(share, sign, width)
        return complement(share, width)


@lru_cache(maxsize=256)
def laplace_sampler(numerator: int, denominator: int) -> Sampler:
    """Return the sampler of scale numerator / denominator, in (0, MAX_SCALE]."""
    split = Split.of(Fraction(numerator, denominator))
    cuts = LaplaceCuts(split.rate, split.top_step, split.reach)
    return Sampler(split, Table(cuts), origin=split.reach + 1)
