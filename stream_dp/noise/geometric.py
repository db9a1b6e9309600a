"""The one-sided geometric: P[X = x] proportional to exp(-x / scale), x = 0, 1, 2, ...

Rules: this file holds the CDF of the top digit, P[h <= i] = 1 - a^(i+1) with a = exp(-step), and
the cache of samplers by scale. The digits, the tail and the drawing are in `digits`.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from stream_dp.noise.digits import Sampler, Split
from stream_dp.noise.exact import Interval, complement, exp_neg, powers
from stream_dp.noise.tables import Table


@dataclass(frozen=True, slots=True)
class GeometricCuts:
    """P[h <= i] for i = 0..reach-1; the last cell is the tail h >= reach."""

    step: Fraction
    reach: int

    @property
    def size(self) -> int:
        """Number of cuts."""
        return self.reach

    def cut(self, index: int, width: int) -> Interval:
        """Enclose P[h <= index]."""
        return complement(exp_neg((index + 1) * self.step, width), width)

    def all_cuts(self, width: int) -> list[Interval]:
        """Enclose P[h <= i] for i = 0..reach-1."""
        found = powers(exp_neg(self.step, width), self.reach, width)
        return [complement(power, width) for power in found[1:]]


@lru_cache(maxsize=256)
def geometric_sampler(numerator: int, denominator: int) -> Sampler:
    """Return the sampler of scale numerator / denominator, in (0, MAX_SCALE]."""
    split = Split.of(Fraction(numerator, denominator))
    return Sampler(split, Table(GeometricCuts(split.top_step, split.reach)), origin=0)
