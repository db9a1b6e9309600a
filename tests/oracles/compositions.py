"""Exact composition of randomized response, by enumeration, in floats: what optimal composition is measured against.

RR_e answers its bit with odds e^e : 1. Every pure mechanism is a post-processing of it, so the worst loss of any
strategy over RR is the worst of all.
"""

import itertools
import math
from collections.abc import Sequence


def closed_form(epsilon: float, delta: float, k: int, target: float) -> float:
    """Kairouz, Oh, Viswanath: the delta at `target` of k-fold composition of RR_(epsilon, delta)."""
    inner = 0.0
    for low in range(k + 1):
        gap = (k - 2 * low) * epsilon - target
        if gap > 0:
            ways = math.log(math.comb(k, low)) - k * math.log1p(math.exp(epsilon))
            inner -= math.exp(ways + (k - low) * epsilon) * math.expm1(-gap)
    return 1 - (1 - delta) ** k * (1 - inner)


def brute_force(parts: Sequence[tuple[float, float]], target: float) -> float:
    """The delta at `target` of RR_(e, d) for all (e, d) of `parts`: all answers are enumerated."""
    found = 0.0
    for signs in itertools.product((1, -1), repeat=len(parts)):
        p = q = 1.0
        for sign, (e, _) in zip(signs, parts, strict=True):
            heads = math.exp(e) / (1 + math.exp(e))
            p *= heads if sign > 0 else 1 - heads
            q *= 1 - heads if sign > 0 else heads
        found += max(p - math.exp(target) * q, 0.0)
    kept = math.prod(1 - d for _, d in parts)
    return 1 - kept * (1 - found)
