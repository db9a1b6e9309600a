"""Exact probabilities and log ratios, shared by the oracles.

Rules: a probability is a `Fraction`. A decay is the ratio of neighbouring probabilities of a
discrete Laplace or geometric variable, e^(-1/scale): either a small rational chosen by the caller
(then the claimed epsilon is -ln(decay) and nothing is rounded) or the exact binary value of the
nearest float (relative error 1e-16).
"""

import math
from fractions import Fraction


def decay(epsilon: float) -> Fraction:
    """e^(-epsilon) as the exact value of the nearest float: later arithmetic cancels nothing."""
    return Fraction(math.exp(-epsilon))


def log_ratio(numerator: Fraction, denominator: Fraction) -> float:
    """ln(numerator / denominator), correctly rounded up to one ulp; 0/0 counts as no loss."""
    if numerator == denominator:
        return 0.0
    if denominator == 0:
        return math.inf
    return -math.inf if numerator == 0 else math.log(numerator / denominator)


def laplace_pmf(value: int, a: Fraction) -> Fraction:
    """P[X = value] of the discrete Laplace variable with decay `a`."""
    return (1 - a) / (1 + a) * a ** abs(value)


def laplace_at_least(value: int, a: Fraction) -> Fraction:
    """P[X >= value] of the discrete Laplace variable with decay `a`."""
    return a**value / (1 + a) if value > 0 else 1 - a ** (1 - value) / (1 + a)


def clamped_laplace(centre: int, bound: int, a: Fraction) -> dict[int, Fraction]:
    """Exact law of clamp(centre + X, -bound, bound).

    Two centres inside [-bound, bound] keep their full loss: beyond the bound the ratio is constant.
    """
    law = {v: laplace_pmf(v - centre, a) for v in range(-bound + 1, bound)}
    law[bound] = laplace_at_least(bound - centre, a)
    law[-bound] = laplace_at_least(bound + centre, a)
    return law
