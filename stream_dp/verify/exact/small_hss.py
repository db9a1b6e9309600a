"""HSS in its histogram form as a finite machine with exact laws ([HSV] Alg. 4, relative thresholds).

A sparse vector watches the largest growth of a column against the public `gamma`; where it says "above", the interval's
sums are released, each with one fresh discrete Laplace sample: a counter with one node per update. Rules: the noisy
threshold is summed out as in `sparse_vector`; releases are clamped to [low, high], which loses nothing while the
sums stay inside, for outside the ratio of two laws is constant. Where the samples are discrete Gaussian, clamping is a
post-processing that may lose something: what is found there is a lower bound, near the truth where the range is wide.
This file knows no real mechanism.
"""

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from stream_dp.verify.exact.exact_sparse_vector import Row, all_below
from stream_dp.verify.exact.finite import Law

QUIET = "quiet"
REACH = 12  # deviations of a discrete Gaussian, at least: beyond lies less than 1e-31
HSSPoint: TypeAlias = tuple[Row, tuple[int, ...]]  # the open interval's sums, its failed margins


def clamped_laplace(centre: int, decay: Fraction, low: int, high: int) -> dict[int, Fraction]:
    """The law of centre + discrete Laplace noise, clamped to [low, high], low <= centre <= high; exact."""
    share = 1 / (1 + decay)
    inside = {v: (1 - decay) * share * decay ** abs(v - centre) for v in range(low + 1, high)}
    return {low: share * decay ** (centre - low), **inside, high: share * decay ** (high - centre)}


@lru_cache(maxsize=1 << 10)
def clamped_gaussian(centre: int, decay: Fraction, low: int, high: int) -> dict[int, Fraction]:
    """The law of centre + discrete Gaussian noise with weights decay^(x^2), clamped to [low, high]; adds up to 1.

    decay = e^(-1 / (2 variance)): a shift by one costs ln(1 / decay) in zCDP (Canonne, Kamath, Steinke 2020, Prop. 5).
    """
    deviation = math.sqrt(-0.5 / math.log(decay))
    reach = math.ceil(REACH * deviation) + high - low
    weights = {x: decay ** (x * x) for x in range(-reach, reach + 1)}
    whole = sum(weights.values())
    law = dict.fromkeys(range(low, high + 1), Fraction(0))
    for x, weight in weights.items():
        law[min(high, max(low, centre + x))] += weight / whole
    return law


@dataclass(frozen=True, slots=True)
class SmallHSS:
    """Answers a tick's row with QUIET, or with the clamped noisy sums of the interval that it closes.

    `tau` = e^(-e1), `nu` = e^(-e2 / s) and `node` = e^(-e_c / L0) are the decays of the three noises. Privacy claim:
    (e1 + e2 + e_c)-DP for one-hot events, with s = 1, L0 = 1 under add_remove and s = 2, L0 = 2 under replace.
    """

    width: int
    tau: Fraction
    nu: Fraction
    node: Fraction
    gamma: int
    low: int
    high: int

    def initial(self) -> Mapping[HSSPoint, Fraction]:
        """Return the law of the first state: an empty interval."""
        return {((0,) * self.width, ()): Fraction(1)}

    def step(self, state: HSSPoint, query: Row) -> Law[HSSPoint]:
        """Add the row, compare, and close the interval where the comparison says so.

        Raises:
            ValueError: the sums leave [low, high], so clamping would hide some loss.
        """
        counts = tuple(c + x for c, x in zip(state[0], query, strict=True))
        if max(counts) > self.high or min(counts) < self.low:
            raise ValueError("the interval's sums leave [low, high]; choose wider bounds")
        margins = (*state[1], self.gamma + 1 - max(counts))
        below = all_below(margins, self.tau, self.nu) / all_below(state[1], self.tau, self.nu)
        law: dict[tuple[Hashable, HSSPoint], Fraction] = {(QUIET, (counts, margins)): below}
        fresh: HSSPoint = ((0,) * self.width, ())
        laws = [self.released(c).items() for c in counts]
        for values in itertools.product(*laws):
            chance = math.prod((p for _, p in values), start=1 - below)
            law[tuple(v for v, _ in values), fresh] = chance
        return law

    def released(self, count: int) -> Mapping[int, Fraction]:
        """Return the law of what is released of a column's sum over the interval."""
        return clamped_laplace(count, self.node, self.low, self.high)


class SmallGaussianHSS(SmallHSS):
    """HSS whose counter draws discrete Gaussian samples, of weights `node`^(x^2); the sparse vector stays pure.

    Privacy claim: (e tanh(e/2) + L0 ln(1 / node))-zCDP, e = e1 + e2, with s and L0 as for `SmallHSS`.
    """

    __slots__ = ()

    def released(self, count: int) -> Mapping[int, Fraction]:
        """Return the law of what is released of a column's sum over the interval."""
        return clamped_gaussian(count, self.node, self.low, self.high)
