"""Exact privacy of two finite laws in every measure, and laws on a line whose privacy is known in closed form.

Rules: laws are `Fraction`s over the same outcomes and every comparison that can be exact is exact. zCDP and GDP
parameters are suprema of transcendental functions: they are bracketed, with slack written down. Sources: Renyi
divergence at whole orders is a rational moment; a trade-off function is convex and piecewise linear, so it lies above
the (convex) Gaussian one if its corners do (Dong, Roth, Su: Def 2.1, 2.6). This file knows no rule of accounting.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any

Law = Mapping[Any, Fraction]
NORMAL = NormalDist()
SLACK = 1e-9  # for one log, exp or quantile in floats


def hockey_stick(p: Law, q: Law, ratio: Fraction) -> Fraction:
    """The least delta with (ln ratio, delta) for this pair, both directions."""
    zero = Fraction(0)
    one_way = sum((max(zero, p[o] - ratio * q[o]) for o in p), zero)
    return max(one_way, sum((max(zero, q[o] - ratio * p[o]) for o in p), zero))


def worst_ratio(p: Law, q: Law) -> Fraction:
    """e^eps of the least eps for this pair."""
    return max(max(p[o] / q[o], q[o] / p[o]) for o in p)


def moment(p: Law, q: Law, order: int) -> Fraction:
    """e^((order-1) D_order), the larger of both directions, exact."""
    zero = Fraction(0)
    one_way = sum((p[o] ** order / q[o] ** (order - 1) for o in p), zero)
    return max(one_way, sum((q[o] ** order / p[o] ** (order - 1) for o in p), zero))


def renyi(p: Law, q: Law, order: float) -> float:
    """D_order for any real order above 1, the larger of both directions, in floats."""
    found = 0.0
    for a, b in ((p, q), (q, p)):
        terms = [order * math.log(a[o]) + (1 - order) * math.log(b[o]) for o in a]
        top = max(terms)
        total = math.fsum(math.exp(term - top) for term in terms)
        found = max(found, (math.log(total) + top) / (order - 1))
    return found


def zcdp_bracket(p: Law, q: Law, step: float = 1.01) -> tuple[float, float]:
    """Bounds of the least rho: sup over orders of D_order / order.

    D grows with the order, so between two grid points a < b the quotient is at most D_b / a; it is at most D_infinity
    divided by the last point beyond the grid. The grid starts at 1 + 10^-3 and KL <= D there.
    """
    worst = math.log(worst_ratio(p, q))
    orders = [1.001]
    while orders[-1] < 200:
        orders.append(orders[-1] * step)
    values = [renyi(p, q, a) for a in orders]
    low = max(d / a for a, d in zip(orders, values, strict=True))
    high = max([values[0], *(d / a for a, d in zip(orders, values[1:], strict=False)), worst / 200])
    return low * (1 - SLACK), high * (1 + SLACK)


def gdp(p: Law, q: Law) -> float:
    """The least mu, to 1e-9: over the corners (a, b) of the trade-off function, Phi^-1(1 - a) - Phi^-1(b)."""
    found = 0.0
    for null, other in ((p, q), (q, p)):
        outcomes = sorted(null, key=lambda o: other[o] / null[o], reverse=True)
        errors = itertools.accumulate(null[o] for o in outcomes[:-1])
        powers = itertools.accumulate(other[o] for o in outcomes[:-1])
        for first, power in zip(errors, powers, strict=True):
            found = max(found, NORMAL.inv_cdf(float(power)) - NORMAL.inv_cdf(float(first)))
    return found


def random_line(rng: random.Random, points: int, outcomes: int) -> list[dict[int, Fraction]]:
    """Laws of a random finite mechanism on data sets 0, 1, ..., points - 1, every probability positive."""
    line = []
    for _ in range(points):
        weights = [rng.randint(1, 40) for _ in range(outcomes)]
        line.append({o: Fraction(w, sum(weights)) for o, w in enumerate(weights)})
    return line


def drifting_line(rng: random.Random, points: int, outcomes: int) -> list[dict[int, Fraction]]:
    """As `random_line`, but the laws move steadily, so that a group of k is nearly as bad as it can be."""
    tilts = [Fraction(rng.randint(10, 30), 20) for _ in range(outcomes)]
    weights = [Fraction(rng.randint(1, 20)) for _ in range(outcomes)]
    line = []
    for _ in range(points):
        total = sum(weights)
        line.append({o: w / total for o, w in enumerate(weights)})
        weights = [w * t for w, t in zip(weights, tilts, strict=True)]
    return line


def geometric_line(points: int, decay: Fraction, width: int) -> list[dict[int, Fraction]]:
    """Discrete Laplace noise clamped to -width..width+points: pure, ln(1/decay) for each step, met exactly."""
    edge_low, edge_high = -width, width + points
    line = []
    for centre in range(points):
        inner = {
            v: (1 - decay) / (1 + decay) * decay ** abs(v - centre)
            for v in range(edge_low + 1, edge_high)
        }
        inner[edge_low] = decay ** (centre - edge_low) / (1 + decay)
        inner[edge_high] = decay ** (edge_high - centre) / (1 + decay)
        line.append(inner)
    return line


def climbing_coin(points: int, ratio: Fraction, delta: Fraction) -> list[dict[int, Fraction]]:
    """Coins with p_0 = 0 and p_(i+1) = ratio p_i + delta: (ln ratio, delta) for each step, and the group's delta is
    delta (1 + ratio + ... + ratio^(k-1)), met exactly, where all p are below 1 / (1 + ratio)."""
    chance, line = Fraction(0), []
    for _ in range(points):
        line.append({1: chance, 0: 1 - chance})
        chance = ratio * chance + delta
    return line


def gaussian_coin(points: int, mu: float, start: float) -> list[dict[int, Fraction]]:
    """Coins Phi(start + i mu): mu-GDP for each step and k mu for k of them, met exactly (one corner only)."""
    chances = [Fraction(NORMAL.cdf(start + i * mu)) for i in range(points)]
    return [{1: c, 0: 1 - c} for c in chances]


def quantised_gaussian(mean: float, cuts: Sequence[float]) -> dict[int, Fraction]:
    """N(mean, 1) rounded to the cells between `cuts`."""
    edges = [Fraction(0), *(Fraction(NORMAL.cdf(c - mean)) for c in cuts), Fraction(1)]
    return {i: b - a for i, (a, b) in enumerate(itertools.pairwise(edges))}


def discrete_gaussian_moment(
    decay: Fraction, shift: int, order: int, reach: int
) -> tuple[Fraction, Fraction]:
    """Bounds of e^((order-1) D_order) between discrete Gaussians at 0 and at `shift`, weights decay^(x^2).

    decay = e^(-1/(2 sigma^2)). Both the sum of the moments and the normaliser are cut off at `reach` around their
    centres; the tail beyond is at most 2 decay^(reach^2) / (1 - decay). Exact value: decay^(-order (order-1) shift^2)
    (Canonne, Kamath, Steinke, at whole orders).
    """
    tail = 2 * decay ** (reach * reach) / (1 - decay)
    normaliser = sum((decay ** (x * x) for x in range(-reach, reach + 1)), Fraction(0))
    # order x^2 + (1 - order) (x - shift)^2 is (x - c)^2 - order (order - 1) shift^2 about c = (1 - order) shift
    centre = (1 - order) * shift
    scale = decay ** (order * (order - 1) * shift * shift)
    total = Fraction(0)
    for x in range(centre - reach, centre + reach + 1):
        exponent = order * x * x + (1 - order) * (x - shift) ** 2
        total += decay**exponent if exponent >= 0 else 1 / decay**-exponent
    return total / (normaliser + tail), (total + tail / scale) / normaliser
