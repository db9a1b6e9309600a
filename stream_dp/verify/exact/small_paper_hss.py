"""The paper's HSS ([HSV] Alg. 4) as a finite machine with exact laws.

It counts with one node an update and shows all that sub-mechanisms answer: crossings, outcomes of checks, noisy
interval sums. Rules: written from the paper alone; noise is discrete; the noisy threshold, unbounded and two-sided, is
summed out in closed form; releases are clamped as in `small_hss`. This file knows no real mechanism.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from stream_dp.verify.exact.exact_sparse_vector import Row
from stream_dp.verify.exact.small_hss import clamped_gaussian, clamped_laplace

OfTime: TypeAlias = Callable[[int, int], int]
Q: TypeAlias = Callable[[Sequence[int]], int]
ONE = Fraction(1)


@lru_cache(maxsize=1 << 16)
def all_at_most(margins: tuple[int, ...], tau: Fraction, nu: Fraction) -> Fraction:
    """P[nu_i <= m_i + tau for all i], two-sided discrete Laplace of these decays: tau once, nu_i each; exact.

    Where tau >= max(-m_i, 0) every factor is 1 - nu^(m + tau + 1) / (1 + nu), where tau < -max(m_i, 0) it is
    nu^(-m - tau) / (1 + nu): geometric series both. Between the two it is a finite sum.
    """
    if not margins:
        return ONE
    mass = (1 - tau) / (1 + tau)
    high, low = max(0, *(-m for m in margins)), min(0, *(-m for m in margins))
    middle = sum(
        (mass * tau ** abs(x) * _given(margins, nu, x) for x in range(low, high)), Fraction(0)
    )
    polynomial = [ONE]
    for m in margins:
        raised = [Fraction(0), *(c * nu ** (m + 1) / (1 + nu) for c in polynomial)]
        polynomial = [c - r for c, r in zip([*polynomial, Fraction(0)], raised, strict=True)]
    above = sum(
        (c * (tau * nu**k) ** high / (1 - tau * nu**k) for k, c in enumerate(polynomial)),
        Fraction(0),
    )
    number = len(margins)
    scale = nu ** (-sum(margins)) / (1 + nu) ** number  # at tau = x < low: scale * nu^(-number x)
    ratio = tau * nu**number
    below = scale * ratio ** (1 - low) / (1 - ratio)
    return middle + mass * (above + below)


def _given(margins: tuple[int, ...], nu: Fraction, tau: int) -> Fraction:
    """The product of P[nu <= m + tau]."""
    ks = [m + tau for m in margins]
    return math.prod(
        (1 - nu ** (k + 1) / (1 + nu) if k >= 0 else nu**-k / (1 + nu) for k in ks), start=ONE
    )


def exceeds(value: int, bound: int, decay: Fraction) -> Fraction:
    """P[value + discrete Laplace > bound], exact."""
    k = bound - value
    return decay ** (k + 1) / (1 + decay) if k >= 0 else 1 - decay**-k / (1 + decay)


@dataclass(frozen=True, slots=True)
class PaperPoint:
    """The state: public t, j, Thresh and raw h; hidden c and the margins of the comparisons that failed."""

    t: int
    j: int
    threshold: int
    raw: Row
    c: Row
    margins: tuple[int, ...]


@dataclass(frozen=True)
class SmallPaperHSS:
    """Algorithm 4 as a finite machine: `tau`, `nu`, `check`, `node` are the decays of its four noises.

    With x = e^(-epsilon / 12) the paper has tau = x^2, nu = x, check = x^4 and node = x^(4 / width).
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
        """Return the law of the first state."""
        zeros = (0,) * self.width
        return {PaperPoint(0, 1, self.gamma(1, 1), zeros, zeros, ()): ONE}

    def step(self, state: PaperPoint, query: Row) -> dict[tuple[Hashable, PaperPoint], Fraction]:
        """One step of the paper, with everything that its sub-mechanisms answer."""
        t, j = state.t + 1, state.j
        c = tuple(a + b for a, b in zip(state.c, query, strict=True))
        if max(c) > self.high or min(c) < self.low:
            raise ValueError("the interval's sums leave [low, high]; choose wider bounds")
        h = [max(0, v) for v in state.raw]
        value = self.q([a + b for a, b in zip(c, h, strict=True)])
        margins = (*state.margins, state.threshold - value)
        below = all_at_most(margins, self.tau, self.nu) / all_at_most(
            state.margins, self.tau, self.nu
        )
        quiet = state.threshold - self.gamma(t, j) + self.gamma(t + 1, j)
        law: dict[tuple[Hashable, PaperPoint], Fraction] = {
            ("quiet", PaperPoint(t, j, quiet, state.raw, c, margins)): below
        }
        passes = exceeds(value, state.threshold - self.xi(t, j), self.check)
        for passed, chance in ((True, passes), (False, 1 - passes)):
            threshold = state.threshold + self.gamma(t, j) * passed
            threshold += self.gamma(t + 1, j + 1) - self.gamma(t, j)
            laws = [self.released(v).items() for v in c]
            for values in itertools.product(*laws):
                shown = tuple(v for v, _ in values)
                raw = tuple(a + b for a, b in zip(state.raw, shown, strict=True))
                after = PaperPoint(t, j + 1, threshold, raw, (0,) * self.width, ())
                share = math.prod((p for _, p in values), start=(1 - below) * chance)
                law[(passed, shown), after] = share
        return law

    def released(self, count: int) -> Mapping[int, Fraction]:
        """Return the law of what is released of a column's sum over the interval."""
        return clamped_laplace(count, self.node, self.low, self.high)


class SmallGaussianPaperHSS(SmallPaperHSS):
    """Algorithm 4 with discrete Gaussian samples, of weights `node`^(x^2), for the counters.

    Privacy claim under ~_H: zCDP, e tanh(e/2) for instances (e = ln 1/x^4) and for checks each, and d ln(1 / node).
    """

    def released(self, count: int) -> Mapping[int, Fraction]:
        """Return the law of what is released of a column's sum over the interval."""
        return clamped_gaussian(count, self.node, self.low, self.high)


def whole_rows(width: int) -> tuple[tuple[Row, ...], tuple[tuple[Any, Any], ...]]:
    """~_H: all rows of {0,1}^width, and all pairs of two of them."""
    rows = tuple(itertools.product((0, 1), repeat=width))
    return rows, tuple(itertools.permutations(rows, 2))
