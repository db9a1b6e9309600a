"""AboveThreshold with one-sided geometric noise as a finite machine with exact laws, once or re-armed.

The noisy threshold tau is hidden and unbounded. It is summed out in closed form: the state holds the margins of the
comparisons that failed since tau was drawn, and the chance of the next answer is a ratio of two exact series. So
nothing is truncated, and the state of each copy is known exactly. This file knows no real mechanism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from stream_dp.verify.exact.finite import Law

ONE = Fraction(1)
Row: TypeAlias = tuple[int, ...]
Tick: TypeAlias = tuple[Row, int]  # one tick's row, and the public threshold to compare with
SVTState: TypeAlias = tuple[Row, tuple[int, ...]] | None  # counts, failed margins; None: halted


@lru_cache(maxsize=1 << 16)
def all_below(margins: tuple[int, ...], tau: Fraction, nu: Fraction) -> Fraction:
    """Return P[nu_i < m_i + tau for all i], tau ~ Geom(decay `tau`) once, nu_i ~ Geom(decay `nu`) each; exact.

    Given tau = x >= max(-m_i) the product is a polynomial in nu^x, so the sum over x is a sum of geometric series;
    for smaller x one comparison succeeds for sure and the product is 0.
    """
    start = max([0, *(-m for m in margins)])
    polynomial = [ONE]  # coefficients of y^k, y = nu^x
    for m in margins:
        raised = [Fraction(0), *(c * nu**m for c in polynomial)]
        polynomial = [c - r for c, r in zip([*polynomial, Fraction(0)], raised, strict=True)]
    series = ((tau * nu**k) ** start / (1 - tau * nu**k) for k in range(len(polynomial)))
    return (1 - tau) * sum((c * s for c, s in zip(polynomial, series, strict=True)), Fraction(0))


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """Is max(counts) >= threshold? Answers 1 and halts, or 0 ([HSV] Alg. 3 with geometric noise).

    `tau` = e^(-e1) and `nu` = e^(-e2 / s) are the decays of the noise on the threshold and on each query, `offset`
    the public counts that it starts from. Privacy claim: (e1 + e2)-DP with s = 1 where the largest count changes by
    1 in
    one direction, with s = 2 in general.
    """

    tau: Fraction
    nu: Fraction
    offset: Row = (0,)

    def initial(self) -> Mapping[SVTState, Fraction]:
        """Return the law of the first state: nothing counted, nothing compared."""
        return {(self.offset, ()): ONE}

    def step(self, state: SVTState, query: Tick) -> Law[SVTState]:
        """Add the row, then compare."""
        if state is None:
            return {(None, None): ONE}
        row, threshold = query
        counts = tuple(c + x for c, x in zip(state[0], row, strict=True))
        margins = (*state[1], threshold - max(counts))
        below = all_below(margins, self.tau, self.nu) / all_below(state[1], self.tau, self.nu)
        return {
            (0, (counts, margins)): below,
            (1, self.after_crossing(counts, threshold)): 1 - below,
        }

    def after_crossing(self, counts: Row, threshold: int) -> SVTState:
        """Return the state after the answer 1."""
        return None


class RearmedAlerts(AboveThreshold):
    """An alert that re-arms: the instance that crosses takes its whole tick, the next starts from 0 with fresh noise.

    Privacy claim, one column, add_remove: max(e1, e2)-DP for ever (one more event shifts one instance's count by the
    same +1 from its tick to the crossing); an event touches one instance ([HSV] Cor 5.5, k = 1).
    """

    __slots__ = ()

    def after_crossing(self, counts: Row, threshold: int) -> SVTState:
        """Return a fresh instance."""
        return (0,) * len(counts), ()


Subset: TypeAlias = tuple[tuple[int, ...], int]  # the columns that count, and the public threshold


@dataclass(frozen=True, slots=True)
class BelowThreshold:
    """Is the sum of these columns < threshold? Answers 1 and halts, or 0: a user of [HSV] section 9.

    Its first message is its data set, a row; then come `Subset` queries. Privacy claim: (e1 + e2)-DP for one column
    changed by 1, `tau` = e^(-e1) and `nu` = e^(-e2): all counts change in one direction.
    """

    tau: Fraction
    nu: Fraction

    def initial(self) -> Mapping[SVTState, Fraction]:
        """Return the law of the first state: no data, nothing compared."""
        return {((), ()): ONE}

    def step(self, state: SVTState, query: Row | Subset) -> Law[SVTState]:
        """Take the data set, or compare the count of the query's columns with its threshold."""
        match state, query:
            case None, _:
                return {(None, None): ONE}
            case ((), _), _:
                return {(True, (query, ())): ONE}  # type: ignore[dict-item]  # the first message is a row
            case (row, failed), (tuple(columns), int(threshold)):
                margins = (*failed, sum(row[c] for c in columns) - threshold + 1)
                before = all_below(failed, self.tau, self.nu)
                stays = all_below(margins, self.tau, self.nu) / before
                return {(0, (row, margins)): stays, (1, None): 1 - stays}
        raise ValueError("a data set first, then subsets with a threshold")
