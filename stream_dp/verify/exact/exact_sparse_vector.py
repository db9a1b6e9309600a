"""Sparse vectors and HSS ([HSV] Alg. 3 and 4) as finite machines with exact laws.

The noisy threshold tau is hidden and unbounded. It is summed out in closed form: the state holds the margins of the
comparisons that failed since tau was drawn, and the chance of the next answer is a ratio of two exact series. So
nothing is truncated, and the state of each copy is known exactly.

HSS releases are clamped to [low, high]. This loses nothing while the sums stay inside, because outside the ratio of
two laws is constant. For discrete Gaussian samples clamping is a post-processing that may lose something: the result
is then a lower bound, near the truth where the range is wide. This file knows no real mechanism.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

from stream_dp.verify.exact.finite import Law

ZERO, ONE = Fraction(0), Fraction(1)
Row: TypeAlias = tuple[int, ...]
Tick: TypeAlias = tuple[Row, int]  # one tick's row, and the public threshold to compare with
SVTState: TypeAlias = tuple[Row, tuple[int, ...]] | None  # counts, failed margins; None: halted


def _product(factors: Iterable[Fraction]) -> list[Fraction]:
    """Return the coefficients of prod(1 - f y) over the factors f."""
    polynomial = [ONE]
    for f in factors:
        shifted = zip([*polynomial, ZERO], [ZERO, *polynomial], strict=True)
        polynomial = [c - f * lower for c, lower in shifted]
    return polynomial


@lru_cache(maxsize=1 << 16)
def all_below(margins: tuple[int, ...], tau: Fraction, nu: Fraction) -> Fraction:
    """Return P[nu_i < m_i + tau for all i], exactly; tau ~ Geom(decay `tau`), each nu_i ~ Geom(decay `nu`).

    Given tau = x >= max(-m_i) the product is a polynomial in nu^x, so the sum over x is a sum of geometric series;
    for smaller x one comparison succeeds for sure and the product is 0.
    """
    start = max([0, *(-m for m in margins)])
    rates = (tau * nu**k for k in range(len(margins) + 1))
    series = (rate**start / (1 - rate) for rate in rates)
    coefficients = _product(nu**m for m in margins)
    return (1 - tau) * sum((c * s for c, s in zip(coefficients, series, strict=True)), ZERO)


def _fails(
    failed: tuple[int, ...], margin: int, tau: Fraction, nu: Fraction
) -> tuple[tuple[int, ...], Fraction]:
    """Return all failed margins, and the chance that the comparison with this margin fails too."""
    margins = (*failed, margin)
    return margins, all_below(margins, tau, nu) / all_below(failed, tau, nu)


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """Is max(counts) >= threshold? Answers 1 and halts, or 0 ([HSV] Alg. 3 with geometric noise).

    `tau` = e^(-e1) and `nu` = e^(-e2 / s) are the decays of the noise on the threshold and on each query, `offset`
    the public counts that it starts from. Privacy claim: (e1 + e2)-DP with s = 1 where the largest count changes by 1
    in one direction, with s = 2 in general.
    """

    rearms: ClassVar[bool] = False
    tau: Fraction
    nu: Fraction
    offset: Row = (0,)

    def initial(self) -> Mapping[SVTState, Fraction]:
        return {(self.offset, ()): ONE}

    def step(self, state: SVTState, query: Tick) -> Law[SVTState]:
        if state is None:
            return {(None, None): ONE}
        row, threshold = query
        counts = tuple(c + x for c, x in zip(state[0], row, strict=True))
        margins, below = _fails(state[1], threshold - max(counts), self.tau, self.nu)
        crossed = ((0,) * len(counts), ()) if self.rearms else None
        return {(0, (counts, margins)): below, (1, crossed): 1 - below}


class RearmedAlerts(AboveThreshold):
    """An alert that re-arms: the instance that crosses takes its whole tick, the next starts from 0 with fresh noise.

    Privacy claim, one column, add_remove: max(e1, e2)-DP for ever (one more event shifts one instance's count by the
    same +1 from its tick to the crossing); an event touches one instance ([HSV] Cor 5.5, k = 1).
    """

    __slots__ = ()
    rearms = True


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
        return {((), ()): ONE}

    def step(self, state: SVTState, query: Row | Subset) -> Law[SVTState]:
        """Take the data set, or compare the count of the query's columns with its threshold."""
        match state, query:
            case None, _:
                return {(None, None): ONE}
            case ((), _), _:
                return {(True, (query, ())): ONE}  # type: ignore[dict-item]  # the first message is a row
            case (row, failed), (tuple(columns), int(threshold)):
                margin = sum(row[c] for c in columns) - threshold + 1
                margins, stays = _fails(failed, margin, self.tau, self.nu)
                return {(0, (row, margins)): stays, (1, None): 1 - stays}
        raise ValueError(
            "the first message must be a data set, and each later message a subset with a threshold"
        )


QUIET = "quiet"
REACH = 12  # least deviations of a discrete Gaussian that are listed: the rest is below 1e-31
HSSPoint: TypeAlias = tuple[Row, tuple[int, ...]]  # the open interval's sums, its failed margins
OfTime: TypeAlias = Callable[[int, int], int]
Q: TypeAlias = Callable[[Sequence[int]], int]


def clamped_laplace(centre: int, decay: Fraction, low: int, high: int) -> dict[int, Fraction]:
    """Return the law of centre + discrete Laplace noise, clamped to [low, high], low <= centre <= high; exact."""
    share = 1 / (1 + decay)
    inside = {v: (1 - decay) * share * decay ** abs(v - centre) for v in range(low + 1, high)}
    return {low: share * decay ** (centre - low), **inside, high: share * decay ** (high - centre)}


@lru_cache(maxsize=1 << 10)
def clamped_gaussian(centre: int, decay: Fraction, low: int, high: int) -> dict[int, Fraction]:
    """Return the law of centre + discrete Gaussian noise of weights decay^(x^2), clamped to [low, high].

    It adds up to 1. decay = e^(-1 / (2 variance)), so a shift by one costs ln(1 / decay) in zCDP (Canonne, Kamath,
    Steinke 2020, Prop. 5).
    """
    deviation = math.sqrt(-0.5 / math.log(decay))
    reach = math.ceil(REACH * deviation) + high - low
    weights = {x: decay ** (x * x) for x in range(-reach, reach + 1)}
    whole = sum(weights.values())
    law = dict.fromkeys(range(low, high + 1), ZERO)
    for x, weight in weights.items():
        law[min(high, max(low, centre + x))] += weight / whole
    return law


@dataclass(frozen=True, slots=True)
class SmallHSS:
    """HSS with relative thresholds: answers a row with QUIET, or with the clamped noisy sums of a closed interval.

    A sparse vector compares the largest growth of a column with the public `gamma`. Above it, the interval closes and
    each of its sums gets one fresh discrete Laplace sample: a counter with one node per update. `tau` = e^(-e1), `nu`
    = e^(-e2 / s) and `node` = e^(-e_c / L0) are the decays of the three noises. Privacy claim: (e1 + e2 + e_c)-DP for
    one-hot events, with s = 1, L0 = 1 under add_remove and s = 2, L0 = 2 under replace.
    """

    width: int
    tau: Fraction
    nu: Fraction
    node: Fraction
    gamma: int
    low: int
    high: int

    def initial(self) -> Mapping[HSSPoint, Fraction]:
        return {((0,) * self.width, ()): ONE}

    def step(self, state: HSSPoint, query: Row) -> Law[HSSPoint]:
        """Add the row, compare, and close the interval where the comparison succeeds."""
        counts = _added(state[0], query, self.low, self.high)
        margins, below = _fails(state[1], self.gamma + 1 - max(counts), self.tau, self.nu)
        law: dict[tuple[Hashable, HSSPoint], Fraction] = {(QUIET, (counts, margins)): below}
        for values, chance in _jointly(list(map(self.released, counts))):
            law[values, ((0,) * self.width, ())] = (1 - below) * chance
        return law

    def released(self, count: int) -> Mapping[int, Fraction]:
        """Return the law of the released value of a column's sum over the interval."""
        return clamped_laplace(count, self.node, self.low, self.high)


class SmallGaussianHSS(SmallHSS):
    """HSS whose counter draws discrete Gaussian samples, of weights `node`^(x^2); the sparse vector stays pure.

    Privacy claim: (e tanh(e/2) + L0 ln(1 / node))-zCDP, e = e1 + e2, with s and L0 as for `SmallHSS`.
    """

    __slots__ = ()

    def released(self, count: int) -> Mapping[int, Fraction]:
        return clamped_gaussian(count, self.node, self.low, self.high)


def _added(sums: Row, row: Row, low: int, high: int) -> Row:
    """Return the new sums (ValueError: they leave [low, high], so clamping would hide some loss)."""
    counts = tuple(a + b for a, b in zip(sums, row, strict=True))
    if max(counts) > high or min(counts) < low:
        raise ValueError("the interval's sums leave [low, high]; choose wider bounds")
    return counts


def _jointly(laws: Sequence[Mapping[int, Fraction]]) -> Iterator[tuple[Row, Fraction]]:
    """Yield the values of independent laws and their probability."""
    for drawn in itertools.product(*(law.items() for law in laws)):
        yield tuple(v for v, _ in drawn), math.prod((p for _, p in drawn), start=ONE)


@lru_cache(maxsize=1 << 16)
def all_at_most(margins: tuple[int, ...], tau: Fraction, nu: Fraction) -> Fraction:
    """Return P[nu_i <= m_i + tau for all i], exactly; tau and each nu_i are discrete Laplace of these decays.

    Where tau >= max(-m_i, 0) every factor is 1 - nu^(m + tau + 1) / (1 + nu); where tau < -max(m_i, 0) it is nu^(-m -
    tau) / (1 + nu). Both parts are geometric series; the part between them is a finite sum.
    """
    if not margins:
        return ONE
    mass, number = (1 - tau) / (1 + tau), len(margins)
    high, low = max(0, *(-m for m in margins)), min(0, *(-m for m in margins))
    middle = sum(
        (
            mass * tau ** abs(x) * math.prod(1 - exceeds(0, m + x, nu) for m in margins)
            for x in range(low, high)
        ),
        ZERO,
    )
    coefficients = _product(nu ** (m + 1) / (1 + nu) for m in margins)
    above = sum(
        (c * (tau * nu**k) ** high / (1 - tau * nu**k) for k, c in enumerate(coefficients)), ZERO
    )
    scale = nu ** (-sum(margins)) / (1 + nu) ** number  # at tau = x < low: scale * nu^(-number x)
    ratio = tau * nu**number
    return middle + mass * (above + scale * ratio ** (1 - low) / (1 - ratio))


def exceeds(value: int, bound: int, decay: Fraction) -> Fraction:
    """Return P[value + discrete Laplace > bound], exactly."""
    k = bound - value
    return decay ** (k + 1) / (1 + decay) if k >= 0 else 1 - decay**-k / (1 + decay)


@dataclass(frozen=True, slots=True)
class PaperPoint:
    """State: public t, j, Thresh and raw h; hidden c and the margins of the failed comparisons."""

    t: int
    j: int
    threshold: int
    raw: Row
    c: Row
    margins: tuple[int, ...]


@dataclass(frozen=True)
class SmallPaperHSS:
    """[HSV] Alg. 4, written from the paper alone; `tau`, `nu`, `check`, `node` are the decays of its four noises.

    It shows all answers of sub-mechanisms: crossings, outcomes of checks, noisy interval sums. With x = e^(-epsilon /
    12) the paper has tau = x^2, nu = x, check = x^4 and node = x^(4 / width).
    """

    width: int
    q: Q
    tau: Fraction
    nu: Fraction
    check: Fraction
    node: Fraction
    gamma: OfTime
    xi: OfTime
    low: int
    high: int

    def initial(self) -> Mapping[PaperPoint, Fraction]:
        zeros = (0,) * self.width
        return {PaperPoint(0, 1, self.gamma(1, 1), zeros, zeros, ()): ONE}

    def step(self, state: PaperPoint, query: Row) -> dict[tuple[Hashable, PaperPoint], Fraction]:
        t, j, zeros = state.t + 1, state.j, (0,) * self.width
        c = _added(state.c, query, self.low, self.high)
        value = self.q([a + max(0, b) for a, b in zip(c, state.raw, strict=True)])
        margins = (*state.margins, state.threshold - value)
        before = all_at_most(state.margins, self.tau, self.nu)
        below = all_at_most(margins, self.tau, self.nu) / before
        quiet = state.threshold - self.gamma(t, j) + self.gamma(t + 1, j)
        law: dict[tuple[Hashable, PaperPoint], Fraction] = {
            ("quiet", PaperPoint(t, j, quiet, state.raw, c, margins)): below
        }
        passes = exceeds(value, state.threshold - self.xi(t, j), self.check)
        laws = [clamped_laplace(v, self.node, self.low, self.high) for v in c]
        for passed, chance in ((True, passes), (False, 1 - passes)):
            threshold = state.threshold + self.gamma(t, j) * passed
            threshold += self.gamma(t + 1, j + 1) - self.gamma(t, j)
            for shown, share in _jointly(laws):
                raw = tuple(a + b for a, b in zip(state.raw, shown, strict=True))
                after = PaperPoint(t, j + 1, threshold, raw, zeros, ())
                law[(passed, shown), after] = (1 - below) * chance * share
        return law


def whole_rows(width: int) -> tuple[tuple[Row, ...], tuple[tuple[Any, Any], ...]]:
    """Return ~_H: all rows of {0,1}^width, and all pairs of different rows."""
    rows = tuple(itertools.product((0, 1), repeat=width))
    return rows, tuple(itertools.permutations(rows, 2))
