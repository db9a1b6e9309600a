"""Exact output law of AboveThreshold with one-sided geometric noise, and the loss of two sequences of queries.

tau ~ Geom(decay a), drawn once; nu_t ~ Geom(decay b), fresh each tick; top at t, then halt, iff
query_t + nu_t > threshold_t + tau. With scales 1/e1 and s/e2 the decays are e^(-e1) and e^(-e2/s).
Sources: Lyu, Su, Li: Understanding the Sparse Vector Technique (2017) for the rule and the monotone
case; Liu et al. 2024 for one-sided noise; [HSV] Algorithm 3. Infinite supports are summed in closed
form, nothing is truncated: given tau = x every factor is b^(margin + x) or 1 - b^(margin + x), a
polynomial in b^x.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from oracles.exact import decay, log_ratio


@dataclass(frozen=True, slots=True)
class Decays:
    """The two noise decays: `tau` = e^(-e1), `nu` = e^(-e2/s)."""

    tau: Fraction
    nu: Fraction

    @classmethod
    def of(cls, e1: float, e2: float, s: int = 1) -> "Decays":
        """From the two budgets and the noise factor s (1: one-signed changes, 2: general)."""
        return cls(decay(e1), decay(e2 / s))


def margins(
    queries: Sequence[int], thresholds: Sequence[int] | int, *, strict: bool = True
) -> tuple[int, ...]:
    """m_t with: top at t iff nu_t >= m_t + tau."""
    level = [thresholds] * len(queries) if isinstance(thresholds, int) else thresholds
    return tuple(g - q + int(strict) for q, g in zip(queries, level, strict=True))


@lru_cache(maxsize=1 << 18)
def pattern_probability(margin: tuple[int, ...], tops: tuple[bool, ...], noise: Decays) -> Fraction:
    """P[the comparisons come out as `tops`], all with the same tau (no halting): exact.

    Whole numbers over one common denominator, reduced once at the end: a hundred reductions take seconds.
    """
    a, (p, q) = noise.tau, noise.nu.as_integer_ratio()
    start = max([0, *(-m for m in margin)])
    head = sum((a**x * _given_tau(margin, tops, noise.nu, x) for x in range(start)), Fraction(0))
    poly, scale = [1], 1  # coefficients of y^k times `scale`, y = b^(tau - start)
    for m, top in zip(margin, tops, strict=True):
        above, whole = p ** (m + start), q ** (m + start)
        raised = [0, *(c * above for c in poly)]
        poly = raised if top else [c * whole - r for c, r in zip([*poly, 0], raised, strict=True)]
        scale *= whole
    tail, below = 0, 1  # sum of c / (1 - a b^k), the tail of a geometric series each
    for k, c in enumerate(poly):
        whole = a.denominator * q**k
        rest = whole - a.numerator * p**k
        tail, below = tail * rest + c * whole * below, below * rest
    return (1 - a) * (head + a**start * Fraction(tail, below * scale))


def _given_tau(margin: tuple[int, ...], tops: tuple[bool, ...], b: Fraction, tau: int) -> Fraction:
    """P[the comparisons come out as `tops` | tau]."""
    part, whole = 1, 1
    for m, top in zip(margin, tops, strict=True):
        above, every = b.numerator ** max(m + tau, 0), b.denominator ** max(m + tau, 0)
        part, whole = part * (above if top else every - above), whole * every
        if part == 0:
            break
    return Fraction(part, whole)


def transcript_probabilities(
    queries: Sequence[int], thresholds: Sequence[int] | int, noise: Decays, *, strict: bool = True
) -> tuple[Fraction, ...]:
    """P[first top at tick t] for t = 1..T, then P[no top]; they sum to exactly 1."""
    m = margins(queries, thresholds, strict=strict)
    halts = [pattern_probability(m[: t + 1], (*[False] * t, True), noise) for t in range(len(m))]
    return (*halts, pattern_probability(m, (False,) * len(m), noise))


def directional_loss(
    queries_a: Sequence[int],
    queries_b: Sequence[int],
    thresholds: Sequence[int] | int,
    noise: Decays,
    *,
    strict: bool = True,
) -> float:
    """max over transcripts of ln(P_a / P_b): one direction only."""
    law_a = transcript_probabilities(queries_a, thresholds, noise, strict=strict)
    law_b = transcript_probabilities(queries_b, thresholds, noise, strict=strict)
    return max(log_ratio(p, q) for p, q in zip(law_a, law_b, strict=True))


def loss(
    queries_a: Sequence[int],
    queries_b: Sequence[int],
    thresholds: Sequence[int] | int,
    noise: Decays,
    *,
    strict: bool = True,
) -> float:
    """max over transcripts of |ln(P_a / P_b)|."""
    return max(
        directional_loss(queries_a, queries_b, thresholds, noise, strict=strict),
        directional_loss(queries_b, queries_a, thresholds, noise, strict=strict),
    )
