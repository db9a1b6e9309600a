"""HSS in its histogram form as a finite machine with exact laws ([HSV] Alg. 4, relative thresholds).

A sparse vector watches the largest growth of a column against the public `gamma`; where it says "above", the interval's
sums are released, each with one fresh discrete Laplace sample: a counter with one node per update. Rules: the noisy
threshold is summed out as in `sparse_vector`; releases are clamped to [low, high], which loses nothing while the
sums stay inside, for outside the ratio of two laws is constant. This file knows no real mechanism.
"""

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from stream_dp.audit.exact_sparse_vector import Row, all_below
from stream_dp.audit.finite import Law

QUIET = "quiet"
HSSPoint: TypeAlias = tuple[Row, tuple[int, ...]]  # the open interval's sums, its failed margins


def clamped_laplace(centre: int, decay: Fraction, low: int, high: int) -> dict[int, Fraction]:
    """The law of centre + discrete Laplace noise, clamped to [low, high], low <= centre <= high; exact."""
    share = 1 / (1 + decay)
    inside = {v: (1 - decay) * share * decay ** abs(v - centre) for v in range(low + 1, high)}
    return {low: share * decay ** (centre - low), **inside, high: share * decay ** (high - centre)}


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
        laws = [clamped_laplace(c, self.node, self.low, self.high).items() for c in counts]
        for values in itertools.product(*laws):
            chance = math.prod((p for _, p in values), start=1 - below)
            law[tuple(v for v, _ in values), fresh] = chance
        return law
